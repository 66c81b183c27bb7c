// SPDX-License-Identifier: MIT
// Whether a thread looks for events again and again for a while before it sleeps (BusyWait), and whether it yields its
// processor between two looks (YieldPauses). Both only decide. Each belongs to one thread at a time; times are
// monotonic nanoseconds (clock.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace uiw::provider {

// A thread that yields lets one run that it may wait for. Where yielding takes long, another thread needs the
// processor: then the one that looks ceases to yield for some time, or to look, since it would lose a time slice each
// time.
class YieldPauses {
 public:
  // A look and a yield take longer than this only if another thread has used up its time slice meanwhile. Threads that
  // run for a moment do no harm, and none is done to them.
  static constexpr std::uint64_t kDisplacedNs = 500'000;
  // The first pause is short, since a host also takes processors away from its virtual machines, for a millisecond.
  static constexpr std::uint64_t kFirstPauseNs = 10'000'000, kLongestPauseNs = 4096 * kFirstPauseNs;

  bool over(std::uint64_t now) const { return now >= resumes_; }
  // The thread has yielded between these two times. True: another one took the processor, and there is a pause. Pauses
  // become longer where that goes on.
  bool yielded(std::uint64_t before, std::uint64_t now) {
    if (now - before <= kDisplacedNs) return false;
    pause_ = now < remembers_ ? std::min(2 * pause_, kLongestPauseNs) : kFirstPauseNs;
    resumes_ = now + pause_;
    remembers_ = resumes_ + 4 * pause_;
    return true;
  }
  // It has looked for long without yielding, which was in vain, too.
  void end() { resumes_ = 0; }

 private:
  std::uint64_t pause_ = kFirstPauseNs;
  std::uint64_t resumes_ = 0;    // not before this time
  std::uint64_t remembers_ = 0;  // a displacement before this time makes the next pause longer
};

// To wake a thread takes 5 to 50 microseconds; a target that does nothing itself would need that for each turn of an
// initiator that waits for it. A thread looks busily only where its last wait was short, so that one with little to do
// sleeps; and not in a pause, since the scheduler runs a thread sooner that has slept.
class BusyWait {
 public:
  static constexpr std::uint64_t kLongestNs = 100'000;

  // The thread has nothing to do at this time. Whether it is to look again before it sleeps.
  bool begin(std::uint64_t now) {
    began_ = looked_ = now;
    return short_ && pauses_.over(now);
  }
  // It has looked in vain and has yielded. Whether it is to look again.
  bool again(std::uint64_t now) {
    if (pauses_.yielded(std::exchange(looked_, now), now)) return false;
    return now - began_ < kLongestNs;
  }
  // An event has come at this time, with or without sleep.
  void end(std::uint64_t now) { short_ = now - began_ < kLongestNs; }

 private:
  bool short_ = false;  // the last wait
  std::uint64_t began_ = 0, looked_ = 0;
  YieldPauses pauses_;
};

}  // namespace uiw::provider
