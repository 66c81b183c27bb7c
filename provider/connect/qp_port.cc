// SPDX-License-Identifier: MIT
#include "provider/connect/qp_port.h"

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/descriptor.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/stream/tcp_stream.h"
#include "base/system_calls.h"
#include "provider/connect/local_address.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

using Descriptor = TcpStream;  // used as an owner that closes the descriptor

// Makes sure that no other process of this user reserves the port. SO_REUSEPORT lets a port be used again right after
// the process that had it has ended, and keeps other users out, but two processes of one user can bind it. So a process
// also binds an abstract Unix socket with this name, which only one of them can have until it ends. Like the port, the
// name belongs to the network namespace. It contains the user id, so that processes of different users do not compete
// for one name.
int claim(std::uint16_t port) {
  Descriptor socket(
      DescriptorChange().take(sys::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), "the port of queue pairs"));
  if (!socket.is_open()) return -errno;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "uiw-port-%u-%u", unsigned{::geteuid()},
                                   unsigned{port});
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<unsigned>(length));
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&name), size) != 0) return -errno;
  return socket.release();
}

// Makes a socket that reserves the port (0: any free port) on all addresses, without listening. With `shares` this also
// succeeds if connections from before a change of this process's user still have the port.
int bind_port(std::uint16_t& port, bool shares = false) {
  sockaddr_storage any{};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(any);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  int fd = holding_socket(any, false, shares);
  if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) {  // the host has no IPv6
    any = {};
    auto& v4 = reinterpret_cast<sockaddr_in&>(any);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    fd = holding_socket(any, false, shares);
  }
  if (fd >= 0 && shares) set_option(fd, SOL_SOCKET, SO_REUSEADDR, false);  // otherwise other users could bind the port
  // sin_port and sin6_port are at the same offset.
  if (fd >= 0) port = ntohs(v6.sin6_port);
  return fd;
}

struct Port {
  Descriptor claimed, held, datagrams;
  uid_t user = ::geteuid();                                                 // the user who owns the sockets
  std::map<std::pair<unsigned, Gid>, std::shared_ptr<Listener>> listeners;  // by interface index and address
  std::vector<int> listening;                                               // the sockets of the listeners
};
struct Ports {
  TableMutex mutex;
  std::map<std::uint16_t, Port> reserved UIW_GUARDED_BY(mutex);
};
Ports& ports() {
  static Immortal<Ports> instance;
  return *instance;
}

// Makes the sockets that reserve a port. 0, or an errno.
int reserve(Ports& all, std::uint16_t& port) UIW_REQUIRES(all.mutex) {
  Port made;
  const std::uint16_t wanted = port;
  if (wanted != 0) {
    const int claimed = claim(wanted);
    if (claimed < 0) return -claimed;
    made.claimed = Descriptor(claimed);
  }
  const int held = bind_port(port);
  if (held < 0) return -held;
  made.held = Descriptor(held);
  if (port < kFirstPort || port > kLastPort) return EADDRINUSE;
  if (settings().values.transport == Transport::roce) {
    const int datagrams = holding_datagram_socket(port);
    if (datagrams < 0 && datagrams != -EAFNOSUPPORT) return -datagrams;
    if (datagrams >= 0) made.datagrams = Descriptor(datagrams);
  }
  if (wanted == 0) {
    const int claimed = claim(port);
    if (claimed < 0) return -claimed;
    made.claimed = Descriptor(claimed);
  }
  all.reserved.insert_or_assign(port, std::move(made));
  return 0;
}

// Replaces the TCP sockets of a port after the process has changed its user, as services do, since callers check the
// user of the listener. Connections keep the port bound for the former user, so the old and the new sockets share the
// port by SO_REUSEADDR. The old socket is closed last, since otherwise anybody could bind the port in between.
int change_user(Port& held, std::uint16_t port) {
  held.listeners.clear();
  held.listening.clear();
  const int claimed = claim(port);
  if (claimed < 0) return -claimed;
  held.claimed = Descriptor(claimed);
  set_option(held.held.fd(), SOL_SOCKET, SO_REUSEADDR, true);
  std::uint16_t same = port;
  const int fd = bind_port(same, true);
  if (fd < 0) {
    set_option(held.held.fd(), SOL_SOCKET, SO_REUSEADDR, false);
    return -fd;
  }
  held.held = Descriptor(fd);
  held.user = ::geteuid();
  return 0;
}

}  // namespace

