// SPDX-License-Identifier: MIT
// Shared receive queues under traffic: who gets a receive, and in which order.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <random>

#include "tests/unit/provider/verbs/pool_pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(Loopback, "srq: many queue pairs take in any order, each its own messages in order", "[srq]") {
  const std::size_t many = GENERATE(3, 12);
  constexpr std::uint32_t kEach = 200;
  Pool pool(*context, 16);
  auto all = pairs_of(pool, many);
  std::mt19937 random(7);
  std::vector<std::uint32_t> sent(many), received(many);
  std::vector<unsigned> flying(many);
  std::deque<std::uint64_t> idle;
  for (std::uint64_t id = 0; id < 64; ++id) idle.push_back(id);
  std::vector<bool> posted(64);
  for (std::size_t left = many * kEach; left > 0;) {
    // Sometimes more than are sent, sometimes none for a while.
    if (random() % 3 != 0) {
      for (unsigned n = random() % 5; n > 0; --n) {
        const std::uint64_t id = idle.front();
        if (pool.post(id) != 0) break;
        idle.pop_front();
        posted[id] = true;
      }
    }
    const std::size_t who = random() % many;
    if (sent[who] < kEach && all[who]->send(sent[who], 4 + random() % 60) == 0) ++sent[who];
    for (std::size_t i = 0; i < many; ++i) {
      ibv_wc completion{};
      all[i]->a.send_cq->poll(1, &completion);
      if (all[i]->b.receive_cq->poll(1, &completion) != 1) continue;
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      REQUIRE(completion.opcode == IBV_WC_RECV);
      REQUIRE(completion.qp_num == all[i]->b.qp->number());
      REQUIRE(completion.wr_id < 64);
      REQUIRE(posted[completion.wr_id]);
      posted[completion.wr_id] = false;
      REQUIRE(number_at(pool, completion.wr_id) == received[i]);
      ++received[i];
      idle.push_back(completion.wr_id);
      --left;
    }
  }
}

TEST_CASE_METHOD(Loopback, "srq: those without a receive are served in turn, the program polling or not", "[srq]") {
  const std::size_t many = GENERATE(1, 4, 12);
  constexpr std::uint32_t kEach = 8;
  Pool pool(*context);
  auto all = pairs_of(pool, many);
  for (auto& couple : all) {
    for (std::uint32_t i = 0; i < kEach; ++i) REQUIRE(couple->send(i, 64) == 0);
  }
  REQUIRE(eventually([&] { return pool.srq->waiting() == many; }));
  std::vector<std::uint32_t> received(many);
  for (std::uint32_t round = 0; round < kEach; ++round) {
    std::vector<bool> served(many);
    for (std::size_t i = 0; i < many; ++i) {
      REQUIRE(pool.post(i) == 0);
      const auto [who, completion] = next(all);
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      CHECK_FALSE(served[who]);
      served[who] = true;
      CHECK(number_at(pool, completion.wr_id) == received[who]++);
      const std::size_t done = round + 1 < kEach ? 0 : i + 1;
      REQUIRE(eventually([&] { return pool.srq->waiting() == many - done; }));
    }
  }
  CHECK(pool.srq->waiting() == 0);
  // Enough for all at once, and nobody polls: what is posted comes all the same.
  std::fill(pool.memory.begin(), pool.memory.end(), std::byte{0});
  for (auto& couple : all) REQUIRE(couple->send(0xFFFFFFFF, 64) == 0);
  for (std::size_t i = 0; i < many; ++i) REQUIRE(pool.post(i) == 0);
  for (std::size_t i = 0; i < many; ++i) {
    CHECK(eventually([&] { return std::atomic_ref(pool.memory[i * pool.slot]).load() == std::byte{0xFF}; }));
  }
}

