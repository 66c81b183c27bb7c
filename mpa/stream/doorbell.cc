// SPDX-License-Identifier: MIT
#include "mpa/stream/doorbell.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "mpa/descriptor.h"
#include "mpa/short_wait.h"

namespace uiw::mpa {

Doorbell::~Doorbell() {
  if (fd_ >= 0) close_descriptor(fd_);
}

// These are no cancellation points, as the functions of libc would be. The flags, not the descriptor's status, say that
// nothing blocks: the peer cannot change them. Where the system has no memory for the octet, it is tried again for some
// milliseconds, since a peer that is not woken stops.
void Doorbell::ring() const {
  const int before = errno;
  const char octet = 1;
  unsigned tries = 0;
  for (ShortWait wait;; wait.turn()) {
    if (::syscall(SYS_sendto, fd_, &octet, sizeof octet, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) >= 0) break;
    if (errno == EINTR) continue;
    if ((errno != ENOMEM && errno != ENOBUFS) || ++tries == kMostTries) break;
  }
  errno = before;
}

void Doorbell::note_sleep() {
  if ((sleeps_.fetch_add(1, std::memory_order_relaxed) + 1) % kDrainEvery != 0) return;
  const int before = errno;
  std::array<char, 1024> dropped;
  ::syscall(SYS_recvfrom, fd_, dropped.data(), dropped.size(), MSG_DONTWAIT, nullptr, nullptr);
  errno = before;
}

}  // namespace uiw::mpa
