// SPDX-License-Identifier: MIT
// Netlink sockets for libnl. The descriptors are not made by libnl, so that the library can protect them from the
// program (base/descriptor.h).
#pragma once

#include <linux/netlink.h>
#include <netlink/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/descriptor.h"
#include "base/system_calls.h"

namespace uiw::provider {

// Creates a socket. The caller has to protect its descriptor (DescriptorChange). `family` is NETLINK_ROUTE for links,
// addresses and routes. Returns -1 with errno after an error.
inline int make_netlink_socket(int family = NETLINK_ROUTE) {
  const int fd = sys::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, family);
  // The kernel answers before the call that sends a request returns. But if it has refused a request for lack of
  // memory, libnl still waits for an answer, and would do so for ever without this timeout.
  const timeval patience{1, 0};
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

// Makes libnl use this descriptor, which free_netlink_socket() closes. Returns false after an error; the descriptor is
// then closed.
inline bool use_netlink_socket(nl_sock* socket, int fd, int family = NETLINK_ROUTE) {
  if (fd < 0) return false;
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 && nl_socket_set_fd(socket, family, fd) == 0)
    return true;
  close_descriptor(fd);
  return false;
}

// Frees the socket and closes its descriptor, if it has one.
inline void free_netlink_socket(nl_sock* socket) {
  const DescriptorChange change;
  if (const int fd = nl_socket_get_fd(socket); fd >= 0) change.leave(fd);
  nl_socket_free(socket);
}

}  // namespace uiw::provider
