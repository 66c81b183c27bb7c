// SPDX-License-Identifier: MIT
// An entry of the table of queue pair numbers (qp_table.h): a queue pair of any kind, or a port of datagrams, which the
// engine of a context finds by a number as well. Each room asks for the part that it knows.
#pragma once

namespace uiw::provider {

class Attachable;
class DatagramTarget;
class Driven;

class Numbered {
 public:
  // The part that connections know (attachable.h); null for what has no stream.
  virtual Attachable* attachable() { return nullptr; }
  // The part that an engine drives (progress/driven.h); null for what has no socket of its own.
  virtual Driven* driven() { return nullptr; }
  // The part that takes datagrams (datagram/datagram_target.h); null for what takes none.
  virtual DatagramTarget* datagrams() { return nullptr; }
  // In the child of a fork: the object belongs to the parent.
  virtual void after_fork_in_child() = 0;

 protected:
  virtual ~Numbered() = default;
};

}  // namespace uiw::provider
