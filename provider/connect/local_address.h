// SPDX-License-Identifier: MIT
// Chooses the address of this host that a connection uses, and makes sockets bound to it. Thread-safe; nothing here
// blocks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

namespace uiw::provider {

// Makes a TCP socket bound to `local` (port 0 takes a free one), close-on-exec and non-blocking, as listen() and
// connect() need it. SO_REUSEADDR is always set, so that a port can be bound again while old connections are in
// TIME_WAIT. `v6only` sets IPV6_V6ONLY. Returns the descriptor, which the caller owns, or a negative errno
// (-EADDRINUSE, -EADDRNOTAVAIL, -EAFNOSUPPORT, -EACCES and others). `local` becomes the address that was bound.
int bind_socket(sockaddr_storage& local, bool v6only);

// As bind_socket(), for a port that is reserved against other users. Sets SO_REUSEPORT, which lets only sockets of the
// same user share the port, instead of SO_REUSEADDR, which would let any user bind a port on which no socket listens
// yet. `shares` sets both, for a listener on a port that another socket reserves: otherwise connections that the
// listener has accepted would keep this process from binding the port again after a change of its user.
int holding_socket(sockaddr_storage& local, bool v6only, bool shares = false);

// Makes a UDP socket for the datagrams of queue pairs. It reserves this port on all IPv4 and IPv6 addresses as
// holding_socket() does, has large buffers (want_datagram_buffers()), and reports the local address of each datagram.
// Returns the descriptor, which the caller owns, or a negative errno: -EAFNOSUPPORT if the host has no IPv6.
int holding_datagram_socket(std::uint16_t port);
// Makes the socket report the traffic class, hop limit and flow label of each datagram, as far as the kernel can, and
// send with the flow label in the destination's sockaddr_in6 instead of one that the kernel chooses.
void want_ip_fields(int fd);
constexpr int kIpv6FlowInfo = 11;  // IPV6_FLOWINFO of <linux/in6.h>, which <netinet/in.h> lacks
// Asks for large buffers, since datagrams that find no room are lost. The receive buffer gets 16 MiB, or what
// net.core.rmem_max grants to a process without CAP_NET_ADMIN.
void want_datagram_buffers(int fd);

// Makes a TCP socket that has the address `local`, as bind_socket() does, for a socket that only connects. If the port
// of `local` is 0, connect() chooses the port, so that connections to different peers can share a port.
int calling_socket(sockaddr_storage& local);

// Turns an option of a socket on or off. False, with errno, if the kernel refuses.
inline bool set_option(int fd, int level, int option, bool on) {
  const int value = on ? 1 : 0;
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Stores in `local` the address that the routing of the host chooses for a destination, with port 0. If `source` is a
// concrete address, `local` becomes this address, after a check that the host has it. Returns 0 or an errno:
// ENETUNREACH, EHOSTUNREACH, EAFNOSUPPORT, EADDRNOTAVAIL, or another one of socket(), bind() or connect().
int choose_source(const sockaddr* destination, const sockaddr* source, sockaddr_storage& local);

// The following functions take an IPv4 or IPv6 address.
inline const sockaddr* generic(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr*>(&address); }
inline socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}
inline in_port_t& port_of(sockaddr_storage& address) {  // in network order
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}
// Turns an IPv4-mapped IPv6 address into the IPv4 address.
inline sockaddr_storage plain_address(const sockaddr_storage& address) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.ss_family != AF_INET6 || IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) == 0) return address;
  sockaddr_storage result{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(result);
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof v4.sin_addr);
  return result;
}

}  // namespace uiw::provider
