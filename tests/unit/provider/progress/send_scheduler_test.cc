// SPDX-License-Identifier: MIT
// When something is sent: for each rule a table of situations, and what is decided in each of them.
#include "provider/progress/send_scheduler.h"

#include <catch2/catch.hpp>

using uiw::provider::Coalescing;
using uiw::provider::Driver;
using uiw::provider::SendScheduler;
using AnswerDecision = SendScheduler::AnswerDecision;
using Decision = SendScheduler::Decision;
using PostDecision = SendScheduler::PostDecision;
using ProbePolicy = SendScheduler::ProbePolicy;
using Program = SendScheduler::Program;

namespace {

constexpr std::uint64_t kStart = 1'000'000'000;
constexpr Program kComesBack{false, true}, kAwaitsEvent{true, true}, kUnwatched{false, false};
constexpr std::size_t kMostOctets = 16 * 1024;
constexpr SendScheduler::PostConditions kCanSend{8, true, false, false, false, kMostOctets};

// A stream whose program posts requests of eight octets, 100 ns apart, and the clock.
struct Rig {
  SendScheduler scheduler;
  std::uint64_t now = kStart;
  unsigned clock_readings = 0;

  auto clock() {
    return [this] {
      ++clock_readings;
      return now;
    };
  }
  PostDecision post(const SendScheduler::PostConditions& conditions = kCanSend,
                    const SendScheduler::Post& post = {1, 0, false, 1}) {
    now += 100;
    const PostDecision decision = scheduler.posted(
        post, [&conditions] { return conditions; },
        [this] {
          ++clock_readings;
          return SendScheduler::PostTime{now, 0};
        });
    if (decision != PostDecision::defer && decision != PostDecision::defer_first) {
      scheduler.sending_all();
      if (decision != PostDecision::send) scheduler.resume(now);
    }
    return decision;
  }
  // Until posts wait.
  void begin_burst() {
    for (unsigned i = 0; i < 2 * Coalescing::kBurst - 1; ++i) {
      const PostDecision decision = post();
      REQUIRE((decision == PostDecision::send || decision == PostDecision::send_in_burst));
    }
    REQUIRE(post() == PostDecision::defer_first);
    REQUIRE(scheduler.posts_wait());
    REQUIRE(scheduler.posts_wait_since() == now);
  }
  std::uint64_t too_late() const { return scheduler.posts_wait_since() + Coalescing::kLongestNs; }
};

}  // namespace

TEST_CASE("send scheduler: when a probe is sent behind what is sent now", "[scheduler]") {
  struct Row {
    const char* what;
    Driver driver;
    Program program;
    ProbePolicy decision;
  };
  const Row row = GENERATE(Row{"the program polls again", Driver::poll, kComesBack, ProbePolicy::if_none_due},
                           Row{"it waits for an event", Driver::poll, kAwaitsEvent, ProbePolicy::at_once},
                           Row{"nobody would see that it has stopped", Driver::poll, kUnwatched, ProbePolicy::at_once},
                           Row{"it does not poll", Driver::event, kComesBack, ProbePolicy::at_once});
  CAPTURE(row.what);
  CHECK(SendScheduler::probe_policy(row.driver, row.program) == row.decision);
}

TEST_CASE("send scheduler: when a probe is sent behind what the program posts", "[scheduler]") {
  struct Row {
    const char* what;
    Program program;
    bool completions_there;
    ProbePolicy decision;
  };
  const Row row = GENERATE(Row{"it waits for these posts", kComesBack, false, ProbePolicy::if_none_due},
                           Row{"it has completions to take", kComesBack, true, ProbePolicy::by_stride},
                           Row{"it waits for an event", kAwaitsEvent, true, ProbePolicy::at_once},
                           Row{"nobody would see that it has stopped", kUnwatched, true, ProbePolicy::at_once});
  CAPTURE(row.what);
  CHECK(SendScheduler::posters_probe_policy(row.program, row.completions_there) == row.decision);
}

TEST_CASE("send scheduler: a stream that ends leaves no probe for later", "[scheduler]") {
  CHECK(SendScheduler::stream_probe_policy(ProbePolicy::by_stride, true) == ProbePolicy::by_stride);
  CHECK(SendScheduler::stream_probe_policy(ProbePolicy::by_stride, false) == ProbePolicy::at_once);
}

TEST_CASE_METHOD(Rig, "send scheduler: posts outside of a burst", "[scheduler]") {
  struct Row {
    const char* what;
    bool remote_rule;
    std::uint32_t queued;
    PostDecision decision;
  };
  constexpr std::uint32_t kSoon = SendScheduler::kPollsSoon;
  const Row row = GENERATE(Row{"local rule", false, 1, PostDecision::send},
                           Row{"local rule, much queued", false, kSoon, PostDecision::send},
                           Row{"remote rule, little queued", true, kSoon - 1, PostDecision::send},
                           Row{"remote rule, much queued", true, kSoon, PostDecision::send_and_look});
  CAPTURE(row.what);
  CHECK(post(kCanSend, {1, 0, row.remote_rule, row.queued}) == row.decision);
  CHECK(clock_readings == 0);
  CHECK_FALSE(scheduler.posts_wait());
}

