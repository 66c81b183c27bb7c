// SPDX-License-Identifier: MIT
#include "base/mutex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace uiw {

// Takes the mutex if it is free, or if its state has an earlier fork generation: the holder was then a thread of the
// parent. `found` is the state that the caller has read last. False if another thread of this process holds the mutex.
bool Mutex::try_slowly(unsigned found) {
  while ((found & ~(kTaken | kAwaited)) != free() || (found & kTaken) == 0) {
    if (state_.compare_exchange_weak(found, free() | kTaken, std::memory_order_acquire)) return true;
  }
  return false;
}

// Keeps errno, since callers often return the error that errno contains.
//
// This thread cannot know whether other threads wait too, so it marks the mutex as awaited when it takes the mutex.
void Mutex::lock_slowly() {
  if (try_slowly(state_.load(std::memory_order_relaxed))) return;
  const unsigned awaited = free() | kTaken | kAwaited;
  const int kept = errno;
  while ((state_.exchange(awaited, std::memory_order_acquire) & kTaken) != 0) {
    sleep(awaited);
  }
  errno = kept;
}

// Waits until wake_one(), unless the state is no longer `awaited`. A holder in the middle of unlock() may have missed
// that this thread has set kAwaited, and does not wake it. So this thread yields a few times before it sleeps: by then
// the holder's free state has become visible, unless the holder has lost its processor. In that case the sleep ends
// after kLongestSleep, which is about as long as such a holder is without its processor.
void Mutex::sleep(unsigned awaited) {
  constexpr int kYields = 4;
  for (int i = 0; i < kYields; ++i) {
    sched_yield();
    if (state_.load(std::memory_order_relaxed) != awaited) return;
  }
  // The system call takes two `long`, whatever the size of time_t is.
  constexpr struct { long seconds, nanoseconds; } kLongestSleep{0, 1'000'000};
  syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, awaited, &kLongestSleep, nullptr, 0);
}

void Mutex::wake_one() {
  const int kept = errno;
  syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = kept;
}

}  // namespace uiw
