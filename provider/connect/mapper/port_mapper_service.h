// SPDX-License-Identifier: MIT
// The answering side of the iWARP port mapper (port_mapper_format.h): callers of other hosts learn which TCP port an
// RDMA listener of this host has.
//
// One process of a network namespace answers for the listeners of all, which it finds as callers of this host do
// (provider/connect/rdma_port.h). It holds UDP port 3935, and an abstract Unix name that tells the others that the
// holder is one of them. When it ends, another one takes both. If the port belongs to another program, such as iwpmd,
// which answers for adapters only, nobody answers for these listeners.
//
// The service keeps no state of those who ask; an answer is never longer than its request, and goes out from the
// address that was asked.
#pragma once

#include <memory>

namespace uiw::provider {

// The membership of this process in the service, which it joins to have its listeners found. It ends with the last
// reference.
class PortMapperMember {
 public:
  virtual ~PortMapperMember() = default;
  // In the child of a fork: closes the child's copies.
  virtual void abandon() = 0;
};

// 0; EADDRINUSE if a program that is not one of uiw's has UDP port 3935; EMFILE or another errno. Thread-safe; waits at
// most for some milliseconds. Throws std::bad_alloc.
int join_port_mapper(std::shared_ptr<PortMapperMember>& member);

}  // namespace uiw::provider
