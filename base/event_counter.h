// SPDX-License-Identifier: MIT
// Adds to an eventfd, and polls a descriptor without waiting. Neither is a cancellation point.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace uiw {

// Adds 1 to the eventfd, which wakes a thread that waits for it. False if the write fails, for example if `fd` is not
// open. May be called in a signal handler that restores errno. Calls the kernel directly, since libc's write() is a
// cancellation point.
inline bool add_event(int fd) {
  const std::uint64_t one = 1;
  long written;
  do {
    written = ::syscall(SYS_write, fd, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  return written == sizeof one || errno == EAGAIN;  // EAGAIN: the counter is full, so it wakes the thread already
}

// Polls one descriptor without waiting. Returns the bits that poll() would set in `revents`: those of `events`, and of
// POLLERR, POLLHUP and POLLNVAL, that hold now; 0 if none holds. Calls the kernel directly: libc's poll() is a
// cancellation point, and the poll() of libuiw-preload.so may need locks that the caller holds.
inline short events_of(int fd, short events) {
  pollfd asked{fd, events, 0};
  const timespec now{};
  return ::syscall(SYS_ppoll, &asked, 1, &now, nullptr, 0) == 1 ? asked.revents : short{0};
}

}  // namespace uiw
