// SPDX-License-Identifier: MIT
// Small posts that wait for the next ones: when they do, and that each is sent all the same, whatever the program does
// next.
#include "provider/progress/coalescing.h"

#include <catch2/catch.hpp>

#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::Coalescing;

namespace {

constexpr std::size_t kMostOctets = 16 * 1024;

// A program with a clock of its own.
struct Program {
  Coalescing coalescing;
  std::uint64_t now = 1'000'000'000, polled = 0;

  // True if what was posted waits.
  bool post(std::uint64_t after_ns = 100, unsigned requests = 1, std::size_t octets = 8) {
    now += after_ns;
    const bool burst = coalescing.posted(requests, polled);
    coalescing.add_octets(octets);
    const bool waits = burst && (coalescing.waits_too(kMostOctets) || coalescing.may_wait(now, kMostOctets));
    if (!waits) {
      coalescing.sent();
      now += 5'000;
      if (coalescing.in_burst()) coalescing.resume(now);
    }
    return waits;
  }
  // Posts until something waits. Some posts go out before that.
  unsigned begin() {
    unsigned direct = 0;
    while (!post()) REQUIRE(++direct < 100);
    return direct;
  }
};

}  // namespace

TEST_CASE_METHOD(Program, "coalescing: a burst of small posts goes out so many at a time", "[coalescing]") {
  CHECK(begin() == 2 * Coalescing::kBurst - 1);
  CHECK(coalescing.waiting());
  unsigned waiting = 1;
  while (post()) ++waiting;
  CHECK(waiting == Coalescing::kMost - 1);
  CHECK_FALSE(coalescing.waiting());
  CHECK(post());
  // By octets too; and by age, however busy the program is.
  CHECK_FALSE(post(100, 1, kMostOctets));
  CHECK(post());
  const std::uint64_t since = now;
  constexpr std::uint64_t kLatest = Coalescing::kLongestNs + Coalescing::kClockStride * Coalescing::kPauseNs;
  while (post(Coalescing::kPauseNs)) REQUIRE(now - since < kLatest);
}

TEST_CASE_METHOD(Program, "coalescing: what ends a burst", "[coalescing]") {
  begin();
  SECTION("a pause before posts wait") {
    coalescing.sent();
    CHECK_FALSE(post(Coalescing::kPauseNs + 1));
    CHECK(begin() == Coalescing::kBurst - 1);
  }
  SECTION("a pause while posts wait, which the next reading of the clock shows") {
    now += Coalescing::kClockStride * Coalescing::kPauseNs;
    unsigned waiting = 0;
    while (post()) REQUIRE(++waiting < Coalescing::kClockStride);
    CHECK(begin() == Coalescing::kBurst - 1);
  }
  SECTION("not the time that polling took, within reason") {
    coalescing.sent();  // at the latest by the first poll that found nothing
    ++polled;
    CHECK(post(Coalescing::kPollNs));
    coalescing.sent();
    ++polled;
    CHECK_FALSE(post(Coalescing::kPollNs + 1));
  }
  SECTION("one post a poll, twice") {
    ++polled;
    post();
    ++polled;
    for (int i = 0; i < 100; ++i, ++polled) CHECK_FALSE(post());
  }
}

TEST_CASE_METHOD(Program, "coalescing: the clock is read for one in so many of the posts that wait", "[coalescing]") {
  begin();
  now += 100'000;  // the clock would show a pause
  for (unsigned i = 1; i < Coalescing::kClockStride; ++i) {
    REQUIRE(coalescing.posted(1, polled));
    CHECK(coalescing.waits_too(kMostOctets));
  }
  REQUIRE(coalescing.posted(1, polled));
  CHECK_FALSE(coalescing.waits_too(kMostOctets));
  CHECK_FALSE(coalescing.may_wait(now, kMostOctets));
}

