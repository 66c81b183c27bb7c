// SPDX-License-Identifier: MIT
#include "provider/verbs/cq/cq.h"

#include <cerrno>

#include "provider/process/limits.h"
#include "tests/unit/provider/pair.h"
#include "tests/unit/provider/verbs/channel.h"

using namespace uiw;
using namespace uiw::test;
using provider::SuppressedNotifications;

TEST_CASE_METHOD(Loopback, "cq: sizes and channels that are none", "[cq]") {
  const auto error = [&](int entries, int fd) {
    errno = 0;
    return Cq::create(*context, entries, fd, nullptr) ? 0 : errno;
  };
  CHECK(error(1, -1) == 0);
  CHECK(error(provider::kMaxCqe, -1) == 0);
  CHECK(error(0, -1) == EINVAL);
  CHECK(error(-1, -1) == EINVAL);
  CHECK(error(provider::kMaxCqe + 1, -1) == EINVAL);
  CHECK(error(16, 0) == EINVAL);
  const auto cq = Cq::create(*context, 100, -1, nullptr);
  REQUIRE(cq);
  CHECK(cq->entries() >= 100);
  CHECK(Cq::create(*context, 1, -1, nullptr)->entries() >= 2);
}

TEST_CASE_METHOD(Loopback, "cq: completions come in order, and as many as there is room for", "[cq]") {
  const auto cq = Cq::create(*context, 8, -1, nullptr);
  ibv_wc out[8];
  CHECK(cq->poll(8, out) == 0);
  std::uint64_t in = 0, taken = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 5; ++i) cq->push(completion_of(in++), false);
    CHECK(cq->poll(0, out) == 0);
    CHECK(cq->poll(-1, out) == 0);
    REQUIRE(cq->poll(3, out) == 3);
    for (int i = 0; i < 3; ++i) CHECK(out[i].wr_id == taken++);
    REQUIRE(cq->poll(8, out) == 2);
    for (int i = 0; i < 2; ++i) CHECK(out[i].wr_id == taken++);
  }
}

TEST_CASE_METHOD(Loopback, "cq: completions of a queue pair that is gone go, and the others stay in order", "[cq]") {
  const auto cq = Cq::create(*context, 8, -1, nullptr);
  const auto capacity = static_cast<std::uint64_t>(cq->entries());
  std::uint64_t id = 0;
  // From each place in the ring, each number of them, and each pattern of whose they are.
  for (std::uint64_t count = 0; count <= capacity; ++count) {
    for (unsigned whose = 0; whose<1U << count; whose += count> 5 ? 7 : 1) {
      std::vector<std::uint64_t> others;
      for (std::uint64_t i = 0; i < count; ++i) {
        ibv_wc completion = completion_of(id);
        completion.qp_num = (whose >> i & 1) != 0 ? 17 : 5;
        if (completion.qp_num == 5) others.push_back(id);
        cq->push(completion, false);
        ++id;
      }
      cq->forget(17);
      std::vector<std::uint64_t> found;
      for (ibv_wc completion; cq->poll(1, &completion) == 1;) found.push_back(completion.wr_id);
      REQUIRE(found == others);
    }
  }
}

TEST_CASE_METHOD(Loopback, "cq: overrun is reported once, and completions in the queue stay (Verbs draft section 8)",
                 "[cq]") {
  int object = 0;
  auto* const handle = reinterpret_cast<ibv_cq*>(&object);
  const auto cq = Cq::create(*context, 4, -1, handle);
  const auto capacity = static_cast<std::uint64_t>(cq->entries());
  for (std::uint64_t id = 0; id < capacity + 3; ++id) cq->push(completion_of(id), false);
  const auto event = next_event(*context, 0);
  REQUIRE(event);
  CHECK(event->event_type == IBV_EVENT_CQ_ERR);
  CHECK(event->element == reinterpret_cast<std::uintptr_t>(handle));
  CHECK_FALSE(next_event(*context, 0));
  for (std::uint64_t id = 0; id < capacity; ++id) CHECK(next(*cq).wr_id == id);
  CHECK(none(*cq));
}

namespace {

void check_suppressed(Cq& cq, const Channel& channel, std::uintptr_t number) {
  cq.request_notify(false);
  {
    const SuppressedNotifications suppressed(&cq);
    {
      const SuppressedNotifications inner(&cq);
      cq.push(completion_of(1), false);
      cq.push(completion_of(2), false);
      CHECK(channel.next() == 0);
    }
    CHECK(channel.next() == number);
    CHECK(channel.next() == 0);
    cq.push(completion_of(3), false);
  }
  CHECK(channel.next() == 0);  // not asked for
  // An event that another thread has caused meanwhile tells of these completions, too.
  cq.request_notify(false);
  {
    const SuppressedNotifications suppressed(&cq);
    cq.push(completion_of(4), false);
    std::thread([&] { cq.push(completion_of(5), false); }).join();
    CHECK(channel.next() == number);
    cq.request_notify(false);
  }
  CHECK(channel.next() == 0);
  cq.push(completion_of(6), false);
  CHECK(channel.next() == number);
}

// Threads whose turns always overlap: there is no moment at which none of them suppresses events.
void check_overlapping(Cq& cq, const Channel& channel, std::uintptr_t number) {
  const SuppressedNotifications another_turn(&cq);
  std::thread([&] {
    for (unsigned round = 0; round < 3; ++round) {
      cq.request_notify(false);
      {
        const SuppressedNotifications suppressed(&cq);
        cq.push(completion_of(round), false);
        CHECK(channel.next() == 0);
      }
      CHECK(channel.next() == number);
    }
  }).join();
}

}  // namespace

