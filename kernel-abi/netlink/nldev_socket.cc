// SPDX-License-Identifier: MIT
#include "kernel-abi/netlink/nldev_socket.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "kernel-abi/caller/user_memory.h"
#include "kernel-abi/netlink/nldev.h"
#include "kernel-abi/sysfs/device_tree.h"
#include "provider/inventory/processes.h"

namespace uiw::kernel_abi {
namespace {

constinit TableMutex g_connecting;  // held in own_port(): one thread at a time prepares a socket

constexpr std::size_t kLongestRequest = std::size_t{1} << 16;
constexpr std::size_t kLongestAnswer = std::size_t{1} << 16;  // the kernel's datagrams have at most 32 KiB

const sockaddr* generic(const sockaddr_nl* address) { return reinterpret_cast<const sockaddr*>(address); }
sockaddr* generic(sockaddr_nl* address) { return reinterpret_cast<sockaddr*>(address); }

sockaddr_nl address_of_port(std::uint32_t port) {
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_pid = port;
  return address;
}

// Connects the socket to itself, and returns its Netlink port or a negative errno. Any process can send to a socket of
// NETLINK_USERSOCK that is not connected, and the program would take what is sent for the kernel's answer. So what is
// in the socket after the connect is dropped. Until then a lock keeps other threads from putting answers into it.
long long own_port(int fd) {
  const LockGuard lock(g_connecting);
  sockaddr_nl own{};
  socklen_t length = sizeof own;
  if (::getsockname(fd, generic(&own), &length) != 0) return -errno;
  if (own.nl_pid == 0) {
    const sockaddr_nl any = address_of_port(0);
    length = sizeof own;
    if (::bind(fd, generic(&any), sizeof any) != 0 || ::getsockname(fd, generic(&own), &length) != 0) return -errno;
  }
  sockaddr_nl peer{};
  length = sizeof peer;
  if (::getpeername(fd, generic(&peer), &length) == 0 && peer.nl_pid == own.nl_pid) return own.nl_pid;
  const sockaddr_nl self = address_of_port(own.nl_pid);
  if (::connect(fd, generic(&self), sizeof self) != 0) return -errno;
  char octet;
  while (::recv(fd, &octet, sizeof octet, MSG_DONTWAIT) >= 0 || errno == EINTR || errno == ENOBUFS) {
  }
  return own.nl_pid;
}

// Sends one request to the kernel and returns the whole answer. The kernel queues the first part of the answer before
// send() returns, and each further part of a dump while the part before it is read. So when there is nothing to read,
// the answer is complete.
Octets ask_kernel(OctetView request) {
  Octets answer;
  // A kernel without RDMA has no such directory. socket() would fail, too, but makes the kernel look for a module each
  // time.
  if (::access("/sys/class/infiniband", F_OK) != 0) return answer;
  const int fd = DescriptorChange().guard(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (fd < 0) return answer;
  const sockaddr_nl kernel = address_of_port(0);
  Octets part(kLongestAnswer);
  if (::sendto(fd, request.data(), request.size(), 0, generic(&kernel), sizeof kernel) >= 0) {
    for (;;) {
      const ssize_t length = ::recv(fd, part.data(), part.size(), MSG_DONTWAIT);
      if (length < 0 && errno == EINTR) continue;
      if (length <= 0) break;
      answer.insert(answer.end(), part.begin(), part.begin() + length);
      answer.resize(NLMSG_ALIGN(answer.size()));
    }
  }
  close_descriptor(fd);
  return answer;
}

int deliver(int fd, std::uint32_t port, const Octets& datagram) {
  const sockaddr_nl self = address_of_port(port);
  for (;;) {
    if (::sendto(fd, datagram.data(), datagram.size(), MSG_DONTWAIT, generic(&self), sizeof self) >= 0) return 0;
    if (errno == EAGAIN) return -ENOBUFS;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace

long write_nldev_request(int fd, const void* data, std::size_t size) {
  if (size > kLongestRequest) return -EMSGSIZE;
  Octets request(size);
  if (copy_from_user(request.data(), data, size) != 0) return -EFAULT;
  const long long port = own_port(fd);
  if (port < 0) return static_cast<long>(port);
  const NldevWorld world = {numbered_devices, provider::ask_processes, ask_kernel};
  for (const Octets& datagram : answer_nldev(std::move(request), static_cast<std::uint32_t>(port), world)) {
    const int error = deliver(fd, static_cast<std::uint32_t>(port), datagram);
    if (error != 0) return error;
  }
  return static_cast<long>(size);
}

void lock_nldev_sockets() UIW_ACQUIRE(g_connecting) { g_connecting.lock(); }
void unlock_nldev_sockets() UIW_RELEASE(g_connecting) { g_connecting.unlock(); }

}  // namespace uiw::kernel_abi