TEST_CASE_METHOD(Rig, "send scheduler: a burst is sent until it has gone on for a while, and waits then",
                 "[scheduler]") {
  for (unsigned i = 1; i < Coalescing::kBurst; ++i) CHECK(post() == PostDecision::send);
  CHECK(clock_readings == 0);
  for (unsigned i = 0; i < Coalescing::kBurst; ++i) CHECK(post() == PostDecision::send_in_burst);
  CHECK(clock_readings == Coalescing::kBurst);
  CHECK(post() == PostDecision::defer_first);
  CHECK(post() == PostDecision::defer);
}

TEST_CASE_METHOD(Rig, "send scheduler: what the next post of a burst does", "[scheduler]") {
  using Conditions = SendScheduler::PostConditions;
  struct Row {
    const char* what;
    Conditions conditions;
    SendScheduler::Post post;
    std::uint64_t pause_ns;
    PostDecision decision;
    unsigned clock_readings;
  };
  // octets, running, socket_full, queue_full, awaits_event, most_octets
  const Row row = GENERATE(
      Row{"it waits", kCanSend, {1, 0}, 0, PostDecision::defer, 0},
      Row{"the stream closes", {8, false, false, false, false, kMostOctets}, {1, 0}, 0, PostDecision::send_and_look, 0},
      Row{"the socket is full", {8, true, true, false, false, kMostOctets}, {1, 0}, 0, PostDecision::send_and_look, 0},
      Row{"the queue is full", {8, true, false, true, false, kMostOctets}, {1, 0}, 0, PostDecision::send_and_look, 0},
      Row{"an event is awaited", {8, true, false, false, true, kMostOctets}, {1, 0}, 0, PostDecision::send_and_look, 0},
      Row{"enough requests wait", kCanSend, {Coalescing::kMost, 0}, 0, PostDecision::send_and_look, 1},
      Row{"enough octets wait",
          {kMostOctets, true, false, false, false, kMostOctets},
          {1, 0},
          0,
          PostDecision::send_and_look,
          1},
      Row{"a pause in which it has polled", kCanSend, {1, 1}, Coalescing::kPauseNs, PostDecision::defer, 1},
      Row{"a longer one", kCanSend, {1, 1}, Coalescing::kPollNs, PostDecision::send_in_burst, 1});
  CAPTURE(row.what);
  begin_burst();
  now += row.pause_ns;
  clock_readings = 0;
  CHECK(post(row.conditions, row.post) == row.decision);
  CHECK(clock_readings == row.clock_readings);
  CHECK(scheduler.posts_wait() == (row.decision == PostDecision::defer));
}

TEST_CASE_METHOD(Rig, "send scheduler: the clock is read for few of the posts that wait, and then shows a pause",
                 "[scheduler]") {
  begin_burst();
  const bool pause = GENERATE(false, true);
  clock_readings = 0;
  for (unsigned i = 1; i < Coalescing::kClockStride; ++i) CHECK(post() == PostDecision::defer);
  CHECK(clock_readings == 0);
  if (pause) now += Coalescing::kClockStride * Coalescing::kPauseNs;
  CHECK(post() == (pause ? PostDecision::send_in_burst : PostDecision::defer));
  CHECK(clock_readings == 1);
}

TEST_CASE_METHOD(Rig, "send scheduler: what sends the posts that wait", "[scheduler]") {
  constexpr auto if_none_due = ProbePolicy::if_none_due, at_once = ProbePolicy::at_once;
  CHECK(scheduler.polled(if_none_due) == std::nullopt);
  CHECK(scheduler.ending() == std::nullopt);
  CHECK(scheduler.ticked(false, clock()) == std::nullopt);
  begin_burst();
  CHECK(scheduler.polled(if_none_due) == if_none_due);
  CHECK(scheduler.ending() == at_once);
  now = too_late() - 1;
  CHECK(scheduler.ticked(false, clock()) == std::nullopt);
  now = too_late();
  CHECK(scheduler.ticked(true, clock()) == std::nullopt);
  CHECK(scheduler.ticked(false, clock()) == at_once);
  scheduler.sending_all();
  CHECK(scheduler.ending() == std::nullopt);
}

TEST_CASE_METHOD(Rig, "send scheduler: whether posts go on waiting after some have waited for too long",
                 "[scheduler]") {
  struct Row {
    const char* what;
    Driver driver;
    bool tick;
    PostDecision next_post;
    unsigned clock_readings;
  };
  const Row row = GENERATE(Row{"a tick sends them", Driver::event, true, PostDecision::defer_first, 1},
                           Row{"a poll", Driver::poll, false, PostDecision::defer_first, 0},
                           Row{"an event: it has not come back", Driver::event, false, PostDecision::send_and_look, 1});
  CAPTURE(row.what);
  begin_burst();
  now = too_late();
  clock_readings = 0;
  if (row.tick) {
    CHECK(scheduler.ticked(false, clock()) == ProbePolicy::at_once);
  } else {
    CHECK(scheduler.turn(row.driver, kComesBack, clock()) == SendScheduler::probe_policy(row.driver, kComesBack));
  }
  CHECK(clock_readings == row.clock_readings);
  scheduler.sending_all();
  scheduler.resume(now);
  CHECK(post() == row.next_post);
}

