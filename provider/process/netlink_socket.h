// SPDX-License-Identifier: MIT
// A netlink socket for libnl whose descriptor is ours to choose: libnl makes it where the kernel gives it.
#pragma once

#include <linux/netlink.h>
#include <netlink/netlink.h>
#include <sys/socket.h>

#include "mpa/descriptor.h"

namespace uiw::provider {

// For a family, of links, addresses and routes for example. -1 with errno.
inline int make_netlink_socket(int family = NETLINK_ROUTE) {
  return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
}

// From here on libnl uses this descriptor, and closes it with nl_socket_free(): mpa::leave_descriptor() comes before
// that. False where it cannot; the descriptor is closed then.
inline bool use_netlink_socket(nl_sock* socket, int fd, int family = NETLINK_ROUTE) {
  if (fd < 0) return false;
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 && nl_socket_set_fd(socket, family, fd) == 0)
    return true;
  mpa::close_descriptor(fd);
  return false;
}

}  // namespace uiw::provider
