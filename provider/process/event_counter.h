// SPDX-License-Identifier: MIT
// Writing to an eventfd: one that wakes a thread of uiw, or one whose count the program sees (kernel-abi/rdma_cm).
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace uiw::provider {

// Adds 1 to the eventfd, so that who waits for it wakes up. False if there is no such descriptor. May be called from
// the handler of a signal, which has to restore errno. It is no cancellation point, as write() of libc would be.
inline bool add_event(int fd) {
  const std::uint64_t one = 1;
  long written;
  do {
    written = ::syscall(SYS_write, fd, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  return written == sizeof one || errno == EAGAIN;  // EAGAIN: the counter is full, and thus not zero
}

}  // namespace uiw::provider
