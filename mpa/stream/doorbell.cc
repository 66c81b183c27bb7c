// SPDX-License-Identifier: MIT
#include "mpa/stream/doorbell.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "mpa/short_wait.h"

namespace uiw::mpa {

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

// These are no cancellation points, as the functions of libc would be. An octet takes most of a kilobyte of the
// kernel's memory, and sockets have room for some hundreds of them.
void Doorbell::drain() const {
  const int before = errno;
  std::array<char, 1024> dropped;
  ::syscall(SYS_recvfrom, watched_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT, nullptr, nullptr);
  errno = before;
}

// The flags, not the descriptor's status, say that nothing blocks: the peer cannot change them. Where the socket is
// full, the peer has been woken often enough. Where the system has no memory for the octet, it is tried again for some
// milliseconds, since a peer that is not woken stops.
void PeerDoorbell::wake() const {
  const int before = errno;
  const char octet = 1;
  unsigned tries = 0;
  for (ShortWait wait;; wait.turn()) {
    if (::syscall(SYS_sendto, socket_.get(), &octet, sizeof octet, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) >= 0) break;
    if (errno == EINTR) continue;
    if ((errno != ENOMEM && errno != ENOBUFS) || ++tries == kMostTries) break;
  }
  errno = before;
}

}  // namespace uiw::mpa