std::uint16_t reserve_port() {
  Ports& all = ports();
  const LockGuard lock(all.mutex);
  const auto [first, last] = settings().values.port_range;
  int error = EADDRINUSE;
  if (first == 0) {
    for (int tries = 0; tries < 64 && error == EADDRINUSE; ++tries) {
      std::uint16_t port = 0;
      error = reserve(all, port);
      if (error == 0) return port;
    }
  } else {
    // Starts at a random port, so that processes that start at the same time do not all try the same ones.
    const unsigned count = static_cast<unsigned>(last - first) + 1;
    const unsigned start = std::random_device()() % count;
    for (unsigned tries = 0; tries < count; ++tries) {
      auto port = static_cast<std::uint16_t>(first + (start + tries) % count);
      if (all.reserved.contains(port)) continue;
      error = reserve(all, port);
      if (error == 0) return port;
      if (error == EMFILE || error == ENFILE) break;
    }
  }
  errno = error;
  return 0;
}

bool reserve_again(std::uint16_t port) {
  Ports& all = ports();
  const LockGuard lock(all.mutex);
  return reserve(all, port) == 0;
}

int listen_on(std::uint16_t port, const DeviceInfo& device, const Gid& own,
              const std::shared_ptr<ListenObserver>& observer) {
  constexpr int kBacklog = 1024;
  Ports& all = ports();
  const LockGuard lock(all.mutex);
  const auto found = all.reserved.find(port);
  if (found == all.reserved.end()) return EINVAL;
  if (found->second.user != ::geteuid()) {
    if (const int error = change_user(found->second, port); error != 0) return error;
  }
  int result = EADDRNOTAVAIL;
  for (const Gid& gid : device.gids) {
    if (gid == kNoGid) continue;
    std::shared_ptr<Listener>& listener = found->second.listeners[{device.ifindex, gid}];
    int error = 0;
    if (listener == nullptr) {
      found->second.listening.reserve(found->second.listening.size() + 1);  // so that push_back() below cannot fail
      sockaddr_storage address = address_of(gid, device.ifindex, port);
      const int fd = holding_socket(address, true, true);
      error = fd < 0 ? -fd : listen(fd, kBacklog, observer, listener);
      if (listener != nullptr) found->second.listening.push_back(fd);
    }
    if (gid == own) result = error;
  }
  return result;
}

std::optional<uid_t> holder_of(std::uint16_t port) {
  Ports& all = ports();
  const LockGuard lock(all.mutex);
  const auto found = all.reserved.find(port);
  return found != all.reserved.end() ? std::optional(found->second.user) : std::nullopt;
}

int datagram_descriptor(std::uint16_t port) {
  Ports& all = ports();
  const LockGuard lock(all.mutex);
  const auto found = all.reserved.find(port);
  if (found == all.reserved.end() || !found->second.datagrams.is_open()) return -EAFNOSUPPORT;
  const int fd = DescriptorChange().take(::fcntl(found->second.datagrams.fd(), F_DUPFD_CLOEXEC, 0), "datagrams");
  return fd < 0 ? -errno : fd;
}

void release_port(std::uint16_t port) {
  Ports& all = ports();
  const LockGuard lock(all.mutex);
  all.reserved.erase(port);
}

void lock_ports() UIW_ACQUIRE(ports().mutex) { ports().mutex.lock(); }
void unlock_ports() UIW_RELEASE(ports().mutex) { ports().mutex.unlock(); }

void forget_ports() {
  Ports& all = ports();
  assume_held(all.mutex);
  // The descriptors are closed: otherwise the kernel would still accept calls after the parent has ended. The Listener
  // objects are left as they are: a thread of the parent may have been inside one during the fork.
  for (const auto& [number, port] : all.reserved) {
    for (const int fd : port.listening) close_descriptor(fd);
    close_descriptor(port.claimed.fd());
    close_descriptor(port.held.fd());
    if (port.datagrams.is_open()) close_descriptor(port.datagrams.fd());
  }
  new (&all.reserved) decltype(all.reserved);
  all.mutex.unlock();
}

}  // namespace uiw::provider
