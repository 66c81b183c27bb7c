// SPDX-License-Identifier: MIT
#include "provider/progress/piggybacking.h"

#include <catch2/catch.hpp>

using uiw::provider::ExpectedMessage;
using uiw::provider::Piggybacking;

namespace {

// A turn with an acknowledgement to offer; `posts`: the program has posted since the one before.
bool turn(Piggybacking& piggybacking, bool posts) {
  if (posts) piggybacking.posted();
  piggybacking.begin_turn();
  return piggybacking.offer();
}

}  // namespace

TEST_CASE("piggybacking: an acknowledgement waits once the program has answered a few messages in a row", "[stream]") {
  Piggybacking piggybacking;
  CHECK_FALSE(turn(piggybacking, false));
  for (unsigned i = 1; i < Piggybacking::kInARow; ++i) CHECK_FALSE(turn(piggybacking, true));
  CHECK(turn(piggybacking, true));
  CHECK(turn(piggybacking, true));
}

TEST_CASE("piggybacking: a program that polls first is not waited for any more", "[stream]") {
  Piggybacking piggybacking;
  for (unsigned i = 0; i < 2 * Piggybacking::kInARow; ++i) turn(piggybacking, true);
  CHECK_FALSE(turn(piggybacking, false));
  for (unsigned i = 1; i < Piggybacking::kInARow; ++i) CHECK_FALSE(turn(piggybacking, true));
  CHECK(turn(piggybacking, true));
}

TEST_CASE("piggybacking: turns without an acknowledgement to defer do not count", "[stream]") {
  Piggybacking piggybacking;
  for (unsigned i = 0; i < 2 * Piggybacking::kInARow; ++i) {
    piggybacking.posted();
    CHECK_FALSE(piggybacking.begin_turn());
  }
  CHECK_FALSE(piggybacking.offer());
  CHECK(piggybacking.begin_turn());
}

TEST_CASE(
    "expected message: a completion waits for it only where one came between the last completions, and not long") {
  ExpectedMessage message;
  std::uint64_t now = 1000;
  const auto clock = [&now] { return now; };
  for (unsigned i = 0; i < ExpectedMessage::kInARow; ++i) {
    CHECK_FALSE(message.is_awaited(clock));
    message.came();
    message.reported();
  }
  CHECK(message.is_awaited(clock));
  now += ExpectedMessage::kLongestNs - 1;
  CHECK(message.is_awaited(clock));
  message.came();
  message.reported();
  CHECK(message.is_awaited(clock));
  now += ExpectedMessage::kLongestNs;
  CHECK_FALSE(message.is_awaited(clock));  // none has come in time
  message.reported();
  CHECK_FALSE(message.is_awaited(clock));
}

TEST_CASE("expected message: none is expected between completions of a program that only sends") {
  ExpectedMessage message;
  const auto clock = [] { return std::uint64_t{1}; };
  for (unsigned i = 0; i < 4 * ExpectedMessage::kInARow; ++i) {
    if (i % 2 == 0) message.came();
    CHECK_FALSE(message.is_awaited(clock));
    message.reported();
  }
}
