// SPDX-License-Identifier: MIT
// The rule by which a progress thread calls others, how many there may be, and which of them drives a queue pair.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "provider/progress/help_needed.h"
#include "provider/progress/progress_helpers.h"
#include "provider/progress/turn_gate.h"

using uiw::provider::HelpNeeded;
using uiw::provider::progress_threads;
using uiw::provider::TurnGate;

namespace {

constexpr std::uint64_t kRound = 50'000;  // between two questions for events

// Asks `rounds` times, and gets `events` each time, `slept` after the question. Whether help was called for.
bool called(HelpNeeded& need, std::uint64_t& now, unsigned rounds, std::size_t events, std::uint64_t slept = 0,
            unsigned helping = 0, std::uint64_t helped_in_round = 0) {
  static std::uint64_t helped = 0;
  for (unsigned i = 0; i < rounds; ++i) {
    now += kRound;
    helped += helped_in_round;
    if (need.asked(now, now + slept, events, helping, helped)) return true;
    now += slept;
  }
  return false;
}

}  // namespace

TEST_CASE("progress helpers: called once a thread has not slept for a while, with several queue pairs", "[helpers]") {
  constexpr unsigned kEnough = HelpNeeded::kBusyNs / kRound + 1;
  HelpNeeded need;
  std::uint64_t now = 1'000'000;
  CHECK_FALSE(called(need, now, kEnough - 1, 2));
  CHECK(called(need, now, 1, 2));
  // The next one after the same time again.
  CHECK_FALSE(called(need, now, kEnough - 1, 2));
  CHECK(called(need, now, 1, 2));
  // One queue pair alone needs one thread.
  CHECK_FALSE(called(need, now, 100, 1));
  // A thread that sleeps in between begins anew.
  CHECK_FALSE(called(need, now, 1, 2, HelpNeeded::kAwakeNs + 1));
  CHECK_FALSE(called(need, now, kEnough - 1, 2));
  CHECK_FALSE(called(need, now, 1, 2, HelpNeeded::kAwakeNs + 1));
  CHECK_FALSE(called(need, now, kEnough - 1, 2));
  CHECK(called(need, now, 1, 2));
  // Where others help, this thread sees one event at a time; what they drive says that there is more.
  CHECK_FALSE(called(need, now, 100, 1, 0, 1, 0));
  CHECK(called(need, now, kEnough + 1, 1, 0, 1, 1));
}

TEST_CASE("progress helpers: half of the processors, and none where program and thread need both", "[helpers]") {
  CHECK(progress_threads(0, 1) == 1);
  CHECK(progress_threads(0, 2) == 1);
  CHECK(progress_threads(0, 3) == 1);
  CHECK(progress_threads(0, 4) == 2);
  CHECK(progress_threads(0, 16) == 8);
  CHECK(progress_threads(0, 192) == 8);
  CHECK(progress_threads(3, 2) == 3);
}

TEST_CASE("turn gate: one thread drives, and what others were told is driven too", "[helpers]") {
  TurnGate gate;
  REQUIRE(gate.enter());
  CHECK_FALSE(gate.leave());
  REQUIRE(gate.enter());
  CHECK_FALSE(gate.enter());
  CHECK_FALSE(gate.enter());
  CHECK(gate.leave());
  CHECK_FALSE(gate.leave());

  // Each thread adds to what is to be done, and then enters: in the end nothing is left.
  constexpr unsigned kTurns = 20'000;
  std::atomic<unsigned> waiting{0}, inside{0};
  unsigned done = 0;  // by whoever drives
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (unsigned turn = 0; turn < kTurns; ++turn) {
        waiting.fetch_add(1, std::memory_order_relaxed);
        if (!gate.enter()) continue;
        do {
          if (inside.fetch_add(1) != 0) std::abort();
          done += waiting.exchange(0, std::memory_order_relaxed);
          inside.fetch_sub(1);
        } while (gate.leave());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done == 4 * kTurns);
}
