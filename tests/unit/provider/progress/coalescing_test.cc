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
    const bool waits = coalescing.posted(requests, octets, polled) &&
                       (coalescing.waits_too(kMostOctets) || coalescing.may_wait(now, kMostOctets));
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

TEST_CASE("coalescing: a burst of small posts goes out so many at a time", "[coalescing]") {
  Program program;
  CHECK(program.begin() == 2 * Coalescing::kBurst - 1);
  CHECK(program.coalescing.waiting());
  unsigned waiting = 1;
  while (program.post()) ++waiting;
  CHECK(waiting == Coalescing::kMost - 1);
  CHECK_FALSE(program.coalescing.waiting());
  CHECK(program.post());
  // By octets too; and by age, however busy the program is.
  CHECK_FALSE(program.post(100, 1, kMostOctets));
  CHECK(program.post());
  const std::uint64_t since = program.now;
  constexpr std::uint64_t kLatest = Coalescing::kLongestNs + Coalescing::kClockStride * Coalescing::kPauseNs;
  while (program.post(Coalescing::kPauseNs)) REQUIRE(program.now - since < kLatest);
}

TEST_CASE("coalescing: what ends a burst", "[coalescing]") {
  Program program;
  program.begin();
  SECTION("a pause before posts wait") {
    program.coalescing.sent();
    CHECK_FALSE(program.post(Coalescing::kPauseNs + 1));
    CHECK(program.begin() == Coalescing::kBurst - 1);
  }
  SECTION("a pause while posts wait, which the next reading of the clock shows") {
    program.now += Coalescing::kClockStride * Coalescing::kPauseNs;
    unsigned waiting = 0;
    while (program.post()) REQUIRE(++waiting < Coalescing::kClockStride);
    CHECK(program.begin() == Coalescing::kBurst - 1);
  }
  SECTION("not the time that polling took, within reason") {
    program.coalescing.sent();  // at the latest by the first poll that found nothing
    ++program.polled;
    CHECK(program.post(Coalescing::kPollNs));
    program.coalescing.sent();
    ++program.polled;
    CHECK_FALSE(program.post(Coalescing::kPollNs + 1));
  }
  SECTION("one post a poll, twice") {
    ++program.polled;
    program.post();
    ++program.polled;
    for (int i = 0; i < 100; ++i, ++program.polled) CHECK_FALSE(program.post());
  }
}

TEST_CASE("coalescing: the clock is read for one in so many of the posts that wait", "[coalescing]") {
  Program program;
  program.begin();
  program.now += 100'000;  // the clock would show a pause
  for (unsigned i = 1; i < Coalescing::kClockStride; ++i) {
    REQUIRE(program.coalescing.posted(1, 8, program.polled));
    CHECK(program.coalescing.waits_too(kMostOctets));
  }
  REQUIRE(program.coalescing.posted(1, 8, program.polled));
  CHECK_FALSE(program.coalescing.waits_too(kMostOctets));
  CHECK_FALSE(program.coalescing.may_wait(program.now, kMostOctets));
}

TEST_CASE("coalescing: posts with pauses between them never wait", "[coalescing]") {
  Program program;
  for (int burst = 0; burst < 1000; ++burst) {
    bool waits = program.post(10'000);
    for (unsigned i = 1; i < Coalescing::kBurst; ++i) waits = program.post() || waits;
    REQUIRE_FALSE(waits);
  }
}

TEST_CASE("coalescing: a program that does not come back is left alone, longer each time", "[coalescing]") {
  Program program;
  program.begin();
  CHECK_FALSE(program.coalescing.take_overdue(program.now + Coalescing::kLongestNs - 1, false));
  // Not one that is busy elsewhere.
  CHECK(program.coalescing.take_overdue(program.now + Coalescing::kLongestNs, true));
  program.coalescing.sent();
  CHECK(program.post());
  const auto left_alone = [&program] {
    const std::uint64_t from = program.now += Coalescing::kLongestNs + 1000;
    REQUIRE(program.coalescing.take_overdue(from, false));
    program.coalescing.sent();
    ++program.polled;
    while (!program.post(0)) REQUIRE(program.now - from < 2 * Coalescing::kMostPenaltyNs);
    return program.now - from;
  };
  const std::uint64_t first = left_alone(), second = left_alone();
  CHECK(first >= Coalescing::kPenaltyNs);
  CHECK(second >= 2 * Coalescing::kPenaltyNs);
  for (int i = 0; i < 30; ++i) left_alone();
  CHECK(left_alone() < Coalescing::kMostPenaltyNs + 10'000);
  // And forgiven.
  for (unsigned i = 0; i < 30 * Coalescing::kForgiven * Coalescing::kMost; ++i) program.post();
  REQUIRE(program.post());
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

TEST_CASE("coalescing: a peer that closes in a burst closes in order", "[coalescing]") {
  Burst it(false);
  it.post();
  REQUIRE(::shutdown(it.peer.fd(), SHUT_WR) == 0);
  REQUIRE(eventually([&] { return it.a.qp->state() == IBV_QPS_ERR; }));
  it.arrived(kPosts);
  CHECK_FALSE(next_event(*it.context, 0));
}
