// SPDX-License-Identifier: MIT
// The port numbers of rdma_cm, which are distinct from the ports of TCP and UDP: an rdma_cm id may have a number
// although another socket has the TCP port of this number (or the UDP port, in rdma_cm's port space UDP). Then the id
// listens on a substitute port. Callers in the same network namespace find the substitute port by these functions,
// others by the iWARP port mapper (mapper/).
//
// The names of abstract Unix sockets (unix(7)) say which process has a number, and on which port. The kernel gives each
// name to one process and takes it back when the process ends. One name contains the RDMA port number and the address.
// If the process listens on a substitute port, a second name also says which of the few possible ports it is. A caller
// connects to these names to find out whether a process has them.
//
// Any user can take any free name, just like any free port. So a caller believes a name of a port below 1024 only if it
// belongs to root or to the caller's own user. If one user has the name for the address and another user the name for
// all addresses, the caller believes the one that belongs to root or to its own user.
//
// Thread-safe. Nothing here blocks, but take_rdma_port() may wait for some milliseconds (join_port_mapper()).
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>

#include "provider/connect/port_space.h"

namespace uiw::provider {

// The number of substitute ports that there are for each number.
constexpr unsigned kSubstitutePorts = 8;

// An RDMA port number that this process has taken. Destroying the object frees the number.
class RdmaPort {
 public:
  virtual ~RdmaPort() = default;
  // In the child of a fork: closes the child's copies of the sockets.
  virtual void abandon() = 0;
};

// Whether another process has the number that `address` has as its port. 0 if none has it. If one has it: EADDRNOTAVAIL
// if `address` or the address of that process is a wildcard; otherwise EADDRINUSE if the two addresses are equal, and 0
// if they differ. These are the errors of cma.c (cma_check_port).
int check_rdma_port(const sockaddr_storage& address, bool v6only, PortSpace space = PortSpace::tcp);

// Takes the number that `address` has as its port, for its IPv4 or IPv6 address. A wildcard stands for all addresses;
// the IPv6 wildcard includes all IPv4 addresses unless `v6only` is set. `substitute`: 0 if the listener uses the port
// of that number, otherwise which substitute port it uses. Callers of other hosts learn a substitute from the port
// mapper (mapper/), unless the address is a loopback one. 0, an error of check_rdma_port(), EADDRINUSE also if this
// process has the number already, EMFILE, ENFILE, ENOMEM, an errno of CmLoop::start(), or, for a substitute port, an
// errno of join_port_mapper(). Throws std::bad_alloc.
int take_rdma_port(const sockaddr_storage& address, bool v6only, unsigned substitute, std::shared_ptr<RdmaPort>& taken,
                   PortSpace space = PortSpace::tcp);

// A substitute port for this number, in host byte order; `substitute` is from 1 to kSubstitutePorts.
std::uint16_t substitute_port(std::uint16_t number, unsigned substitute);

// Looks in this network namespace for the RDMA listener with this address and RDMA port number. Stores in `port` what
// listening_port() would return, also if no listener is found. `busy`: it cannot be found out now whether there is a
// listener, since too many callers ask its process.
enum class RdmaListener { none, found, busy };
RdmaListener find_rdma_listener(const sockaddr_storage& address, std::uint16_t& port, PortSpace space = PortSpace::tcp);

// The TCP or UDP port, in network byte order, of the RDMA listener with this address and RDMA port number. If the
// address is not of this network namespace, or no substitute port is known, the result is the RDMA port number itself.
std::uint16_t listening_port(const sockaddr_storage& address, PortSpace space = PortSpace::tcp);

}  // namespace uiw::provider
