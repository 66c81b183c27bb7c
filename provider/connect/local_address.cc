// SPDX-License-Identifier: MIT
#include "provider/connect/local_address.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/stream/tcp_stream.h"
#include "base/system_calls.h"

namespace uiw::provider {

namespace {

enum class Use { any, holds, shares, calls };

int bound_socket(sockaddr_storage& local, bool v6only, Use use) {
  if (local.ss_family != AF_INET && local.ss_family != AF_INET6) return -EAFNOSUPPORT;
  const int fd = TcpStream::open(local.ss_family);
  if (fd < 0) return fd;
  TcpStream socket(fd);
  const bool holds = use == Use::holds || use == Use::shares;
  if (holds && !set_option(fd, SOL_SOCKET, SO_REUSEPORT, true)) return -errno;
  if (use != Use::holds && !set_option(fd, SOL_SOCKET, SO_REUSEADDR, true)) return -errno;
  if (local.ss_family == AF_INET6 && !set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6only)) return -errno;
  if (use == Use::calls)
    set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, true);  // connect() chooses the port; sockets can share it
  // A system call instead of libc's bind(), which uiw's preload library replaces: that bind() would take this socket
  // for one of the program, and make an rdma_cm id of this process give up a port that this socket finds in use
  // (kernel-abi/interposer/hooks/sockets.cc).
  if (::syscall(SYS_bind, fd, generic(local), size_of(local)) != 0) return -errno;
  socklen_t size = sizeof local;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) return -errno;
  return socket.release();
}

}  // namespace

int bind_socket(sockaddr_storage& local, bool v6only) { return bound_socket(local, v6only, Use::any); }

int holding_socket(sockaddr_storage& local, bool v6only, bool shares) {
  return bound_socket(local, v6only, shares ? Use::shares : Use::holds);
}

int holding_datagram_socket(std::uint16_t port) {
  const int fd = DescriptorChange().take(sys::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                                         "datagrams of queue pairs");
  if (fd < 0) return -errno;
  TcpStream owner(fd);  // closes the descriptor after a failure
  if (!set_option(fd, SOL_SOCKET, SO_REUSEPORT, true) || !set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, false) ||
      !set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, true))
    return -errno;
  want_datagram_buffers(fd);
  want_ip_fields(fd);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  if (::syscall(SYS_bind, fd, &any, sizeof any) != 0) return -errno;  // not libc's bind(), see bound_socket()
  return owner.release();
}

void want_ip_fields(int fd) {
  constexpr int kIpv6FlowInfoSend = 33, kIpv6AutoFlowLabel = 70;  // of <linux/in6.h>
  set_option(fd, IPPROTO_IP, IP_RECVTOS, true);
  set_option(fd, IPPROTO_IP, IP_RECVTTL, true);
  set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, true);
  set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, true);
  set_option(fd, IPPROTO_IPV6, kIpv6FlowInfo, true);
  set_option(fd, IPPROTO_IPV6, kIpv6FlowInfoSend, true);
  set_option(fd, IPPROTO_IPV6, kIpv6AutoFlowLabel, false);
}

void want_datagram_buffers(int fd) {
  constexpr int kReceive = 8 << 20, kSend = 4 << 20;
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceive, sizeof kReceive) != 0)
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceive, sizeof kReceive);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSend, sizeof kSend);
}

int calling_socket(sockaddr_storage& local) { return bound_socket(local, false, Use::calls); }

int choose_source(const sockaddr* destination, const sockaddr* source, sockaddr_storage& local) {
  const int family = destination->sa_family;
  if (family != AF_INET && family != AF_INET6) return EAFNOSUPPORT;
  if (source != nullptr && source->sa_family != family) return EAFNOSUPPORT;
  const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const DescriptorChange change;  // protects the socket from the program until it is closed
  const int fd = sys::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  TcpStream closer(fd);
  if (source != nullptr) {
    sockaddr_storage bound{};
    std::memcpy(&bound, source, size);
    port_of(bound) = 0;
    if (::syscall(SYS_bind, fd, generic(bound), size) != 0) return errno;  // not libc's bind(), see bound_socket()
  }
  // Connecting a UDP socket sends nothing; the kernel chooses route and source address as it does for TCP.
  sockaddr_storage remote{};
  std::memcpy(&remote, destination, size);
  if (port_of(remote) == 0) port_of(remote) = htons(1);
  if (::connect(fd, generic(remote), size) != 0) return errno;
  socklen_t length = sizeof local;
  local = {};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) return errno;
  port_of(local) = 0;
  return 0;
}

}  // namespace uiw::provider
