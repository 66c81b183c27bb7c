// SPDX-License-Identifier: MIT
#include "base/mutex.h"

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
    state_.wait(awaited, std::memory_order_relaxed);
  }
  errno = kept;
}

void Mutex::wake_one() {
  const int kept = errno;
  state_.notify_one();
  errno = kept;
}

}  // namespace uiw
