// SPDX-License-Identifier: MIT
// The clocks that give completions their timestamps.
#pragma once

#include <time.h>

#include <cstdint>

namespace uiw::provider {

// The device's clock ticks once a nanosecond (hca_core_clock, in kHz) and never wraps.
constexpr std::uint64_t kRawClockKhz = 1'000'000;
constexpr std::uint64_t kRawClockMask = ~std::uint64_t{0};

namespace detail {
inline std::uint64_t nanoseconds(clockid_t clock) {
  timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}
}  // namespace detail

// CLOCK_MONOTONIC: it is read without a system call, and programs compare timestamps with it.
inline std::uint64_t raw_clock() { return detail::nanoseconds(CLOCK_MONOTONIC); }
inline std::uint64_t wall_clock_ns() { return detail::nanoseconds(CLOCK_REALTIME); }

}  // namespace uiw::provider
