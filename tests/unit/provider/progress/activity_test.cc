// SPDX-License-Identifier: MIT
// What is known of a program's threads, with times that the test makes up.
#include "provider/progress/activity.h"

#include <catch2/catch.hpp>

#include <thread>

using uiw::provider::Activity;

namespace {
constexpr std::uint64_t kStart = 1'000'000, kLong = 10 * Activity::kPostingNs;
}  // namespace

TEST_CASE("activity: a program that has done nothing is not active", "[activity]") {
  const Activity activity;
  CHECK_FALSE(activity.is_active(kStart, 100));
  CHECK_FALSE(activity.event_awaited());
  CHECK(activity.last_here() == 0);
}

TEST_CASE("activity: a poll counts for a while", "[activity]") {
  Activity activity;
  activity.note_look(kStart, true);
  CHECK(activity.is_active(kStart + 99, 100));
  CHECK_FALSE(activity.is_active(kStart + 100, 100));
  CHECK(activity.is_active(kStart - 50, 100));  // by the clock of another processor
  CHECK_FALSE(activity.posts());
  activity.forget();
  CHECK_FALSE(activity.is_active(kStart, 100));
}

TEST_CASE("activity: a thread inside is active however long it takes", "[activity]") {
  Activity activity;
  activity.enter();
  CHECK(activity.is_active(kStart + kLong, 1));
  activity.leave();
  CHECK_FALSE(activity.is_active(kStart + kLong, 1));
}

TEST_CASE("activity: a program that waits for an event is not active", "[activity]") {
  Activity activity;
  activity.note_look(kStart, true);
  activity.event_asked_for();
  CHECK(activity.event_awaited_in_order());
  CHECK_FALSE(activity.is_active(kStart, 100));
  activity.event_given();
  CHECK(activity.is_active(kStart, 100));
  // An event that is given before it is noted that it was asked for.
  activity.event_given();
  CHECK_FALSE(activity.event_awaited());
  activity.event_asked_for();
  CHECK_FALSE(activity.event_awaited());
}

TEST_CASE("activity: a program that posts looks at what has come from time to time", "[activity]") {
  Activity activity;
  activity.note_look(kStart, true);
  CHECK_FALSE(activity.note_post(kStart + Activity::kPostingNs - 1));
  CHECK(activity.posts());
  CHECK(activity.note_post(kStart + Activity::kPostingNs));
  activity.note_look(kStart + Activity::kPostingNs, false);
  CHECK(activity.posts());
  CHECK_FALSE(activity.note_post(kStart + Activity::kPostingNs + 1));
  activity.note_look(kStart + kLong, true);
  CHECK_FALSE(activity.posts());
}

TEST_CASE("activity: what another thread did last does not count for this one", "[activity]") {
  Activity activity;
  activity.note_post(kStart);
  CHECK(activity.last_here() == kStart);
  std::thread([&activity] {
    CHECK(activity.last_here() == 0);
    activity.note_look(kStart + 1, true);
    CHECK(activity.last_here() == kStart + 1);
  }).join();
  CHECK(activity.last_here() == 0);
}
