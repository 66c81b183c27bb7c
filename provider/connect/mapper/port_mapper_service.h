// SPDX-License-Identifier: MIT
// The answering side of the iWARP port mapper (port_mapper_format.h): callers on other hosts learn which TCP or UDP
// port an RDMA listener of this host has.
//
// One process in a network namespace, the holder, answers for the listeners of all processes, which it finds as callers
// on this host do (provider/connect/rdma_port.h). It has UDP port 3935 and an abstract Unix name, which tells other
// processes that the port belongs to uiw. When the holder ends, another process takes both. If the port belongs to
// another program, such as iwpmd, which answers for adapters only, nobody answers for uiw's listeners.
//
// The service keeps no state of callers. An answer is never longer than its request, and is sent from the address to
// which the request was sent.
#pragma once

#include <memory>

namespace uiw::provider {

// The membership of this process in the service, so that callers find its listeners. It ends with the last reference.
class PortMapperMember {
 public:
  virtual ~PortMapperMember() = default;
  // In the child of a fork: closes the child's copies of the sockets.
  virtual void abandon() = 0;
};

// Joins the service. 0; EADDRINUSE if a program that does not use uiw has UDP port 3935; EMFILE or another errno.
// Thread-safe; waits at most for some milliseconds. Throws std::bad_alloc.
int join_port_mapper(std::shared_ptr<PortMapperMember>& member);

}  // namespace uiw::provider
