// SPDX-License-Identifier: MIT
// Whether one thread is too few for the events of a context: the rule by which "uiw-progress" calls another thread:
// if it has not slept for a while, and there are queue pairs that another thread could drive meanwhile.
//
// This class only decides. Only "uiw-progress" uses it; times are monotonic nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uiw::provider {

class HelpNeeded {
 public:
  // A thread that gets events sooner than this after it has asked for them has not slept.
  static constexpr std::uint64_t kAwakeNs = 5'000;
  // A thread calls another one after this time without sleep, and one more whenever it has not slept for it again.
  static constexpr std::uint64_t kBusyNs = 200'000;

  // The thread has asked for events at `asked`, and has got `events` of them at `answered`. `helping`: how many threads
  // help already; `helped`: how many turns they have driven so far. True: one more is to be called.
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
    // Helping threads take the events of other queue pairs, so that this one does not see them.
    others_ = others_ || events > 1 || (helping > 0 && helped != helped_);
    if (!others_ || answered - since_ < kBusyNs) return false;
    since_ = 0;
    return true;
  }

 private:
  std::uint64_t since_ = 0;  // the thread has not slept since; 0: it has slept
  bool others_ = false;      // events of several queue pairs have arrived since then
  std::uint64_t helped_ = 0;
};

}  // namespace uiw::provider
