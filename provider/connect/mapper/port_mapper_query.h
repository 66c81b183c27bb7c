// SPDX-License-Identifier: MIT
// The calling side of the iWARP port mapper (port_mapper_format.h): it finds the TCP or UDP port of an RDMA listener on
// another host.
//
// Most hosts have no mapper. Their kernel says so at once (ICMP port unreachable), and the caller uses the RDMA port
// number as the TCP or UDP port. If there is no answer, for example because of a firewall, a query ends after
// kMapperPatience. A host without a mapper is not asked again for a while, so that only the first of many calls waits.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>

#include "provider/connect/port_space.h"

namespace uiw::provider {

constexpr std::chrono::milliseconds kMapperPatience{500};

// A query in progress. Destroying this object ends the query; `answered` is not called.
class PortMapperQuery {
 public:
  virtual ~PortMapperQuery() = default;
};

// Asks for the port of the RDMA listener at `called`; the port in `called` is an RDMA port number. The query is sent
// from the address of `source` unless that is a wildcard or of the other family. `answered` is called once, on the
// thread of CmLoop and without a lock held, with the port in network byte order. If no mapper names another port, this
// is the RDMA port number.
//
// Returns nullptr, and never calls `answered`, if the caller is to use the RDMA port number as the port: the address is
// a wildcard, is of this host or cannot be told from one of this host, its host was found to have no mapper lately, or
// a query cannot be made. Thread-safe; does not block. Throws std::bad_alloc.
std::shared_ptr<PortMapperQuery> ask_port_mapper(const sockaddr_storage& called, const sockaddr_storage& source,
                                                 std::function<void(in_port_t)> answered,
                                                 PortSpace space = PortSpace::tcp);

}  // namespace uiw::provider
