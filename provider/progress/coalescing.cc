// SPDX-License-Identifier: MIT
#include "provider/progress/coalescing.h"

#include <algorithm>

namespace uiw::provider {

namespace {
constexpr unsigned kMostCounted = 1U << 20;
}  // namespace

bool Coalescing::posted(unsigned requests, std::uint64_t polled) {
  polled_since_ = polled != polled_;
  if (polled_since_) {
    polled_ = polled;
    run_before_ = run_;
    run_ = 0;
  }
  run_ = std::min(run_ + requests, kMostCounted);
  requests_ += requests;
  return in_burst();
}

bool Coalescing::waits_too(std::size_t most_octets) {
  if (!waiting() || polled_since_ || untimed_ + 1 >= kClockStride) return false;
  if (requests_ >= kMost || octets_ >= most_octets) return false;
  ++untimed_;
  return true;
}

bool Coalescing::may_wait(std::uint64_t now, std::size_t most_octets, std::uint64_t active) {
  const std::uint64_t allowed = polled_since_ ? kPollNs : (untimed_ + 1) * kPauseNs;
  const bool paused = now > std::max(last_post_, active) + allowed;
  last_post_ = now;
  untimed_ = 0;
  quick_ = paused ? 0 : std::min(quick_ + 1, kBurst);
  if (quick_ < kBurst || now < not_before_) return false;
  if (requests_ >= kMost || octets_ >= most_octets || overdue(now)) return false;
  if (!waiting()) since_ = now;
  return true;
}

void Coalescing::sent() {
  if (waiting() && ++successes_ >= kForgiven) {
    successes_ = 0;
    penalty_ = std::max(penalty_ / 2, kPenaltyNs);
  }
  requests_ = 0;
  octets_ = 0;
  since_ = 0;
}

bool Coalescing::take_overdue(std::uint64_t now, bool busy) {
  if (!overdue(now)) return false;
  since_ = 0;  // so that sent() does not count this send as a success
  if (busy) return true;
  not_before_ = now + penalty_;
  penalty_ = std::min(2 * penalty_, kMostPenaltyNs);
  successes_ = 0;
  return true;
}

}  // namespace uiw::provider
