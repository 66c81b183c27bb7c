// SPDX-License-Identifier: MIT
// An entry of the table of queue pair numbers (qp_table.h): a queue pair of any type, or a DatagramPort, which also has
// a number by which the engine of its context finds it. Each folder asks an entry for the interface that it uses.
#pragma once

namespace uiw::provider {

class Attachable;
class DatagramTarget;
class Driven;

class Numbered {
 public:
  // The interface for connections (attachable.h); null if the entry cannot have a stream.
  virtual Attachable* attachable() { return nullptr; }
  // The interface by which an engine sends and receives (progress/driven.h); null if the entry has no socket of its
  // own.
  virtual Driven* driven() { return nullptr; }
  // The interface for datagrams (datagram/datagram_target.h); null if the entry receives none.
  virtual DatagramTarget* datagrams() { return nullptr; }
  // Called in the child of a fork: the object belongs to the parent, and the child only has a copy of it.
  virtual void after_fork_in_child() = 0;

 protected:
  virtual ~Numbered() = default;
};

}  // namespace uiw::provider
