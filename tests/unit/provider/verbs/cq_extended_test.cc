// SPDX-License-Identifier: MIT
// Extended polling, timestamps, resizing, moderation and overrun of completion queues.
#include <cerrno>
#include <thread>

#include "provider/process/limits.h"
#include "provider/progress/clock.h"
#include "provider/verbs/cq/cq.h"
#include "tests/unit/provider/pair.h"
#include "tests/unit/provider/verbs/channel.h"

using namespace uiw;
using namespace uiw::test;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLong{30'000};

Cq::Options with_time() {
  Cq::Options options;
  options.raw_time = options.wall_time = true;
  return options;
}

void fill(Cq& cq, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t id = first; id < first + count; ++id) cq.push(completion_of(id), false);
}

}  // namespace

TEST_CASE_METHOD(Loopback, "cq: an extended poll goes through what is there (manual page of ibv_create_cq_ex)",
                 "[cq]") {
  Cq::Options options;
  options.single_threaded = GENERATE(false, true);
  const auto cq = Cq::create(*context, 8, -1, nullptr, options);
  REQUIRE(cq);
  ibv_wc completion{};
  Cq::Stamp stamp;
  CHECK_FALSE(cq->begin_poll(completion, stamp));
  for (std::uint64_t round = 0; round < 10; ++round) {
    fill(*cq, 5 * round, 5);
    REQUIRE(cq->begin_poll(completion, stamp));
    CHECK(completion.wr_id == 5 * round);
    REQUIRE(cq->next_poll(completion, stamp));
    CHECK(completion.wr_id == 5 * round + 1);
    cq->end_poll();
    CHECK(next(*cq).wr_id == 5 * round + 2);  // a plain poll goes on from there
    REQUIRE(cq->begin_poll(completion, stamp));
    CHECK(completion.wr_id == 5 * round + 3);
    REQUIRE(cq->next_poll(completion, stamp));
    CHECK_FALSE(cq->next_poll(completion, stamp));
    cq->push(completion_of(77), false);  // what comes meanwhile belongs to the batch too
    REQUIRE(cq->next_poll(completion, stamp));
    CHECK(completion.wr_id == 77);
    cq->end_poll();
  }
  CHECK(stamp.raw == 0);
  CHECK(stamp.wall_ns == 0);
}

TEST_CASE_METHOD(
    Loopback, "cq: in the middle of an extended poll its thread may destroy a queue pair, change the size and moderate",
    "[cq]") {
  const auto cq = Cq::create(*context, 8, -1, nullptr);
  for (std::uint64_t id = 0; id < 6; ++id) {
    ibv_wc completion = completion_of(id);
    completion.qp_num = id % 2 == 0 ? 5 : 17;
    cq->push(completion, false);
  }
  ibv_wc completion{};
  Cq::Stamp stamp;
  REQUIRE(cq->begin_poll(completion, stamp));
  CHECK(completion.wr_id == 0);
  cq->forget(17);
  CHECK(cq->resize(100) == 0);
  CHECK(cq->moderate(4, 1000) == 0);
  REQUIRE(cq->next_poll(completion, stamp));
  CHECK(completion.wr_id == 2);
  cq->end_poll();
  // And the lock is free for others.
  std::thread other([&] { cq->forget(17); });
  other.join();
  CHECK(next(*cq).wr_id == 4);
  CHECK(none(*cq));
}

TEST_CASE_METHOD(Loopback, "cq: threads take turns with extended polls", "[cq]") {
  constexpr std::uint64_t kCount = 20'000;
  const auto cq = Cq::create(*context, static_cast<int>(kCount), -1, nullptr, with_time());
  std::atomic<std::uint64_t> sum{0}, count{0};
  std::atomic<bool> disorder{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] { fill(*cq, 0, kCount); });
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      ibv_wc completion{};
      Cq::Stamp stamp;
      std::uint64_t last = 0;
      while (count < kCount) {
        if (!cq->begin_poll(completion, stamp)) {
          std::this_thread::yield();
          continue;
        }
        std::uint64_t in_batch = completion.wr_id;
        for (int i = 0;; ++i) {
          // Nobody else gets one in the middle of a batch.
          if (completion.wr_id != in_batch++ || completion.wr_id < last) disorder = true;
          last = completion.wr_id;
          sum += completion.wr_id;
          ++count;
          if (i == 4 || !cq->next_poll(completion, stamp)) break;
        }
        cq->end_poll();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(sum == kCount * (kCount - 1) / 2);
  CHECK(count == kCount);
  CHECK_FALSE(disorder);
}

