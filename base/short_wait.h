// SPDX-License-Identifier: MIT
// How a thread waits for what another thread is about to finish, or for memory of the system, where nothing wakes it.
// It looks again at once at first, then lets other threads run between two looks, and then sleeps between them. Without
// the sleep a thread of a real-time policy would keep the processor from the thread that it waits for: sched_yield()
// leaves it to threads of the same priority alone.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace uiw {

class ShortWait {
 public:
  static constexpr unsigned kLooks = 100, kYields = 100;

  // What the thread does before it looks again. Keeps errno, and is no cancellation point, as nanosleep() of libc is.
  void turn() {
    if (turns_ < kLooks + kYields) {
      if (++turns_ > kLooks) sched_yield();
      return;
    }
    const int kept = errno;
    constexpr timespec kPause = {0, 50'000};
    ::syscall(SYS_nanosleep, &kPause, nullptr);
    errno = kept;
  }

 private:
  unsigned turns_ = 0;
};

}  // namespace uiw
