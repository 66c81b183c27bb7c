// SPDX-License-Identifier: MIT
#include "provider/progress/piggybacking.h"

#include <catch2/catch.hpp>

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
