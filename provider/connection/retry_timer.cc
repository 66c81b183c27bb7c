// SPDX-License-Identifier: MIT
#include "provider/connection/retry_timer.h"

#include <algorithm>
#include <iterator>

namespace uiw::provider {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The InfiniBand specification allows an adapter four times the timeout that the program has set. kToConnect is added,
// since this provider, unlike an adapter, may be slow on a busy host. Both together extend a timeout to at most
// kMostGranted; a timeout that is longer by itself is not extended.
constexpr unsigned kTolerance = 4;
constexpr milliseconds kToConnect{500}, kMostGranted{4000};
// The shortest time that the peer gets to post a receive: a busy host may take this long to answer, or to check its
// timers.
constexpr milliseconds kLeastRnrTime{100};
constexpr milliseconds kInVain{500};  // how long the oldest work waits if the peer has closed the connection
constexpr unsigned kForEver = 7;      // as rnr_retry: work waits for a receive without a time limit
// The 32 values of min_rnr_timer, in microseconds.
constexpr unsigned kRnrTimers[] = {655'360, 10,     20,     30,      40,      60,      80,      120,
                                   160,     240,    320,    480,     640,     960,     1280,    1920,
                                   2560,    3840,   5120,   7680,    10'240,  15'360,  20'480,  30'720,
                                   40'960,  61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};

// InfiniBand: each try takes 4.096 us times two to the power of `timeout`.
milliseconds retry_time(const ibv_qp_attr& attributes) {
  if (attributes.timeout == 0) return milliseconds{0};
  const std::uint64_t once_us = (std::uint64_t{4096} << attributes.timeout) / 1000;
  const auto all = std::chrono::duration_cast<milliseconds>(microseconds(once_us * (attributes.retry_cnt + 1U)));
  return std::max(all, std::min(kTolerance * all + kToConnect, kMostGranted));
}

milliseconds rnr_time(const ibv_qp_attr& attributes) {
  const auto all = RetryTimer::adapters_rnr_time(attributes);
  return all ? std::max(kLeastRnrTime, std::chrono::ceil<milliseconds>(*all)) : milliseconds{0};
}

}  // namespace

// On InfiniBand rnr_retry of the one end and min_rnr_timer of the other count. One end does not know the other's, so
// its own are used instead: programs usually set the same values at both ends.
std::optional<microseconds> RetryTimer::adapters_rnr_time(const ibv_qp_attr& attributes) {
  if (attributes.rnr_retry >= kForEver) return std::nullopt;
  return microseconds(kRnrTimers[attributes.min_rnr_timer % std::size(kRnrTimers)] * (attributes.rnr_retry + 1U));
}

RetryTimer::Limits RetryTimer::limits_of(const ibv_qp_attr& attributes, bool reliable) {
  return {retry_time(attributes), reliable ? rnr_time(attributes) : milliseconds{0}};
}

std::optional<rdmap::Status> RetryTimer::verdict(const Limits& limits, Peer peer, Clock::time_point now) {
  if (peer != Peer::has_no_receive) {
    without_receive_.reset();
  } else if (!without_receive_) {
    without_receive_ = now;
  }
  const auto waited = now - since_;
  const bool unanswered = peer == Peer::none || peer == Peer::silent;
  if (peer == Peer::gone && waited > kInVain) return rdmap::Status::retry_exceeded;
  if (unanswered && asks_for_answers(limits, now)) return rdmap::Status::retry_exceeded;
  if (without_receive_ && limits.rnr.count() > 0 && now - *without_receive_ > limits.rnr) {
    return rdmap::Status::rnr_exceeded;
  }
  return std::nullopt;
}

}  // namespace uiw::provider
