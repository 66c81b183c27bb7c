// SPDX-License-Identifier: MIT
#include "provider/connection/retry_timer.h"

#include <catch2/catch.hpp>

using uiw::provider::RetryTimer;
using uiw::rdmap::Status;
using namespace std::chrono_literals;
using Peer = RetryTimer::Peer;

namespace {

ibv_qp_attr attributes(unsigned timeout, unsigned retry_cnt, unsigned rnr_retry, unsigned min_rnr_timer = 0) {
  ibv_qp_attr made{};
  made.min_rnr_timer = static_cast<std::uint8_t>(min_rnr_timer);
  made.timeout = static_cast<std::uint8_t>(timeout);
  made.retry_cnt = static_cast<std::uint8_t>(retry_cnt);
  made.rnr_retry = static_cast<std::uint8_t>(rnr_retry);
  return made;
}

}  // namespace

TEST_CASE("retry timer: limits by the attributes of ibv_modify_qp", "[retry]") {
  CHECK(RetryTimer::limits_of(attributes(0, 7, 7), true).retry == 0ms);  // for ever
  // Four times as long is allowed, and a while to connect on a busy host, up to 4 s.
  CHECK(RetryTimer::limits_of(attributes(1, 0, 0), true).retry == 500ms);
  CHECK(RetryTimer::limits_of(attributes(10, 1, 0), true).retry == 532ms);   // 2 times 4.2 ms
  CHECK(RetryTimer::limits_of(attributes(14, 7, 0), true).retry == 2644ms);  // 8 times 67 ms
  CHECK(RetryTimer::limits_of(attributes(16, 7, 0), true).retry == 4000ms);  // 8 times 268 ms
  // 4.096 us * 2^20 = 4.295 s for each of 8 tries.
  CHECK(RetryTimer::limits_of(attributes(20, 7, 7), true).retry == 34359ms);
  CHECK(RetryTimer::limits_of(attributes(31, 0, 7), true).retry == 8796093ms);
  CHECK(RetryTimer::limits_of(attributes(14, 7, 7), true).rnr == 0ms);
  CHECK(RetryTimer::limits_of(attributes(14, 7, 0), true).rnr == 656ms);  // timer 0 is 655.36 ms
  CHECK(RetryTimer::limits_of(attributes(14, 7, 6), true).rnr == 4588ms);
  CHECK(RetryTimer::limits_of(attributes(14, 7, 6, 31), true).rnr == 3441ms);  // 491.52 ms
  CHECK(RetryTimer::limits_of(attributes(14, 7, 1, 26), true).rnr == 164ms);   // 81.92 ms
  CHECK(RetryTimer::limits_of(attributes(14, 7, 1, 2), true).rnr == 100ms);    // 0.02 ms
  // An unreliable connection knows no receiver that is not ready.
  CHECK(RetryTimer::limits_of(attributes(14, 7, 0), false).rnr == 0ms);
}

TEST_CASE("retry timer: work fails by what its peer does, and after how long", "[retry]") {
  RetryTimer timer;
  const RetryTimer::Clock::time_point start{};
  timer.work_at(7, start);
  const RetryTimer::Limits limits{4000ms, 1000ms}, for_ever{0ms, 0ms};
  const auto [peer, waited, expected] = GENERATE(table<Peer, std::chrono::milliseconds, std::optional<Status>>({
      {Peer::none, 4000ms, std::nullopt},
      {Peer::none, 4001ms, Status::retry_exceeded},
      {Peer::silent, 4000ms, std::nullopt},
      {Peer::silent, 4001ms, Status::retry_exceeded},
      {Peer::answers, 1h, std::nullopt},
      {Peer::has_no_receive, 1000ms, std::nullopt},
      {Peer::has_no_receive, 1001ms, Status::rnr_exceeded},
      {Peer::gone, 500ms, std::nullopt},
      {Peer::gone, 501ms, Status::retry_exceeded},
  }));
  INFO("peer " << static_cast<int>(peer) << " after " << waited.count() << " ms");
  CHECK_FALSE(timer.verdict(limits, peer, start));
  CHECK(timer.verdict(limits, peer, start + waited) == expected);
  // Work for a peer that has left is not waited for, whatever the program allows.
  const auto unlimited = peer == Peer::gone ? expected : std::nullopt;
  CHECK(timer.verdict(for_ever, peer, start + waited) == unlimited);
}

TEST_CASE("retry timer: a receive is waited for from when the peer is found without one", "[retry]") {
  RetryTimer timer;
  const RetryTimer::Clock::time_point start{};
  const RetryTimer::Limits limits{4000ms, 1000ms};
  timer.work_at(0, start);
  CHECK_FALSE(timer.verdict(limits, Peer::answers, start + 3s));  // the message is long
  CHECK_FALSE(timer.verdict(limits, Peer::has_no_receive, start + 3100ms));
  CHECK_FALSE(timer.verdict(limits, Peer::has_no_receive, start + 4100ms));
  CHECK_FALSE(timer.verdict(limits, Peer::answers, start + 4200ms));  // it has posted one
  CHECK_FALSE(timer.verdict(limits, Peer::has_no_receive, start + 4300ms));
  CHECK(timer.verdict(limits, Peer::has_no_receive, start + 5301ms) == Status::rnr_exceeded);
}

TEST_CASE("retry timer: it starts again with the work behind", "[retry]") {
  RetryTimer timer;
  const RetryTimer::Clock::time_point start{};
  CHECK(timer.has_moved(0));
  timer.work_at(0, start);
  CHECK_FALSE(timer.has_moved(0));
  CHECK(timer.has_moved(1));
  timer.work_at(1, start + 4s);
  CHECK(timer.verdict({4000ms, 0ms}, Peer::silent, start + 5s) == std::nullopt);
  CHECK(timer.asks_for_answers({4000ms, 0ms}, start + 9s));
  CHECK_FALSE(timer.asks_for_answers({0ms, 0ms}, start + 9s));
}

TEST_CASE("retry timer: time that was not the peer's to answer in does not count", "[retry]") {
  const RetryTimer::Limits limits = RetryTimer::limits_of(attributes(1, 0, 7), true);
  const RetryTimer::Clock::time_point begin{};
  RetryTimer timer;
  timer.work_at(0, begin);
  timer.discount(200ms, begin + 400ms);
  CHECK_FALSE(timer.verdict(limits, Peer::none, begin + 700ms));
  CHECK(timer.verdict(limits, Peer::none, begin + 701ms) == Status::retry_exceeded);
  // All of it at the most.
  timer.discount(RetryTimer::Clock::duration::max(), begin + 1000ms);
  CHECK_FALSE(timer.verdict(limits, Peer::none, begin + 1500ms));
  CHECK(timer.verdict(limits, Peer::none, begin + 1501ms) == Status::retry_exceeded);
}
