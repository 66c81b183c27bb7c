// SPDX-License-Identifier: MIT
// The rule by which the thread "uiw-progress" calls another thread to help with the events of a context: the first
// thread has not slept for a while, and there are queue pairs for which the other one could send and receive meanwhile.
//
// This class only decides. Only the thread "uiw-progress" uses it; times are monotonic nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uiw::provider {

class HelpNeeded {
 public:
  // A thread that gets events sooner than this after it has asked for them has not slept.
  static constexpr std::uint64_t kAwakeNs = 5'000;
  // After this time without sleep the thread calls another one, and one more after each further time of this length.
  static constexpr std::uint64_t kBusyNs = 200'000;

  // The thread has asked for events at `asked`, and has got `events` of them at `answered`. `helping`: how many threads
  // help already; `helped`: how many turns these threads have had so far. True: one more is to be called.
  bool asked(std::uint64_t asked, std::uint64_t answered, std::size_t events, unsigned helping, std::uint64_t helped) {
    if (answered - asked > kAwakeNs) {
      since_ = 0;
      return false;
    }
    if (since_ == 0) {
      since_ = asked;
      others_ = false;
      helped_ = helped;
    }
    // Helping threads take events of other queue pairs, so the calling thread may not see these events.
    others_ = others_ || events > 1 || (helping > 0 && helped != helped_);
    if (!others_ || answered - since_ < kBusyNs) return false;
    since_ = 0;
    return true;
  }

 private:
  std::uint64_t since_ = 0;  // start of the time without sleep; 0: the thread has slept, or has just called another
  bool others_ = false;      // events of more than one queue pair have been seen since `since_`
  std::uint64_t helped_ = 0;
};

}  // namespace uiw::provider