TEST_CASE_METHOD(Loopback, "srq: a busy queue pair leaves receives to the others", "[srq]") {
  Pool pool(*context, 4);
  auto all = pairs_of(pool, 2);
  std::uint32_t busy = 0;
  std::uint64_t id = 0;
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (; busy < 8 + 3 * round; ++busy) {
      REQUIRE(all[0]->send(busy, 64) == 0);
      CHECK(next(*all[0]->a.send_cq).status == IBV_WC_SUCCESS);
    }
    REQUIRE(eventually([&] { return pool.srq->waiting() == 1; }));
    REQUIRE(all[1]->send(round, 64) == 0);
    CHECK(next(*all[1]->a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(eventually([&] { return pool.srq->waiting() == 2; }));
    // Four receives, and messages enough of the busy one, who also came first: one is for the other all the same.
    ibv_recv_wr list[4] = {};
    ibv_sge sges[4];
    for (int i = 0; i < 4; ++i) {
      sges[i] = {address_of(pool.memory) + id * pool.slot, 64, pool.mr->key()};
      list[i] = {id++ % 64, i < 3 ? &list[i + 1] : nullptr, &sges[i], 1};
      id %= 64;
    }
    ibv_recv_wr* bad = nullptr;
    REQUIRE(pool.srq->post(list, &bad) == 0);
    unsigned quiet = 0;
    for (int i = 0; i < 4; ++i) quiet += next(all).first == 1 ? 1 : 0;
    REQUIRE(quiet == 1);
  }
}

TEST_CASE_METHOD(Loopback, "srq: queue pairs come and go under traffic", "[srq]") {
  Pool pool(*context, 8);
  auto lasting = pairs_of(pool, 1);
  std::uint32_t sent = 0, received = 0;
  std::uint64_t id = 0;
  for (int round = 0; round < 30; ++round) {
    auto fleeting = pairs_of(pool, 3);
    for (auto& couple : fleeting) {
      for (std::uint32_t i = 0; i < 8; ++i) REQUIRE(couple->send(i, 64) == 0);
    }
    while (sent - received < 8) REQUIRE(lasting[0]->send(sent++, 64) == 0);
    for (int i = 0; i < 8; ++i) pool.post(id++ % 64);
    fleeting[0]->b.qp.reset();
    fleeting[1]->a.qp.reset();
    for (int i = 0; i < 8; ++i) pool.post(id++ % 64);
    fleeting.clear();
    // Whatever the others have taken: with receives posted, the one that stays gets its messages.
    while (received < sent) {
      ibv_wc completion{};
      lasting[0]->a.send_cq->poll(1, &completion);
      if (lasting[0]->b.receive_cq->poll(1, &completion) != 1) {
        pool.post(id++ % 64);
        continue;
      }
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      ++received;
    }
  }
}

TEST_CASE_METHOD(Loopback, "srq: threads post and others take", "[srq]") {
  constexpr std::size_t kPairs = 4;
  constexpr std::uint32_t kEach = 400;
  Pool pool(*context, 6);
  auto all = pairs_of(pool, kPairs);
  std::mutex mutex;
  std::deque<std::uint64_t> idle;
  for (std::uint64_t id = 0; id < 64; ++id) idle.push_back(id);
  std::atomic<unsigned> wrong{0}, received{0};
  std::vector<std::thread> threads;
  const auto working = [&] { return received < kPairs * kEach && wrong == 0; };
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (working()) {
        std::uint64_t id;
        {
          const std::lock_guard lock(mutex);
          if (idle.empty()) continue;
          id = idle.front();
          idle.pop_front();
        }
        const int error = pool.post(id);
        if (error == 0) continue;
        if (error != ENOMEM) ++wrong;
        {
          const std::lock_guard lock(mutex);
          idle.push_back(id);
        }
        std::this_thread::yield();
      }
    });
  }
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::uint32_t sent[kPairs] = {}, next_number[kPairs] = {};
      while (working()) {
        for (std::size_t i = t; i < kPairs; i += 2) {
          PoolPair& couple = *all[i];
          if (sent[i] < kEach && couple.send(sent[i], 64) == 0) ++sent[i];
          ibv_wc completion{};
          if (couple.a.send_cq->poll(1, &completion) == 1 && completion.status != IBV_WC_SUCCESS) ++wrong;
          if (couple.b.receive_cq->poll(1, &completion) != 1) continue;
          if (completion.status != IBV_WC_SUCCESS || number_at(pool, completion.wr_id) != next_number[i]++) ++wrong;
          {
            const std::lock_guard lock(mutex);
            idle.push_back(completion.wr_id);
          }
          ++received;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(received == kPairs * kEach);
}
