// SPDX-License-Identifier: MIT
// A watchdog for connections that close or linger: a connection without progress for kPatience is stuck. goes_on() is
// called once a second. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

namespace uiw::provider {

class Movement {
 public:
  static constexpr std::chrono::seconds kLook{1};      // the time between two calls of goes_on()
  static constexpr std::chrono::seconds kPatience{5};  // how long a connection may be without progress

  // Two counters that change as long as there is progress.
  using Counters = std::pair<std::uint64_t, std::uint64_t>;

  void begin(const Counters& now) {
    seen_ = now;
    idle_looks_ = 0;
  }
  // Whether a counter has changed since the last call, or less than kPatience ago.
  bool goes_on(const Counters& now) {
    idle_looks_ = now == std::exchange(seen_, now) ? idle_looks_ + 1 : 0;
    return idle_looks_ < kPatience / kLook;
  }

 private:
  Counters seen_{};
  unsigned idle_looks_ = 0;
};

}  // namespace uiw::provider
