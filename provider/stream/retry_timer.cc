// SPDX-License-Identifier: MIT
#include "provider/stream/retry_timer.h"

#include <algorithm>

namespace uiw::provider {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The limits are never shorter than this. An adapter works independently of its host, but this provider may be slower
// to connect and to answer on a busy host.
constexpr milliseconds kLeastRetryTime{4000}, kLeastRnrTime{1000};
constexpr milliseconds kInVain{500};           // for work whose peer is known to have closed the connection
constexpr milliseconds kLongestRnrTimer{655};  // the longest RNR timer: which one the peer has set is not known
constexpr unsigned kForEver = 7;               // rnr_retry

// InfiniBand: each try takes 4.096 us times two to the power of `timeout`.
milliseconds retry_time(const ibv_qp_attr& attributes) {
  if (attributes.timeout == 0) return milliseconds{0};
  const std::uint64_t once_us = (std::uint64_t{4096} << attributes.timeout) / 1000;
  const auto all = std::chrono::duration_cast<milliseconds>(microseconds(once_us * (attributes.retry_cnt + 1U)));
  return std::max(all, kLeastRetryTime);
}

milliseconds rnr_time(const ibv_qp_attr& attributes) {
  if (attributes.rnr_retry >= kForEver) return milliseconds{0};
  return std::max(kLeastRnrTime, kLongestRnrTimer * (attributes.rnr_retry + 1));
}

}  // namespace

RetryTimer::Limits RetryTimer::limits_of(const ibv_qp_attr& attributes, bool reliable) {
  return {retry_time(attributes), reliable ? rnr_time(attributes) : milliseconds{0}};
}

std::optional<rdmap::Status> RetryTimer::verdict(const Limits& limits, Peer peer, Clock::time_point now) const {
  const auto waited = now - since_;
  const bool unanswered = peer == Peer::none || peer == Peer::silent;
  if (peer == Peer::gone && waited > kInVain) return rdmap::Status::retry_exceeded;
  if (unanswered && asks_for_answers(limits, now)) return rdmap::Status::retry_exceeded;
  if (peer == Peer::has_no_receive && limits.rnr.count() > 0 && waited > limits.rnr) return rdmap::Status::rnr_exceeded;
  return std::nullopt;
}

}  // namespace uiw::provider
