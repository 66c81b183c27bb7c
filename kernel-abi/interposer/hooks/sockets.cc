// SPDX-License-Identifier: MIT
// The hooks of libc functions for sockets.
//
// NETLINK_RDMA: socket() makes another socket as a stand-in (kernel-abi/netlink/nldev_socket.h). What the program
// (libnl, libmnl) sends on it to the kernel goes to the library. Receiving, polling and all else needs no hook. For
// other sockets a hook costs one look-up in the table of descriptors.
//
// bind() and listen(): rdma_cm has port spaces of its own, so if a TCP or UDP socket of the program wants the port of
// an RDMA listener or of a bound rdma_cm id, both of this process, the listener or id moves to another port. The hooks
// do nothing more if the call succeeds at once.
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/hooks/descriptors.h"
#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/loader.h"

namespace uiw::kernel_abi {
namespace {

constinit RealFunction<int(int, int, int)> real_socket("socket");
constinit RealFunction<ssize_t(int, const void*, size_t, int)> real_send("send");
constinit RealFunction<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)> real_sendto("sendto");
constinit RealFunction<ssize_t(int, const msghdr*, int)> real_sendmsg("sendmsg");
constinit RealFunction<int(int, const sockaddr*, socklen_t)> real_bind("bind");
constinit RealFunction<int(int, int)> real_listen("listen");

// The greatest length, in octets, of a request that comes in several iovecs; libnl and libmnl use one iovec.
constexpr size_t kLongestInPieces = 8192;

int call_socket(int domain, int type, int protocol) {
  if (auto* function = real_socket.get()) return function(domain, type, protocol);
  return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}

// Opens a socket in place of one of NETLINK_RDMA. If that fails, socket() fails as on a kernel without RDMA, and
// libibverbs falls back to sysfs.
int open_stand_in(int type) {
  const int fd = forget_stale(call_socket(AF_NETLINK, type, NETLINK_USERSOCK));
  if (fd < 0) return fd;
  const int error = fd_attach(fd, FdEntry(UIW_OBJECT_NETLINK));
  if (error == 0) return fd;
  syscall(SYS_close, fd);
  errno = error;
  return -1;
}

// Whether `fd` stands in for a socket of NETLINK_RDMA, and `address` is the kernel's. A null address means the kernel.
bool goes_to_kernel(int fd, const void* address, socklen_t length) {
  const FdEntry entry = fd_lookup(fd);
  if (entry.kind() != UIW_OBJECT_NETLINK || t_passthrough != 0 || !is_stand_in(entry, fd)) return false;
  sockaddr_nl destination;
  if (address == nullptr || length < sizeof destination) return true;
  memcpy(&destination, address, sizeof destination);
  return destination.nl_pid == 0 && destination.nl_groups == 0;
}

inline bool may_be_request(int fd) { return __builtin_expect(fd_lookup(fd).kind() == UIW_OBJECT_NETLINK, 0); }

__attribute__((noinline)) ssize_t send_pieces(int fd, const msghdr* message) {
  if (message->msg_iovlen == 1)
    return send_request(fd_lookup(fd), fd, message->msg_iov->iov_base, message->msg_iov->iov_len);
  char whole[kLongestInPieces];
  size_t size = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const iovec& piece = message->msg_iov[i];
    if (piece.iov_len > sizeof whole - size) {
      errno = EMSGSIZE;
      return -1;
    }
    if (piece.iov_len != 0) memcpy(whole + size, piece.iov_base, piece.iov_len);
    size += piece.iov_len;
  }
  return send_request(fd_lookup(fd), fd, whole, size);
}

int call_bind(int fd, const sockaddr* address, socklen_t length) {
  if (auto* function = real_bind.get()) return function(fd, address, length);
  return static_cast<int>(syscall(SYS_bind, fd, address, length));
}

int call_listen(int fd, int backlog) {
  if (auto* function = real_listen.get()) return function(fd, backlog);
  return static_cast<int>(syscall(SYS_listen, fd, backlog));
}

