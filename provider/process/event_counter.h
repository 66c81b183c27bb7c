// SPDX-License-Identifier: MIT
// The eventfd that wakes a thread of uiw.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace uiw::provider {

// Whoever waits for the eventfd wakes up. False if there is no such descriptor. Safe in the handler of a signal;
// changes errno; no cancellation point, as write() of libc would be.
inline bool add_event(int fd) {
  const std::uint64_t one = 1;
  long written;
  do {
    written = ::syscall(SYS_write, fd, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  return written == sizeof one || errno == EAGAIN;  // EAGAIN: the counter is full, and thus not zero
}

}  // namespace uiw::provider
