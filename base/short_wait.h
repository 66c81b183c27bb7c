// SPDX-License-Identifier: MIT
// Backoff for a thread that polls until another thread finishes something short, or until the system has memory. The
// first calls of turn() return at once, the next ones yield, and all later ones sleep. Yielding alone is not enough: a
// thread with a real-time policy would never let a thread of lower priority run, which may be the one it waits for.
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

  // To be called between two polls. Keeps errno and is no cancellation point, unlike libc's nanosleep().
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
