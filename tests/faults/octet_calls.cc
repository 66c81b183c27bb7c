// SPDX-License-Identifier: MIT
// Functions of libc that move octets: they fail, or move fewer than they could. uiw calls some of them by syscall().
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <type_traits>

#include "tests/faults/epoll_registry.h"
#include "tests/faults/through.h"

namespace faults {
namespace {

constexpr int kMostWatched = 4096;
struct Watched {
  int set;
  epoll_event event;
};
std::mutex g_watched_mutex;
std::array<std::array<Watched, 2>, kMostWatched> g_watched{};  // set 0: none
constinit Next<int(int, int, int, epoll_event*)> g_epoll_ctl("epoll_ctl");
constinit Next<long(long, ...)> g_syscall("syscall");

int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return g_syscall.get()(SYS_getsockopt, fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool is_sent(Function function) {
  return function == Function::send || function == Function::sendto || function == Function::sendmsg ||
         function == Function::write;
}

// A few octets are sent as a whole into a socket that has sent little; a Unix socket passes on what was sent at a time
// as a whole, too.
unsigned traits_of(Function function, int fd, std::size_t size, bool at_once) {
  constexpr std::size_t kFew = 64, kPage = 4096;
  unsigned traits = kMovesOctets;
  if (socket_option(fd, SO_TYPE) == SOCK_STREAM) traits |= kStream;
  if (is_sent(function) && socket_option(fd, SO_DOMAIN) == AF_NETLINK) traits |= kTakenAtOnce;  // by the kernel
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) traits |= kFile;
  // What a peer has sent into a Unix socket is there when its call returns.
  pollfd waiting{fd, POLLIN, 0};
  const bool is_there = !is_sent(function) && socket_option(fd, SO_DOMAIN) == AF_UNIX && ::poll(&waiting, 1, 0) > 0;
  const bool cannot_block = at_once || (g_syscall.get()(SYS_fcntl, fd, F_GETFL, 0) & O_NONBLOCK) != 0;
  if (cannot_block && !is_there && !(is_sent(function) && size <= kFew)) traits |= kCannotBlock;
  const bool in_parts = (traits & kFile) != 0 || ((traits & kStream) != 0 && socket_option(fd, SO_DOMAIN) != AF_UNIX);
  if (in_parts && size > (is_sent(function) && (traits & kStream) != 0 ? kPage : 1)) traits |= kCanBeShort;
  return traits;
}

// TCP: the peer gets a reset, and the socket has ECONNRESET to report. Unix: both directions end.
void reset(int fd) {
  const sockaddr none{AF_UNSPEC, {}};
  if (socket_option(fd, SO_DOMAIN) == AF_UNIX || g_syscall.get()(SYS_connect, fd, &none, sizeof none) != 0)
    g_syscall.get()(SYS_shutdown, fd, SHUT_RDWR);
}

// Does the call as the verdict says. `call` takes the most octets that it may move, and returns as a system call does.
template <typename Call>
ssize_t move(Function function, int fd, std::size_t size, bool at_once, const void* from, Call call) {
  if (is_spared(fd)) return call(size);
  const int error = verdict(function, from, [=] { return traits_of(function, fd, size, at_once); });
  if (error == 0) return call(size);
  if (error == kShort) return call(size > 64 ? size / 2 : 1);
  if (error == EAGAIN) report_again(fd);
  if (error == ECONNRESET) {
    reset(fd);
    const ssize_t result = call(size);
    if (result != 0) return result;  // what had come before is read before the reset is
  }
  return failed<ssize_t>(error);
}

// The first octets of a message.
class Part {
 public:
  Part(const msghdr& whole, std::size_t size) : message_(whole) {
    std::size_t count = 0;
    for (; count < whole.msg_iovlen && count < pieces_.size() && size > 0; ++count) {
      pieces_[count] = whole.msg_iov[count];
      pieces_[count].iov_len = std::min(pieces_[count].iov_len, size);
      size -= pieces_[count].iov_len;
    }
    message_.msg_iov = pieces_.data();
    message_.msg_iovlen = count;
  }
  msghdr& message() { return message_; }

 private:
  msghdr message_;
  std::array<iovec, 1024> pieces_;
};
std::size_t size_of(const msghdr& message) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) size += message.msg_iov[i].iov_len;
  return size;
}