int option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// Lets the library free the port that the kernel has refused to the program's socket `fd`. Returns whether the library
// did. Keeps errno.
bool gave_way(int fd, in_port_t port) {
  const UiwKernelAbi* library = loaded_library();
  // The child of a vfork shares the parent's memory but not its descriptors, so it must not move the parent's ports.
  if (library == nullptr || port == 0 || t_passthrough != 0 || fd_table_is_borrowed()) return false;
  const int saved_errno = errno;
  const int type = option(fd, SO_TYPE), protocol = option(fd, SO_PROTOCOL);
  bool gave = (type == SOCK_STREAM && protocol == IPPROTO_TCP) || (type == SOCK_DGRAM && protocol == IPPROTO_UDP);
  if (gave) {
    Passthrough guard;
    gave = library->give_way(ntohs(port), type == SOCK_DGRAM ? 1 : 0) != 0;
  }
  errno = saved_errno;
  return gave;
}

// The port of an IPv4 or IPv6 address, in network byte order; both structures have it at the same place. 0 for other
// addresses. Reading the address is safe, since the kernel has read it already.
in_port_t port_of(const sockaddr* address, socklen_t length) {
  const bool ip = length >= sizeof(sockaddr_in) && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
  return ip ? reinterpret_cast<const sockaddr_in*>(address)->sin_port : 0;
}

}  // namespace

bool is_stand_in(FdEntry entry, int fd) {
  const int saved_errno = errno;
  int domain = 0;
  int protocol = -1;
  socklen_t length = sizeof domain;
  bool is = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_NETLINK;
  length = sizeof protocol;
  is = is && getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == NETLINK_USERSOCK;
  // If the table has another entry by now, another thread has closed the descriptor since this call began, and the new
  // entry is kept.
  if (!is && fd_lookup(fd).bits() == entry.bits() && !fd_table_is_borrowed()) drop_descriptor(fd);
  errno = saved_errno;
  return is;
}

ssize_t send_request(FdEntry entry, int fd, const void* data, size_t size) {
  // The child of a vfork shares the parent's memory but not its descriptors, so the library must not run there. The
  // child of a fork may go on using the stand-in, since all its state is in the kernel's socket.
  if (fd_table_is_borrowed()) {
    errno = EIO;
    return -1;
  }
  const int saved_errno = errno;
  long result;
  {
    Passthrough guard;
    result = loaded_library()->write(entry.object(), fd, data, size);
  }
  errno = result < 0 ? static_cast<int>(-result) : saved_errno;
  return result < 0 ? -1 : result;
}

}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK int socket(int domain, int type, int protocol) noexcept {
  if (__builtin_expect(domain == AF_NETLINK && protocol == NETLINK_RDMA, 0) &&
      (tree_root(RdmaArea::verbs_class, false) != nullptr || tree_root(RdmaArea::verbs_class, true) != nullptr))
    return open_stand_in(type);
  return forget_stale(call_socket(domain, type, protocol));
}

UIW_HOOK ssize_t send(int fd, const void* data, size_t size, int flags) {
  if (may_be_request(fd) && goes_to_kernel(fd, nullptr, 0)) return send_request(fd_lookup(fd), fd, data, size);
  if (auto* function = real_send.get()) return function(fd, data, size, flags);
  return syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}

UIW_HOOK ssize_t sendto(int fd, const void* data, size_t size, int flags, const sockaddr* address, socklen_t length) {
  if (may_be_request(fd) && goes_to_kernel(fd, address, length)) return send_request(fd_lookup(fd), fd, data, size);
  if (auto* function = real_sendto.get()) return function(fd, data, size, flags, address, length);
  return syscall(SYS_sendto, fd, data, size, flags, address, length);
}

UIW_HOOK ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (may_be_request(fd) && goes_to_kernel(fd, message->msg_name, message->msg_namelen))
    return send_pieces(fd, message);
  if (auto* function = real_sendmsg.get()) return function(fd, message, flags);
  return syscall(SYS_sendmsg, fd, message, flags);
}

UIW_HOOK int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  const int result = call_bind(fd, address, length);
  if (__builtin_expect(result == 0 || errno != EADDRINUSE, 1) || !gave_way(fd, port_of(address, length))) return result;
  return call_bind(fd, address, length);
}

UIW_HOOK int listen(int fd, int backlog) noexcept {
  const int result = call_listen(fd, backlog);
  if (__builtin_expect(result == 0 || errno != EADDRINUSE, 1)) return result;
  sockaddr_storage own = {};
  socklen_t length = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);
  if (getsockname(fd, address, &length) != 0 || !gave_way(fd, port_of(address, length))) {
    errno = EADDRINUSE;
    return result;
  }
  return call_listen(fd, backlog);
}