TEST_CASE_METHOD(Loopback, "cq: one event for each request (Verbs draft section 8.2)", "[cq]") {
  const Channel channel;
  int object = 0;
  auto* const handle = reinterpret_cast<ibv_cq*>(&object);
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  const auto cq = Cq::create(*context, 64, channel.fd(), handle);
  REQUIRE(cq);
  cq->push(completion_of(0), true);
  CHECK(channel.next() == 0);  // not asked for
  SECTION("any completion") {
    CHECK(cq->request_notify(false) == 0);
    CHECK(channel.next() == 0);  // what was there before does not count
    cq->push(completion_of(1), false);
    CHECK(channel.next() == number);
    cq->push(completion_of(2), true);
    CHECK(channel.next() == 0);
  }
  SECTION("solicited ones only") {
    cq->request_notify(true);
    cq->push(completion_of(1), false);
    CHECK(channel.next() == 0);
    cq->push(completion_of(2), true);
    CHECK(channel.next() == number);
    cq->push(completion_of(3), true);
    CHECK(channel.next() == 0);
  }
  SECTION("failures count as solicited") {
    cq->request_notify(true);
    cq->push(completion_of(1, IBV_WC_WR_FLUSH_ERR), false);
    CHECK(channel.next() == number);
  }
  SECTION("any, then solicited: any stands") {
    cq->request_notify(false);
    cq->request_notify(true);
    cq->push(completion_of(1), false);
    CHECK(channel.next() == number);
  }
  SECTION("solicited, then any: any stands") {
    cq->request_notify(true);
    cq->request_notify(false);
    cq->push(completion_of(1), false);
    CHECK(channel.next() == number);
  }
  SECTION("while events are held nobody is woken, and once afterwards") { check_suppressed(*cq, channel, number); }
  SECTION("a thread holds the events of its own completions") { check_overlapping(*cq, channel, number); }
  SECTION("asked twice, told once") {
    cq->request_notify(false);
    cq->request_notify(false);
    cq->push(completion_of(1), false);
    cq->push(completion_of(2), false);
    CHECK(channel.next() == number);
    CHECK(channel.next() == 0);
  }
}

TEST_CASE_METHOD(Loopback, "cq: destruction says how many events were taken, and takes out the others", "[cq]") {
  const Channel channel;
  int objects[2] = {};
  const auto a = Cq::create(*context, 64, channel.fd(), reinterpret_cast<ibv_cq*>(&objects[0]));
  const auto b = Cq::create(*context, 64, channel.fd(), reinterpret_cast<ibv_cq*>(&objects[1]));
  REQUIRE((a && b));
  for (int i = 0; i < 3; ++i) {
    for (Cq* cq : {a.get(), b.get()}) {
      cq->request_notify(false);
      cq->push(completion_of(1), false);
    }
  }
  CHECK(channel.next() == reinterpret_cast<std::uintptr_t>(&objects[0]));
  unsigned events = 99;
  a->add_user();
  CHECK(a->prepare_destroy(events) == EBUSY);
  a->remove_user();
  CHECK(a->prepare_destroy(events) == 0);
  CHECK(events == 1);
  for (int i = 0; i < 3; ++i) CHECK(channel.next() == reinterpret_cast<std::uintptr_t>(&objects[1]));
  CHECK(channel.next() == 0);
  CHECK(b->prepare_destroy(events) == 0);
  CHECK(events == 3);
}

TEST_CASE_METHOD(Loopback, "cq: without a channel a request is met silently", "[cq]") {
  const auto cq = Cq::create(*context, 4, -1, nullptr);
  CHECK(cq->request_notify(false) == 0);
  cq->push(completion_of(1), true);
  unsigned events = 99;
  CHECK(cq->prepare_destroy(events) == 0);
  CHECK(events == 0);
}

TEST_CASE_METHOD(Loopback, "cq: many push, many poll, each completion once", "[cq]") {
  constexpr std::uint64_t kEach = 5000;
  const auto cq = Cq::create(*context, 2 * static_cast<int>(kEach), -1, nullptr);
  std::atomic<std::uint64_t> sum{0}, count{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) cq->push(completion_of(t * kEach + i), false);
    });
    threads.emplace_back([&] {
      ibv_wc out[16];
      std::uint64_t last[2] = {0, 0};
      while (count < 2 * kEach) {
        const int n = cq->poll(16, out);
        for (int i = 0; i < n; ++i) {
          sum += out[i].wr_id;
          // In the order of each pusher.
          auto& before = last[out[i].wr_id / kEach];
          if (before > out[i].wr_id) sum += 1'000'000'000;
          before = out[i].wr_id;
        }
        count += static_cast<std::uint64_t>(n);
        if (n == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(sum == kEach * (2 * kEach - 1));
  CHECK(none(*cq));
}
