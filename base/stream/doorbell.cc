// SPDX-License-Identifier: MIT
#include "base/stream/doorbell.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/short_wait.h"

namespace uiw {

Doorbell Doorbell::create() {
  constexpr char kPurpose[] = "shared memory";
  Doorbell made;
  int ends[2];
  DescriptorChange change;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return made;
  made.watched_.reset(change.take(ends[0], kPurpose));
  made.passed_on_.reset(change.take(ends[1], kPurpose));
  return made.watched_ && made.passed_on_ ? std::move(made) : Doorbell();
}

namespace {

// How often send_octet() tries while the system has no memory for the octet. The tries take 5 ms or more (ShortWait).
constexpr unsigned kMostTries = 300;

// False if `socket` is no socket, or was shut down, or its other end was closed. MSG_DONTWAIT keeps the call from
// blocking, since a peer could clear O_NONBLOCK of the socket. A full socket buffer is no failure: its unread octets
// wake the process at the other end, too. If the system has no memory for the octet, tries again for some milliseconds,
// since otherwise that process would sleep on; then gives up and returns true.
bool send_octet(int socket) {
  const int before = errno;
  const char octet = 1;
  unsigned tries = 0;
  bool good = false;
  for (ShortWait wait;; wait.turn()) {
    good = ::syscall(SYS_sendto, socket, &octet, sizeof octet, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) >= 0;
    if (good) break;
    if (errno == EINTR) continue;
    const bool no_memory = errno == ENOMEM || errno == ENOBUFS;
    good = no_memory || errno == EAGAIN;
    if (!no_memory || ++tries == kMostTries) break;
  }
  errno = before;
  return good;
}

}  // namespace

// Calls the kernel directly, since libc's recv() is a cancellation point. Each unread octet takes most of a kilobyte of
// the kernel's memory, so a socket buffer has room for some hundreds of octets, and one call reads all of them.
bool Doorbell::drain() const {
  const int before = errno;
  std::array<char, 1024> dropped;
  const long n =
      ::syscall(SYS_recvfrom, watched_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT, nullptr, nullptr);
  errno = before;
  return n != 0;
}

void Doorbell::ring() const { send_octet(passed_on_.get()); }

bool PeerDoorbell::wake() const { return send_octet(socket_.get()); }

}  // namespace uiw
