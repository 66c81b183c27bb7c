// SPDX-License-Identifier: MIT
// Writing to an eventfd: one that wakes a thread of uiw, or one whose count the program sees (kernel-abi/rdma_cm); and
// asking a descriptor what it has now.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace uiw {

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

// What poll(2) says of the descriptor now: of `events`, and errors. poll() of libc would be a cancellation point, and
// is a function of uiw's preload library, which may need locks of the caller.
inline short events_of(int fd, short events) {
  pollfd asked{fd, events, 0};
  const timespec now{};
  return ::syscall(SYS_ppoll, &asked, 1, &now, nullptr, 0) == 1 ? asked.revents : short{0};
}

}  // namespace uiw
