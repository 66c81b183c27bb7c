// SPDX-License-Identifier: MIT
// The watchdog of a connection that closes or lingers: no progress for kPatience means that it is stuck. It is asked
// once a second. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

namespace uiw::provider {

class Movement {
 public:
  static constexpr std::chrono::seconds kLook{1};      // between two questions
  static constexpr std::chrono::seconds kPatience{5};  // without a change

  // Two counters that change as long as the end moves on.
  using Counters = std::pair<std::uint64_t, std::uint64_t>;

  void begin(const Counters& now) {
    seen_ = now;
    idle_looks_ = 0;
  }
  // A counter has changed since the question before, or less than kPatience ago.
  bool goes_on(const Counters& now) {
    idle_looks_ = now == std::exchange(seen_, now) ? idle_looks_ + 1 : 0;
    return idle_looks_ < kPatience / kLook;
  }

 private:
  Counters seen_{};
  unsigned idle_looks_ = 0;
};

}  // namespace uiw::provider
