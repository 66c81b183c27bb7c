// SPDX-License-Identifier: MIT
// Which address of this host does a connection use, and the socket that is bound to it.
//
// Thread-safe. Nothing here blocks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "provider/export.h"

namespace uiw::provider {

// Makes a TCP socket bound to `local` (port 0 takes a free one), close-on-exec and non-blocking, as listen() and
// connect() want it. SO_REUSEADDR is always set (a listener may return while old connections are in TIME_WAIT).
// `v6only` sets IPV6_V6ONLY. Returns the descriptor, which the caller owns, or a negative errno (-EADDRINUSE,
// -EADDRNOTAVAIL, -EAFNOSUPPORT, -EACCES, ...). The address in `local` becomes the one really bound.
UIW_API int bind_socket(sockaddr_storage& local, bool v6only);

// The same for a port that is held against other users: SO_REUSEPORT takes the place of SO_REUSEADDR, with which
// anybody may bind a port that nobody listens on yet. Sockets of one user do not keep each other out.
int holding_socket(sockaddr_storage& local, bool v6only);

// The same for a socket that will only call: its port is settled with the call, so that callers of different peers can
// share one.
int calling_socket(sockaddr_storage& local);

// The local address that the host's routing chooses for a destination (with port 0). Returns 0 or an errno:
// ENETUNREACH, EHOSTUNREACH, EAFNOSUPPORT, EADDRNOTAVAIL. With `source` bound to a concrete address, that one is
// checked and returned.
UIW_API int choose_source(const sockaddr* destination, const sockaddr* source, sockaddr_storage& local);

// Of an IPv4 or IPv6 address.
inline const sockaddr* generic(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr*>(&address); }
inline socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}
inline in_port_t& port_of(sockaddr_storage& address) {  // in network order
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

}  // namespace uiw::provider
