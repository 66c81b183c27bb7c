// SPDX-License-Identifier: MIT
// Two rules for a thread that waits for events: BusyWait says whether it checks again and again for a while before it
// sleeps, YieldPauses whether it yields its processor between two checks. Both only decide. Each object belongs to one
// thread at a time; times are monotonic nanoseconds (clock.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace uiw::provider {

// Whether a busy thread yields between two checks, so that the thread for which it may be waiting can run. If a yield
// takes long, another thread needs the processor, and each further yield would cost a time slice: then the busy thread
// stops yielding, or stops checking, for a pause.
class YieldPauses {
 public:
  // A check and a yield together take longer than this only if another thread has used up its whole time slice
  // meanwhile. Threads that run only for a moment cause no pause.
  static constexpr std::uint64_t kDisplacedNs = 500'000;
  // The first pause is short, since the yield may have taken long for another reason: a hypervisor, too, takes a
  // processor away from a guest for a millisecond.
  static constexpr std::uint64_t kFirstPauseNs = 10'000'000, kLongestPauseNs = 4096 * kFirstPauseNs;

  bool over(std::uint64_t now) const { return now >= resumes_; }
  // The thread yielded at `before` and runs again at `now`. Returns true if another thread took the processor
  // meanwhile: then a pause begins, which is twice as long as the last one if that ended not long ago.
  bool yielded(std::uint64_t before, std::uint64_t now) {
    if (now - before <= kDisplacedNs) return false;
    pause_ = now < remembers_ ? std::min(2 * pause_, kLongestPauseNs) : kFirstPauseNs;
    resumes_ = now + pause_;
    remembers_ = resumes_ + 4 * pause_;
    return true;
  }
  // Ends the pause. Called when the thread has checked in vain for long without yielding.
  void end() { resumes_ = 0; }

 private:
  std::uint64_t pause_ = kFirstPauseNs;
  std::uint64_t resumes_ = 0;    // end of the pause
  std::uint64_t remembers_ = 0;  // another thread that takes the processor before this time makes the next pause longer
};

// Whether a thread goes on checking for events instead of sleeping. It takes 5 to 50 microseconds to wake a thread, and
// a peer that waits for an answer of this thread would wait for that time in each round trip. A thread waits busily
// only if its last wait was short, so that a thread with little to do sleeps. During a pause of YieldPauses the thread
// does not wait busily: the scheduler runs a thread sooner if it has slept.
class BusyWait {
 public:
  static constexpr std::uint64_t kLongestNs = 100'000;

  // The thread has nothing to do as of `now`. True: it is to check again before it sleeps.
  bool begin(std::uint64_t now) {
    began_ = looked_ = now;
    return short_ && pauses_.over(now);
  }
  // The thread has checked in vain and yielded. True: it is to check again.
  bool again(std::uint64_t now) {
    if (pauses_.yielded(std::exchange(looked_, now), now)) return false;
    return now - began_ < kLongestNs;
  }
  // An event has arrived at this time, whether the thread slept or not.
  void end(std::uint64_t now) { short_ = now - began_ < kLongestNs; }

 private:
  bool short_ = false;  // the last wait was short
  std::uint64_t began_ = 0, looked_ = 0;
  YieldPauses pauses_;
};

}  // namespace uiw::provider
