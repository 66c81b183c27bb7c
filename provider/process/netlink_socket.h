// SPDX-License-Identifier: MIT
// A netlink socket for libnl with a descriptor that was taken as mpa/descriptor.h says; libnl itself would use the
// number that the kernel gives.
#pragma once

#include <linux/netlink.h>
#include <netlink/netlink.h>
#include <sys/socket.h>

#include "mpa/descriptor.h"

namespace uiw::provider {

// Creates a socket; `family` is NETLINK_ROUTE for links, addresses and routes. -1 with errno.
inline int make_netlink_socket(int family = NETLINK_ROUTE) {
  return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
}

// Makes libnl use this descriptor. nl_socket_free() closes it, so mpa::leave_descriptor() must be called before that.
// False on failure; then the descriptor is closed.
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