TEST_CASE_METHOD(Loopback, "cq: timestamps never go back, and compare with the clock of the device", "[cq]") {
  const auto cq = Cq::create(*context, 64, -1, nullptr, with_time());
  std::uint64_t before = provider::raw_clock(), wall_before = provider::wall_clock_ns();
  ibv_wc completion{};
  Cq::Stamp stamp;
  for (std::uint64_t id = 0; id < 40; ++id) {
    cq->push(completion_of(id), false);
    if (id % 3 != 2) continue;
    REQUIRE(cq->begin_poll(completion, stamp));
    do {
      CHECK(stamp.raw >= before);
      CHECK(stamp.wall_ns >= wall_before - 1'000'000'000);  // the time of day may be set
      before = stamp.raw;
    } while (cq->next_poll(completion, stamp));
    cq->end_poll();
    CHECK(before <= provider::raw_clock());
    // As queried after the push, but before the next.
    CHECK(provider::raw_clock() - before < 20'000'000'000);
  }
  ibv_device_attr_ex device{};
  context->query_device(device);
  CHECK(device.hca_core_clock == 1'000'000);  // kHz
  CHECK(device.completion_timestamp_mask == ~std::uint64_t{0});
  // Each of the two alone.
  Cq::Options raw;
  raw.raw_time = true;
  const auto raw_only = Cq::create(*context, 4, -1, nullptr, raw);
  raw_only->push(completion_of(1), false);
  REQUIRE(raw_only->begin_poll(completion, stamp));
  raw_only->end_poll();
  CHECK(stamp.raw >= before);
  CHECK(stamp.wall_ns == 0);
}

TEST_CASE_METHOD(Loopback, "cq: resized, it keeps what is in it, in order (Verbs draft section 5.3.3)", "[cq]") {
  const auto cq = Cq::create(*context, 16, -1, nullptr, with_time());
  std::uint64_t in = 0, out = 0;
  ibv_wc completion{};
  Cq::Stamp stamp;
  // The ring is turned so that what is in it goes around its end.
  for (int turn = 0; turn < 20; ++turn) {
    fill(*cq, in, 12);
    in += 12;
    CHECK(cq->resize(0) == EINVAL);
    CHECK(cq->resize(-5) == EINVAL);
    CHECK(cq->resize(provider::kMaxCqe + 1) == EINVAL);
    CHECK(cq->resize(11) == EINVAL);  // fewer than are in it
    CHECK(cq->entries() == 16);
    const int sizes[] = {12, 100, 1000, 12, 64, 16};
    for (const int size : sizes) {
      CHECK(cq->resize(size) == 0);
      CHECK(cq->entries() >= size);
    }
    for (int i = 0; i < 5; ++i) CHECK(next(*cq).wr_id == out++);
    REQUIRE(cq->begin_poll(completion, stamp));
    CHECK(completion.wr_id == out++);
    CHECK(stamp.raw != 0);
    cq->end_poll();
    CHECK(cq->resize(6) == 0);
    CHECK(cq->resize(16) == 0);
    while (cq->poll(1, &completion) == 1) CHECK(completion.wr_id == out++);
    CHECK(out == in);
  }
  fill(*cq, 0, 16);
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(Loopback, "cq: resized while others push and poll", "[cq]") {
  constexpr std::uint64_t kCount = 60'000;
  constexpr int kLeast = 1024;  // never more than so many in it
  const auto cq = Cq::create(*context, kLeast, -1, nullptr, with_time());
  std::atomic<std::uint64_t> pushed{0}, polled{0};
  std::atomic<int> resized{0};
  std::atomic<bool> disorder{false}, refused{false};
  std::thread producer([&] {
    for (std::uint64_t id = 0; id < kCount; ++id) {
      while (id - polled.load() >= static_cast<std::uint64_t>(kLeast)) std::this_thread::yield();
      while (id == kCount / 2 && resized == 0) std::this_thread::yield();
      cq->push(completion_of(id), false);
      pushed = id;
    }
  });
  std::thread consumer([&] {
    std::uint64_t expected = 0, last_stamp = 0;
    const auto take = [&](const ibv_wc& completion) {
      if (completion.wr_id != expected++) disorder = true;
    };
    while (polled < kCount) {
      ibv_wc several[16];
      const int count = cq->poll(16, several);
      for (int i = 0; i < count; ++i) take(several[i]);
      ibv_wc completion{};
      Cq::Stamp stamp;
      int extended = 0;
      if (cq->begin_poll(completion, stamp)) {
        do {
          take(completion);
          if (stamp.raw < last_stamp) disorder = true;
          last_stamp = stamp.raw;
          ++extended;
        } while (extended < 16 && cq->next_poll(completion, stamp));
        cq->end_poll();
      }
      polled += static_cast<std::uint64_t>(count + extended);
      if (count + extended == 0) std::this_thread::yield();
    }
  });
  std::thread resizer([&] {
    const int sizes[] = {2048, kLeast, 5000, kLeast, 100'000};
    for (unsigned i = 0; polled < kCount; ++i) {
      if (cq->resize(sizes[i % 5]) != 0) refused = true;
      ++resized;
      std::this_thread::yield();
    }
  });
  producer.join();
  consumer.join();
  resizer.join();
  CHECK(resized > 0);
  CHECK_FALSE(refused);
  CHECK_FALSE(disorder);
  CHECK(polled == kCount);
  CHECK(none(*cq));
  CHECK_FALSE(next_event(*context, 0));
}

namespace {

void check_event_after_so_many(Cq& cq, const Channel& channel, std::uintptr_t number) {
  // The period is too long to count.
  REQUIRE(cq.moderate(4, 60'000'000) == 0);
  for (int round = 0; round < 3; ++round) {
    cq.request_notify(false);
    fill(cq, 0, 3);
    CHECK(channel.next() == 0);
    fill(cq, 0, 1);
    CHECK(channel.next() == number);
    fill(cq, 0, 10);  // not asked for
    CHECK(channel.next() == 0);
  }
}

void check_event_after_the_period(Cq& cq, const Channel& channel, std::uintptr_t number) {
  for (const unsigned period : {1U, 300U, 20'000U}) {
    REQUIRE(cq.moderate(1000, period) == 0);
    const auto start = std::chrono::steady_clock::now();
    cq.request_notify(false);
    fill(cq, 0, 2);
    CHECK(channel.next(kLong) == number);
    CHECK(std::chrono::steady_clock::now() - start >= std::chrono::microseconds(period));
    CHECK(channel.next() == 0);
  }
}

void check_switched_off(Cq& cq, const Channel& channel, std::uintptr_t number) {
  const auto off = GENERATE(std::pair{0U, 0U}, std::pair{1U, 100U}, std::pair{100U, 0U});
  REQUIRE(cq.moderate(1000, 60'000'000) == 0);
  cq.request_notify(false);
  fill(cq, 0, 2);
  CHECK(channel.next() == 0);
  REQUIRE(cq.moderate(off.first, off.second) == 0);
  CHECK(channel.next() == number);
  cq.request_notify(false);
  fill(cq, 0, 1);
  CHECK(channel.next() == number);
}

void check_solicited_alone(Cq& cq, const Channel& channel, std::uintptr_t number) {
  REQUIRE(cq.moderate(2, 60'000'000) == 0);
  cq.request_notify(true);
  fill(cq, 0, 5);
  cq.push(completion_of(1), true);
  CHECK(channel.next() == 0);
  cq.push(completion_of(2), true);
  CHECK(channel.next() == number);
}

}  // namespace

TEST_CASE_METHOD(Loopback, "cq: moderation holds events back, and loses none (manual page of ibv_modify_cq)", "[cq]") {
  const Channel channel;
  int object = 0;
  auto* const handle = reinterpret_cast<ibv_cq*>(&object);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  const auto cq = Cq::create(*context, 1024, channel.fd(), handle);
  ibv_device_attr_ex device{};
  context->query_device(device);
  CHECK(device.cq_mod_caps.max_cq_count == 65535);
  CHECK(device.cq_mod_caps.max_cq_period == 65535);

  SECTION("an event after so many completions") { check_event_after_so_many(*cq, channel, number); }
  SECTION("or after the period") { check_event_after_the_period(*cq, channel, number); }
  SECTION("a failure does not wait") {
    REQUIRE(cq->moderate(1000, 60'000'000) == 0);
    cq->request_notify(false);
    fill(*cq, 0, 2);
    cq->push(completion_of(1, IBV_WC_WR_FLUSH_ERR), false);
    CHECK(channel.next() == number);
  }
  SECTION("solicited ones alone count where only they are asked for") { check_solicited_alone(*cq, channel, number); }
  SECTION("switched off, what is held back comes") { check_switched_off(*cq, channel, number); }
  SECTION("a shorter period counts from now") {
    REQUIRE(cq->moderate(1000, 60'000'000) == 0);
    cq->request_notify(false);
    fill(*cq, 0, 2);
    REQUIRE(cq->moderate(1000, 500) == 0);
    CHECK(channel.next(kLong) == number);
  }
  SECTION("destroyed while an event is held back, nothing comes") {
    REQUIRE(cq->moderate(1000, 2000) == 0);
    cq->request_notify(false);
    fill(*cq, 0, 2);
    unsigned events = 99;
    REQUIRE(cq->prepare_destroy(events) == 0);
    CHECK(events == 0);
    CHECK(channel.next(milliseconds(20)) == 0);
  }
}

TEST_CASE_METHOD(Loopback, "cq: under moderation whoever waits is woken for everything", "[cq]") {
  const Channel channel;
  int object = 0;
  const auto cq = Cq::create(*context, 4096, channel.fd(), reinterpret_cast<ibv_cq*>(&object));
  REQUIRE(cq->moderate(16, 200) == 0);
  constexpr std::uint64_t kCount = 5000;
  std::atomic<std::uint64_t> taken{0};
  std::thread producer([&] {
    for (std::uint64_t id = 0; id < kCount; ++id) {
      while (id - taken > 2000) std::this_thread::yield();
      cq->push(completion_of(id), false);
    }
  });
  std::uint64_t events = 0;
  bool woken = true;
  while (taken < kCount && woken) {
    ibv_wc several[64];
    cq->request_notify(false);
    int count = 0;
    while ((count = cq->poll(64, several)) > 0) taken += static_cast<std::uint64_t>(count);
    if (taken < kCount) woken = channel.next(kLong) != 0, ++events;
  }
  taken = kCount;  // lets the producer go in any case
  producer.join();
  CHECK(woken);
  CHECK(events > 0);
  // An event that was under way for completions already taken.
  channel.next(milliseconds(1));
}

TEST_CASE_METHOD(PairApart, "cq: overrun takes its queue pairs into error, with a Terminate (Verbs draft figure 24)",
                 "[cq][qp]") {
  Side c(*context), d(*context_b);
  connect();
  attach(c, d);
  REQUIRE(b.post_receive(1, {}) == 0);
  for (int i = 0; i < a.send_cq->entries(); ++i) a.send_cq->push(completion_of(7), false);
  CHECK(a.qp->state() == IBV_QPS_RTS);
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 2, {}) == 0);
  const auto first = next_event(*context), second = next_event(*context);
  REQUIRE((first && second));
  CHECK(first->event_type == IBV_EVENT_CQ_ERR);
  CHECK(second->event_type == IBV_EVENT_QP_FATAL);
  CHECK(second->element == reinterpret_cast<std::uintptr_t>(a.handle()));
  CHECK(enter_error());
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  const auto at_b = next_event(*context_b);
  REQUIRE(at_b);
  CHECK(at_b->event_type == IBV_EVENT_QP_FATAL);  // the Terminate
  // What was in it is there, and nothing else.
  for (int i = 0; i < a.send_cq->entries(); ++i) CHECK(next(*a.send_cq).wr_id == 7);
  CHECK(none(*a.send_cq));
  // Queue pairs of other queues go on.
  REQUIRE(d.post_receive(1, {}) == 0);
  REQUIRE(c.post(IBV_WR_SEND, 1, {}) == 0);
  CHECK(next(*d.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(c.qp->state() == IBV_QPS_RTS);
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(DeepPair, "cq: overrun by several threads under traffic", "[cq][qp]") {
  connect();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        a.try_post(IBV_WR_RDMA_WRITE, 5, {});
        a.send_cq->push(completion_of(5), false);
      }
    });
  }
  CHECK(enter_error());
  stop = true;
  for (auto& thread : threads) thread.join();
  unsigned queue_errors = 0;
  while (const auto event = next_event(*context, 0)) queue_errors += event->event_type == IBV_EVENT_CQ_ERR ? 1 : 0;
  CHECK(queue_errors == 1);
  ibv_wc completion{};
  for (int i = 0; i < a.send_cq->entries(); ++i) {
    REQUIRE(a.send_cq->poll(1, &completion) == 1);
    CHECK(completion.wr_id == 5);
  }
}

TEST_CASE_METHOD(Loopback, "cq: overrun that is to be ignored only loses completions", "[cq]") {
  Cq::Options options;
  options.ignore_overrun = true;
  const auto cq = Cq::create(*context, 4, -1, nullptr, options);
  fill(*cq, 0, 10);
  CHECK_FALSE(next_event(*context, 0));
  for (std::uint64_t id = 0; id < 4; ++id) CHECK(next(*cq).wr_id == id);
  CHECK(none(*cq));
  fill(*cq, 20, 1);
  CHECK(next(*cq).wr_id == 20);
}
