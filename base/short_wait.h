// SPDX-License-Identifier: MIT
// Backoff of a thread that waits, with nothing to wake it, for what another thread is about to finish, or for the
// system to have memory. The first turns spin, the next ones yield, and from then on each one sleeps: a thread of a
// real-time policy that only yielded would keep the processor from a thread of lower priority that it waits for.
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

  // To be called between two looks. Keeps errno and is no cancellation point, unlike libc's nanosleep().
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
