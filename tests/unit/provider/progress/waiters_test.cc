// SPDX-License-Identifier: MIT
#include "provider/progress/waiters.h"

#include <catch2/catch.hpp>
#include <thread>

using uiw::provider::Waiters;

namespace {

constexpr std::uint64_t kNow = 5'000'000'000;

bool enter_elsewhere(Waiters& waiters, std::uint64_t now) {
  bool drives = false;
  std::thread([&] { drives = waiters.enter(now); }).join();
  return drives;
}

}  // namespace

TEST_CASE("waiters: one that waits alone drives, and is about to again for some time behind its wait", "[progress]") {
  Waiters waiters;
  CHECK_FALSE(waiters.drive(kNow));
  REQUIRE(waiters.enter(kNow));
  CHECK(waiters.drive(kNow));
  CHECK(waiters.drive(kNow + 100 * Waiters::kBetweenNs));
  waiters.leave(true, kNow + 7);
  CHECK(waiters.drive(kNow + 6 + Waiters::kBetweenNs));
  CHECK_FALSE(waiters.drive(kNow + 7 + Waiters::kBetweenNs));
  CHECK(waiters.enter(kNow + 7 + Waiters::kBetweenNs));
}

TEST_CASE("waiters: where a second one waits neither counts as driving, until both are gone", "[progress]") {
  Waiters waiters;
  REQUIRE(waiters.enter(kNow));
  REQUIRE_FALSE(enter_elsewhere(waiters, kNow + 1));
  CHECK_FALSE(waiters.drive(kNow + 1));
  waiters.leave(true, kNow + 2);
  CHECK_FALSE(waiters.drive(kNow + 2));
  CHECK_FALSE(waiters.enter(kNow + 3));  // while the second one waits, and sleeps
  waiters.leave(false, kNow + 4);
  waiters.leave(false, kNow + 5);
  const std::uint64_t over = kNow + 3 + Waiters::kCrowdNs;
  CHECK_FALSE(waiters.enter(over - 1));  // and for some time behind that
  waiters.leave(false, over);
  CHECK_FALSE(waiters.enter(over - 2 + Waiters::kCrowdNs));
  waiters.leave(false, over);
  CHECK(waiters.enter(over - 2 + 2 * Waiters::kCrowdNs));
}

TEST_CASE("waiters: a thread that a signal handler has taken out of its wait drives in the next one", "[progress]") {
  Waiters waiters;
  REQUIRE(waiters.enter(kNow));
  CHECK(waiters.enter(kNow + 1));
  waiters.leave(true, kNow + 2);
  CHECK_FALSE(waiters.drive(kNow + 2 + Waiters::kBetweenNs));
}

TEST_CASE("waiters: the child of a fork has none", "[progress]") {
  Waiters waiters;
  REQUIRE(waiters.enter(kNow));
  REQUIRE_FALSE(enter_elsewhere(waiters, kNow));
  waiters.after_fork_in_child();
  CHECK_FALSE(waiters.drive(kNow));
  CHECK(waiters.enter(kNow + Waiters::kCrowdNs));
}
