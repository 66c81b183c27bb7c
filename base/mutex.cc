// SPDX-License-Identifier: MIT
#include "base/mutex.h"

#include <cerrno>

namespace uiw {

// Tries to take the mutex, of which the caller has read the state `found`; this is not the state of a free mutex of
// this fork generation. True if the mutex has become free meanwhile, or if its state is of an earlier generation.
bool Mutex::try_slowly(unsigned found) {
  while ((found & ~(kTaken | kAwaited)) != free() || (found & kTaken) == 0) {
    if (state_.compare_exchange_weak(found, free() | kTaken, std::memory_order_acquire)) return true;
  }
  return false;
}

// Keeps errno, in which callers often have an error to return.
//
// A thread that has waited cannot know whether others still wait, so it marks the mutex as awaited.
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
