// SPDX-License-Identifier: MIT
#include "provider/connect/lookup/lookup_socket.h"

#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/system_calls.h"
#include "provider/connect/local_address.h"
#include "provider/connect/lookup/lookup.h"

namespace uiw::provider {

namespace {

struct alignas(cmsghdr) Control {
  std::array<std::byte, CMSG_SPACE(sizeof(in6_pktinfo))> octets;
};

// Stores the local address of a datagram in `to`. `to` has the address family of the socket already.
void read_local_address(msghdr& message, sockaddr_storage& to) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO && to.ss_family == AF_INET) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(at), sizeof info);
      reinterpret_cast<sockaddr_in&>(to).sin_addr = info.ipi_addr;
    } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_PKTINFO && to.ss_family == AF_INET6) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(at), sizeof info);
      auto& address = reinterpret_cast<sockaddr_in6&>(to);
      address.sin6_addr = info.ipi6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) address.sin6_scope_id = info.ipi6_ifindex;
    }
  }
}

template <typename Info>
void write_control(msghdr& message, Control& control, int level, int type, const Info& info) {
  control = {};
  message.msg_control = control.octets.data();
  message.msg_controllen = CMSG_SPACE(sizeof info);
  cmsghdr* const at = CMSG_FIRSTHDR(&message);
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(at), &info, sizeof info);
}

void write_local_address(msghdr& message, Control& control, const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    in_pktinfo info{};
    info.ipi_spec_dst = reinterpret_cast<const sockaddr_in&>(from).sin_addr;
    write_control(message, control, IPPROTO_IP, IP_PKTINFO, info);
  } else {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(from);
    in6_pktinfo info{};
    info.ipi6_addr = address.sin6_addr;
    info.ipi6_ifindex = address.sin6_scope_id;
    write_control(message, control, IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
}

}  // namespace

int bind_lookup_socket(sockaddr_storage& local, bool v6only) {
  if (local.ss_family != AF_INET && local.ss_family != AF_INET6) return -EAFNOSUPPORT;
  const int fd = DescriptorChange().take(sys::socket(local.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                                         "rdma_cm's port space UDP");
  if (fd < 0) return -errno;
  const bool set = local.ss_family == AF_INET6 ? set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6only) &&
                                                     set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, true)
                                               : set_option(fd, IPPROTO_IP, IP_PKTINFO, true);
  socklen_t size = sizeof local;
  // A system call instead of libc's bind(), which uiw's preload library replaces (see local_address.cc).
  if (!set || ::syscall(SYS_bind, fd, generic(local), size_of(local)) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    const int error = errno;
    close_descriptor(fd);
    return -error;
  }
  return fd;
}

LookupSocket::~LookupSocket() { close_descriptor(fd_); }

long LookupSocket::receive(MutableOctets room, sockaddr_storage& from, sockaddr_storage& to) const {
  Control control{};
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.octets.data();
  message.msg_controllen = control.octets.size();
  from = to = {};
  const long size = ::syscall(SYS_recvmsg, fd_, &message, MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0) return -errno;
  socklen_t length = sizeof to;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&to), &length) != 0) return -errno;
  read_local_address(message, to);
  return size;
}

int LookupSocket::send(Octets octets, const sockaddr_storage& from, const sockaddr_storage& to) const {
  Control control;
  sockaddr_storage remote = to;
  iovec part{const_cast<std::byte*>(octets.data()), octets.size()};
  msghdr message{};
  message.msg_name = &remote;
  message.msg_namelen = size_of(remote);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  write_local_address(message, control, from);
  return ::syscall(SYS_sendmsg, fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int LookupSocket::want_errors() const {
  int family = 0;
  socklen_t size = sizeof family;
  if (::getsockopt(fd_, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) return errno;
  const bool v6 = family == AF_INET6;
  const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, name = v6 ? IPV6_RECVERR : IP_RECVERR;
  return set_option(fd_, level, name, true) ? 0 : errno;
}

int LookupSocket::send(Octets octets) const {
  const long sent = ::syscall(SYS_sendto, fd_, octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  return sent < 0 ? errno : 0;
}

}  // namespace uiw::provider
