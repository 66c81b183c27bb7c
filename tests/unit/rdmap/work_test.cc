// SPDX-License-Identifier: MIT
#include "rdmap/work.h"

#include <catch2/catch.hpp>
#include <thread>

using namespace uiw::rdmap;

TEST_CASE("work: send queue wraps, holds its depth and no more", "[work]") {
  const std::uint32_t depth = GENERATE(1, 2, 3, 7, 16, 100);
  SendQueue queue(depth, 3, 5);
  CHECK(queue.depth() == depth);
  CHECK(queue.empty());
  for (std::uint64_t round = 0; round < 5; ++round) {
    while (queue.has_room(queue.tail())) {
      const std::uint64_t at = queue.tail();
      queue.at(at) = {};
      queue.at(at).id = at;
      queue.at(at).sges = 3;
      for (unsigned i = 0; i < 3; ++i) queue.sge_room(at)[i] = {{}, 0, at * 10 + i, {}};
      queue.push();
    }
    CHECK(queue.full());
    CHECK(queue.size() == depth);
    for (std::uint32_t i = 0; i <= depth / 2; ++i) {
      const std::uint64_t at = queue.head();
      CHECK(queue.at(at).id == at);
      CHECK(queue.sges(at).size() == 3);
      CHECK(queue.sges(at)[2].offset == at * 10 + 2);
      queue.pop();
    }
  }
}

TEST_CASE("work: send queue without scatter/gather elements still has room for inline data", "[work]") {
  SendQueue queue(2, 0, 16);
  REQUIRE((queue.has_room(0) && queue.has_room(1)));
  queue.at(0) = {};
  CHECK(queue.sges(0).empty());
  CHECK(queue.inline_room(1) - queue.inline_room(0) == 16);
}

TEST_CASE("work: entries behind the tail can be filled in and posted together", "[work]") {
  SendQueue queue(4, 1, 0);
  queue.push();
  CHECK(queue.has_room(3));
  CHECK_FALSE(queue.has_room(4));
  queue.pop();
  CHECK(queue.has_room(4));
  queue.push(3);
  CHECK(queue.size() == 3);
  CHECK(queue.tail() == 4);
}

TEST_CASE("work: a queue of depth 0 is always full", "[work]") {
  SendQueue send(0, 0, 0);
  CHECK(send.full());
  CHECK(send.empty());
  ReceiveQueue receive(0, 0);
  CHECK_FALSE(receive.has_room());
  CHECK(receive.empty());
}

TEST_CASE("work: one posts receives and another takes them", "[work]") {
  const std::uint32_t depth = GENERATE(1, 3, 8, 100);
  constexpr std::uint64_t kCount = 20'000;
  ReceiveQueue queue(depth, 2);
  std::thread poster([&] {
    for (std::uint64_t id = 0; id < kCount;) {
      if (!queue.has_room()) {
        std::this_thread::yield();
        continue;
      }
      queue.slot() = {id, static_cast<std::uint32_t>(id), 2};
      queue.slot_sges()[0] = {{}, 0, id, {}};
      queue.slot_sges()[1] = {{}, 0, id + 1, {}};
      queue.push();
      ++id;
    }
  });
  bool good = true;
  for (std::uint64_t id = 0; id < kCount;) {
    if (queue.empty()) {
      std::this_thread::yield();
      continue;
    }
    const auto sges = queue.front_sges();
    good = good && queue.front().id == id && sges.size() == 2 && sges[0].offset == id && sges[1].offset == id + 1;
    queue.pop();
    ++id;
  }
  poster.join();
  CHECK(good);
  CHECK(queue.empty());
}

TEST_CASE("work: a ring between one pusher and one taker", "[work]") {
  const std::uint32_t capacity = GENERATE(1, 3, 8, 100);
  SpscRing<std::uint64_t> ring(capacity);
  CHECK(ring.capacity() == capacity);
  for (std::uint64_t i = 0; i < capacity; ++i) CHECK(ring.push(i));
  CHECK_FALSE(ring.push(99));
  CHECK(ring.size() == capacity);
  for (std::uint64_t i = 0; i < capacity; ++i) {
    CHECK(ring.front() == i);
    CHECK(ring.at(ring.popped()) == i);
    ring.pop();
  }
  CHECK(ring.empty());
  constexpr std::uint64_t kCount = 20'000;
  std::thread pusher([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (ring.push(i)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  bool good = true;
  for (std::uint64_t i = 0; i < kCount;) {
    if (ring.empty()) {
      std::this_thread::yield();
      continue;
    }
    good = good && ring.front() == i;
    ring.pop();
    ++i;
  }
  pusher.join();
  CHECK(good);
}

TEST_CASE("work: a ring of no capacity takes nothing", "[work]") {
  SpscRing<int> ring(0);
  CHECK_FALSE(ring.push(1));
  CHECK(ring.empty());
}
