// SPDX-License-Identifier: MIT
// When queue pairs give back memory that they do not use: once a second, as long as there may be such memory. After the
// last event the thread "uiw-progress" wakes about twice for that, and then no more.
//
// This class only decides. Only the thread "uiw-progress" uses it; times are monotonic nanoseconds.
#pragma once

#include <cstdint>

namespace uiw::provider {

class IdleMemory {
 public:
  static constexpr std::uint64_t kPeriodNs = 1'000'000'000;

  // For epoll_wait(): how long the thread sleeps at most, in milliseconds; -1: until an event comes.
  int patience() const { return at_ == 0 ? -1 : static_cast<int>(kPeriodNs / 1'000'000); }
  // Called after each event, and when patience() is over. True: the caller makes each queue pair give back what it can
  // now, and then passes to looked() whether there may be more.
  bool due(std::uint64_t now) {
    if (at_ == 0) at_ = now + kPeriodNs;
    return now >= at_;
  }
  void looked(std::uint64_t now, bool more) { at_ = more ? now + kPeriodNs : 0; }

 private:
  std::uint64_t at_ = 0;  // when to look next; 0: not before the next event
};

}  // namespace uiw::provider