TEST_CASE_METHOD(Program, "coalescing: posts with pauses between them never wait", "[coalescing]") {
  for (int burst = 0; burst < 1000; ++burst) {
    bool waits = post(10'000);
    for (unsigned i = 1; i < Coalescing::kBurst; ++i) waits = post() || waits;
    REQUIRE_FALSE(waits);
  }
}

TEST_CASE_METHOD(Program, "coalescing: a program that does not come back is left alone, longer each time",
                 "[coalescing]") {
  begin();
  CHECK_FALSE(coalescing.take_overdue(now + Coalescing::kLongestNs - 1, false));
  // Not one that is busy elsewhere.
  CHECK(coalescing.take_overdue(now + Coalescing::kLongestNs, true));
  coalescing.sent();
  CHECK(post());
  const auto left_alone = [&] {
    const std::uint64_t from = now += Coalescing::kLongestNs + 1000;
    REQUIRE(coalescing.take_overdue(from, false));
    coalescing.sent();
    ++polled;
    while (!post(0)) REQUIRE(now - from < 2 * Coalescing::kMostPenaltyNs);
    return now - from;
  };
  const std::uint64_t first = left_alone(), second = left_alone();
  CHECK(first >= Coalescing::kPenaltyNs);
  CHECK(second >= 2 * Coalescing::kPenaltyNs);
  for (int i = 0; i < 30; ++i) left_alone();
  CHECK(left_alone() < Coalescing::kMostPenaltyNs + 10'000);
  // And forgiven.
  for (unsigned i = 0; i < 30 * Coalescing::kForgiven * Coalescing::kMost; ++i) post();
  REQUIRE(post());
  CHECK(left_alone() < 2 * Coalescing::kPenaltyNs);
}

// ---- Queue pairs -----------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kFpdu = 2 + 18 + 10 + 2 + 4;  // of a Send of 10 octets
constexpr unsigned kPosts = 200;

// Posts without a pause to a peer of octets, and never as many as its queue has places.
struct Burst : RawPair {
  Registered data{a, pattern(10)};

  explicit Burst(bool remote)
      : RawPair({.depth = 1, .remote = remote, .rtr = mpa::ReadyToReceive::none}, false,
                {.depth = 256, .signal_all = false}) {
    give(peer, empty_write());
    // Until this is taken in, nothing may be sent.
    REQUIRE(a.post(IBV_WR_SEND, 0, {data.sge()}) == 0);
    arrived(1);
  }
  void post(unsigned last_flags = 0) {
    for (unsigned i = 1; i <= kPosts; ++i) {
      REQUIRE(a.post(IBV_WR_SEND, i, {data.sge()}, i == kPosts ? last_flags : 0) == 0);
    }
  }
  // The program does nothing but wait. What asks whether it was placed may come as well.
  void arrived(unsigned posts) {
    std::size_t octets = 0;
    Bytes room(65536);
    REQUIRE(eventually([&] {
      const ssize_t n = peer.receive(room);
      if (n > 0) octets += static_cast<std::size_t>(n);
      return octets >= posts * kFpdu;
    }));
  }
};

struct LocalBurst : Burst {
  LocalBurst() : Burst(false) {}
};

}  // namespace

TEST_CASE("coalescing: what is posted is sent, whatever the program does next", "[coalescing]") {
  const bool remote = GENERATE(true, false);
  Burst it(remote);
  SECTION("nothing") {
    it.post();
    it.arrived(kPosts);
  }
  SECTION("it polls another queue") {
    it.post();
    for (int i = 0; i < 3; ++i) CHECK(none(*it.a.receive_cq));
    it.arrived(kPosts);
  }
  SECTION("it waits for an event") {
    it.post(IBV_SEND_SIGNALED);
    it.a.send_cq->request_notify(false);
    it.arrived(kPosts);
  }
  SECTION("it ends the connection") {
    it.post();
    REQUIRE(it.a.qp->disconnect(nullptr) == 0);
    it.arrived(kPosts);
  }
  SECTION("it puts the queue pair into error") {
    it.post();
    REQUIRE(it.a.to(IBV_QPS_ERR) == 0);
    it.arrived(kPosts);
  }
  SECTION("another thread puts the queue pair into error") {
    std::thread([&it] { it.post(); }).join();
    REQUIRE(it.a.to(IBV_QPS_ERR) == 0);
    it.arrived(kPosts);
  }
  SECTION("it destroys the queue pair") {
    it.post();
    it.a.qp.reset();
    it.arrived(kPosts);
  }
}

TEST_CASE_METHOD(LocalBurst, "coalescing: a peer that closes in a burst closes in order", "[coalescing]") {
  post();
  REQUIRE(::shutdown(peer.fd(), SHUT_WR) == 0);
  REQUIRE(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  arrived(kPosts);
  CHECK_FALSE(next_event(*context, 0));
}