// The function of whole_calls.cc that a system call stands for, which uiw makes by its number. It makes fcntl(2) so
// only to duplicate descriptors.
std::optional<Function> whole_call(long number, long command) {
  switch (number) {
    case SYS_accept4: return Function::accept4;
    case SYS_epoll_create1: return Function::epoll_create1;
    case SYS_epoll_pwait: return Function::epoll_wait;
    case SYS_fcntl: return command == F_DUPFD_CLOEXEC ? std::optional(Function::fcntl) : std::nullopt;
    case SYS_openat: return Function::openat;
    case SYS_socket: return Function::socket;
    default: return std::nullopt;
  }
}

// With `next` that takes a message.
template <typename Message, typename Call>
ssize_t move_message(Function function, int fd, Message* message, int flags, const void* from, Call next) {
  const std::size_t whole = size_of(*message);
  return move(function, fd, whole, (flags & MSG_DONTWAIT) != 0, from, [&](std::size_t size) -> ssize_t {
    if (size == whole) return next(message);
    Part part(*message, size);
    const ssize_t result = next(&part.message());
    if constexpr (!std::is_const_v<Message>) {
      message->msg_namelen = part.message().msg_namelen;
      message->msg_controllen = part.message().msg_controllen;
      message->msg_flags = part.message().msg_flags;
    }
    return result;
  });
}

}  // namespace

void note_watched(int fd, int set, const epoll_event& event) {
  const std::lock_guard lock(g_watched_mutex);
  if (fd < 0 || fd >= kMostWatched) return;
  for (Watched& one : g_watched[fd]) {
    if (one.set != 0 && one.set != set) continue;
    one = {set, event};
    return;
  }
}
void forget_watched(int fd, int set) {
  if (fd < 0 || fd >= kMostWatched) return;
  const std::lock_guard lock(g_watched_mutex);
  for (Watched& one : g_watched[fd])
    if (one.set == set) one.set = 0;
}
void forget_watched(int fd) {
  if (fd < 0 || fd >= kMostWatched) return;
  for (const Watched& one : g_watched[fd])
    if (one.set != 0) forget_watched(fd, one.set);
}
void report_again(int fd) {
  const std::lock_guard lock(g_watched_mutex);
  if (fd < 0 || fd >= kMostWatched) return;
  for (Watched& one : g_watched[fd]) {
    if (one.set != 0 && (one.event.events & EPOLLONESHOT) == 0)
      g_epoll_ctl.get()(one.set, EPOLL_CTL_MOD, fd, &one.event);
  }
}

}  // namespace faults

using faults::Function;
using faults::move;
using faults::Next;

FAULTS_API ssize_t faults_read(int fd, void* into, std::size_t size) __asm__("read");
FAULTS_API ssize_t faults_read(int fd, void* into, std::size_t size) {
  static constinit Next<ssize_t(int, void*, std::size_t)> next("read");
  return move(Function::read, fd, size, false, CALLER, [=](std::size_t most) { return next.get()(fd, into, most); });
}
FAULTS_API ssize_t faults_write(int fd, const void* from, std::size_t size) __asm__("write");
FAULTS_API ssize_t faults_write(int fd, const void* from, std::size_t size) {
  static constinit Next<ssize_t(int, const void*, std::size_t)> next("write");
  return move(Function::write, fd, size, false, CALLER, [=](std::size_t most) { return next.get()(fd, from, most); });
}
FAULTS_API ssize_t faults_pread(int fd, void* into, std::size_t size, off_t at) __asm__("pread");
FAULTS_API ssize_t faults_pread(int fd, void* into, std::size_t size, off_t at) {
  static constinit Next<ssize_t(int, void*, std::size_t, off_t)> next("pread");
  return move(Function::pread, fd, size, false, CALLER,
              [=](std::size_t most) { return next.get()(fd, into, most, at); });
}
FAULTS_API ssize_t faults_preadv2(int fd, const iovec* into, int count, off_t at, int flags) __asm__("preadv2");
FAULTS_API ssize_t faults_preadv2(int fd, const iovec* into, int count, off_t at, int flags) {
  static constinit Next<ssize_t(int, const iovec*, int, off_t, int)> next("preadv2");
  return move(Function::preadv2, fd, 1, false, CALLER,
              [=](std::size_t) { return next.get()(fd, into, count, at, flags); });
}
FAULTS_API ssize_t faults_recv(int fd, void* into, std::size_t size, int flags) __asm__("recv");
FAULTS_API ssize_t faults_recv(int fd, void* into, std::size_t size, int flags) {
  static constinit Next<ssize_t(int, void*, std::size_t, int)> next("recv");
  return move(Function::recv, fd, size, (flags & MSG_DONTWAIT) != 0, CALLER,
              [=](std::size_t most) { return next.get()(fd, into, most, flags); });
}
FAULTS_API ssize_t faults_send(int fd, const void* from, std::size_t size, int flags) __asm__("send");
FAULTS_API ssize_t faults_send(int fd, const void* from, std::size_t size, int flags) {
  static constinit Next<ssize_t(int, const void*, std::size_t, int)> next("send");
  return move(Function::send, fd, size, (flags & MSG_DONTWAIT) != 0, CALLER,
              [=](std::size_t most) { return next.get()(fd, from, most, flags); });
}
FAULTS_API ssize_t faults_sendto(int fd, const void* from, std::size_t size, int flags, const sockaddr* to,
                                 socklen_t length) __asm__("sendto");