TEST_CASE_METHOD(Rig, "send scheduler: a turn where no posts wait reads no clock", "[scheduler]") {
  CHECK(scheduler.turn(Driver::event, kComesBack, clock()) == ProbePolicy::at_once);
  CHECK(clock_readings == 0);
}

TEST_CASE_METHOD(Rig, "send scheduler: a thread that only polls leaves sending to the one that posts", "[scheduler]") {
  struct Row {
    const char* what;
    std::uint64_t since;
    bool is_poster;
    std::uint64_t later_ns;
    bool left;
    unsigned clock_readings;
  };
  constexpr std::uint64_t kPosterNs = SendScheduler::kPosterNs;
  const Row row =
      GENERATE(Row{"no posts wait", 0, false, 0, false, 0}, Row{"it has posted them itself", kStart, true, 0, false, 0},
               Row{"another thread posts right now", kStart, false, kPosterNs - 1, true, 1},
               Row{"that has left them alone", kStart, false, kPosterNs, false, 1});
  CAPTURE(row.what);
  now += row.later_ns;
  CHECK(SendScheduler::left_to_poster(row.since, row.is_poster, clock()) == row.left);
  CHECK(clock_readings == row.clock_readings);
}

TEST_CASE("send scheduler: when polls send what has been deferred", "[scheduler]") {
  constexpr unsigned kBusyLooks = SendScheduler::kBusyLooks;
  CHECK(SendScheduler::ends_deferral(false, 0));
  CHECK_FALSE(SendScheduler::ends_deferral(true, kBusyLooks - 1));
  CHECK(SendScheduler::ends_deferral(true, kBusyLooks));
  CHECK(SendScheduler::polled_in_vain(true, false) == ProbePolicy::at_once);
  CHECK(SendScheduler::polled_in_vain(false, false) == std::nullopt);
  CHECK(SendScheduler::polled_in_vain(true, true) == std::nullopt);
}

TEST_CASE("send scheduler: an answer waits for the post that the program is expected to make", "[scheduler]") {
  struct Row {
    const char* what;
    Driver driver;
    // post_expected, more_due, socket_full, awaits_event, reads, by_message
    SendScheduler::AnswerConditions conditions;
    AnswerDecision decision;
  };
  constexpr auto send = AnswerDecision::send;
  const Row row = GENERATE(
      Row{"the program polls", Driver::poll, {true, false, false, false, true, true}, AnswerDecision::wait_for_post},
      Row{"it does not post", Driver::poll, {false, false, false, false, true, true}, send},
      Row{"more is due", Driver::poll, {true, true, false, false, true, true}, send},
      Row{"the socket is full", Driver::poll, {true, false, true, false, true, true}, send},
      Row{"an event", Driver::event, {true, false, false, false, true, true}, AnswerDecision::look_for_more_once},
      Row{"an event, and it does not post", Driver::event, {false, false, false, false, true, true}, send},
      Row{"an event that it awaits", Driver::event, {true, false, false, true, true, true}, send},
      Row{"an event, and the answer is a position", Driver::event, {true, false, false, false, true, false}, send},
      Row{"an event, and nothing is read", Driver::event, {true, false, false, false, false, true}, send});
  CAPTURE(row.what);
  CHECK(SendScheduler::answer(row.driver, row.conditions) == row.decision);
}

TEST_CASE("send scheduler: answers do not wait for the end of a long receive", "[scheduler]") {
  constexpr std::size_t kMost = SendScheduler::kMostUnanswered;
  CHECK(SendScheduler::answers_before_reading_on(true, kMost));
  CHECK_FALSE(SendScheduler::answers_before_reading_on(true, kMost - 1));
  CHECK_FALSE(SendScheduler::answers_before_reading_on(false, kMost));
}

TEST_CASE("send scheduler: whether the sender's turn follows the receiver's", "[scheduler]") {
  struct Row {
    const char* what;
    // due, socket_full, deferred, ends
    SendScheduler::TurnConditions conditions;
    bool after_poll, after_event;
  };
  const Row row = GENERATE(Row{"nothing to send", {false, false, false, false}, false, false},
                           Row{"an answer", {true, false, false, false}, true, true},
                           Row{"the socket was full", {false, true, false, false}, true, true},
                           Row{"deferred sends", {false, false, true, false}, false, true},
                           Row{"the stream ends", {false, false, false, true}, false, true});
  CAPTURE(row.what);
  CHECK(SendScheduler::sender_is_next(Driver::poll, row.conditions) == row.after_poll);
  CHECK(SendScheduler::sender_is_next(Driver::event, row.conditions) == row.after_event);
  CHECK(SendScheduler::sender_is_next(Driver::arrival, row.conditions) == row.after_event);
}
