// SPDX-License-Identifier: MIT
#include "provider/progress/busy_wait.h"

#include <catch2/catch.hpp>

using uiw::provider::BusyWait;
using uiw::provider::YieldPauses;

namespace {

constexpr std::uint64_t kStart = 5'000'000'000;
constexpr std::uint64_t kLook = 1000;

// An event after so long, which the thread has slept for.
void wait(BusyWait& wait, std::uint64_t& now, std::uint64_t time) {
  wait.begin(now);
  now += time;
  wait.end(now);
}

// Another thread uses the processor while this one looks.
void displace(BusyWait& wait, std::uint64_t& now) {
  REQUIRE(wait.begin(now));
  now += YieldPauses::kDisplacedNs + 1;
  CHECK_FALSE(wait.again(now));
  wait.end(now);
}

}  // namespace

TEST_CASE("busy wait: only after a short wait", "[progress]") {
  BusyWait busy;
  std::uint64_t now = kStart;
  CHECK_FALSE(busy.begin(now));
  now += 10'000'000;
  busy.end(now);
  CHECK_FALSE(busy.begin(now));
  now += BusyWait::kLongestNs - 1;
  busy.end(now);
  CHECK(busy.begin(now));
}

TEST_CASE("busy wait: looks for a while, and then sleeps until events come close together again", "[progress]") {
  BusyWait busy;
  std::uint64_t now = kStart;
  wait(busy, now, 10);
  const std::uint64_t began = now;
  REQUIRE(busy.begin(now));
  while (busy.again(now += kLook)) REQUIRE(now - began < BusyWait::kLongestNs);
  CHECK(now - began >= BusyWait::kLongestNs);
  busy.end(now += 1'000'000);
  CHECK_FALSE(busy.begin(now));
  busy.end(now += 10);
  CHECK(busy.begin(now));
}

TEST_CASE("busy wait: leaves the processor to a thread that uses it up", "[progress]") {
  BusyWait busy;
  std::uint64_t now = kStart;
  wait(busy, now, 10);
  displace(busy, now);
  // Short waits do not count for a while.
  const std::uint64_t displaced = now;
  wait(busy, now, 10);
  CHECK_FALSE(busy.begin(now));
  now = displaced + YieldPauses::kFirstPauseNs - 1;
  wait(busy, now, 0);
  CHECK_FALSE(busy.begin(now));
  ++now;
  CHECK(busy.begin(now));
}

TEST_CASE("busy wait: pauses become longer while displacement goes on, and short again after a calm time",
          "[progress]") {
  BusyWait busy;
  std::uint64_t now = kStart;
  std::uint64_t pause = YieldPauses::kFirstPauseNs;
  wait(busy, now, 10);
  for (int i = 0; i < 15; ++i) {
    displace(busy, now);
    now += pause - 1;
    wait(busy, now, 0);
    CHECK_FALSE(busy.begin(now));
    ++now;
    wait(busy, now, 0);
    if (pause < YieldPauses::kLongestPauseNs) pause *= 2;
  }
  now += 5 * pause;
  wait(busy, now, 0);
  displace(busy, now);
  now += YieldPauses::kFirstPauseNs;
  wait(busy, now, 0);
  CHECK(busy.begin(now));
}

TEST_CASE("busy wait: a thread that runs for a moment is no reason to stop", "[progress]") {
  BusyWait busy;
  std::uint64_t now = kStart;
  wait(busy, now, 10);
  REQUIRE(busy.begin(now));
  CHECK(busy.again(now += kLook));
  CHECK(busy.again(now += 50'000));
  now += BusyWait::kLongestNs;
  CHECK_FALSE(busy.again(now));
  busy.end(now);
  CHECK_FALSE(busy.begin(now));
  wait(busy, now, 10);
  CHECK(busy.begin(now));
}

TEST_CASE("busy wait: a poller that loses its processor when it yields goes on without that for a while",
          "[progress]") {
  YieldPauses pauses;
  std::uint64_t now = 7'000'000'000;
  CHECK(pauses.over(now));
  CHECK_FALSE(pauses.yielded(now, now + YieldPauses::kDisplacedNs));
  CHECK(pauses.over(now));
  now += YieldPauses::kDisplacedNs + 1;
  CHECK(pauses.yielded(now - YieldPauses::kDisplacedNs - 1, now));
  CHECK_FALSE(pauses.over(now + YieldPauses::kFirstPauseNs - 1));
  CHECK(pauses.over(now + YieldPauses::kFirstPauseNs));
  // To look without a pause was in vain, too.
  pauses.end();
  CHECK(pauses.over(now));
}