FAULTS_API ssize_t faults_sendto(int fd, const void* from, std::size_t size, int flags, const sockaddr* to,
                                 socklen_t length) {
  static constinit Next<ssize_t(int, const void*, std::size_t, int, const sockaddr*, socklen_t)> next("sendto");
  return move(Function::sendto, fd, size, (flags & MSG_DONTWAIT) != 0, CALLER,
              [=](std::size_t most) { return next.get()(fd, from, most, flags, to, length); });
}
FAULTS_API ssize_t faults_sendmsg(int fd, const msghdr* message, int flags) __asm__("sendmsg");
FAULTS_API ssize_t faults_sendmsg(int fd, const msghdr* message, int flags) {
  static constinit Next<ssize_t(int, const msghdr*, int)> next("sendmsg");
  return faults::move_message(Function::sendmsg, fd, message, flags, CALLER,
                              [=](const msghdr* one) { return next.get()(fd, one, flags); });
}
FAULTS_API ssize_t faults_recvmsg(int fd, msghdr* message, int flags) __asm__("recvmsg");
FAULTS_API ssize_t faults_recvmsg(int fd, msghdr* message, int flags) {
  static constinit Next<ssize_t(int, msghdr*, int)> next("recvmsg");
  return faults::move_message(Function::recvmsg, fd, message, flags, CALLER,
                              [=](msghdr* one) { return next.get()(fd, one, flags); });
}

FAULTS_API long faults_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");
FAULTS_API long faults_syscall(long number, long a, long b, long c, long d, long e, long f) {
  auto* const next = faults::g_syscall.get();
  const int fd = static_cast<int>(a);
  const auto size = static_cast<std::size_t>(c);
  const auto octets = [=](std::size_t most) { return next(number, a, b, most, d, e, f); };
  const auto message = [=](const msghdr* one) { return next(number, a, one, c, d, e, f); };
  switch (number) {
    case SYS_sendto: return move(Function::send, fd, size, (d & MSG_DONTWAIT) != 0, CALLER, octets);
    case SYS_recvfrom: return move(Function::recv, fd, size, (d & MSG_DONTWAIT) != 0, CALLER, octets);
    case SYS_write: return move(Function::write, fd, size, false, CALLER, octets);
    case SYS_sendmsg:
      return faults::move_message(Function::sendmsg, fd, reinterpret_cast<const msghdr*>(b), static_cast<int>(c),
                                  CALLER, message);
    case SYS_recvmsg:
      return faults::move_message(Function::recvmsg, fd, reinterpret_cast<msghdr*>(b), static_cast<int>(c), CALLER,
                                  message);
    case SYS_epoll_ctl:
      return faults::watch(fd, static_cast<int>(b), static_cast<int>(c), reinterpret_cast<epoll_event*>(d), CALLER,
                           [=] { return next(number, a, b, c, d, e, f); });
    default: break;
  }
  if (const auto whole = faults::whole_call(number, b)) {
    if (const int error = faults::verdict(*whole, CALLER); error != 0) return faults::failed<long>(error);
  }
  return next(number, a, b, c, d, e, f);
}
