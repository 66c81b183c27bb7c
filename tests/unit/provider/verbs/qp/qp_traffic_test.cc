// SPDX-License-Identifier: MIT
// Work between two queue pairs: what arrives, what completes, and who moves it.
#include <cstring>

#include "provider/verbs/qp/qp.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(Pair, "qp: sends, writes and reads between two", "[qp]") {
  const bool crc = GENERATE(false, true);
  const std::size_t mulpdu = GENERATE(0, 128, 65535);
  Registered source(a, pattern(100'000)), sink(a, Bytes(100'000), kLocal);
  Registered target(b, Bytes(100'000), kAll), inbox(b, Bytes(5000), kLocal);
  connect({.crc = crc, .mulpdu = mulpdu});
  REQUIRE(b.post_receive(50, {inbox.sge(0, 1000), inbox.sge(1000, 4000)}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 1, {source.sge()}, target) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {source.sge(0, 3000)}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 3, {sink.sge()}, target) == 0);
  const ibv_wc received = check_next(*b.receive_cq, 50);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.byte_len == 3000);
  CHECK(received.qp_num == b.qp->number());
  CHECK((target == source));  // the write was before the send
  CHECK(std::equal(source.begin(), source.begin() + 3000, inbox.begin()));
  const ibv_wc_opcode opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_RDMA_READ};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const ibv_wc completion = check_next(*a.send_cq, id);
    CHECK(completion.opcode == opcodes[id - 1]);
    CHECK(completion.qp_num == a.qp->number());
  }
  CHECK((sink == source));
}

TEST_CASE("qp: only what is signaled completes; inline data may change at once", "[qp]") {
  Pair pair({.signal_all = false});
  pair.connect();
  Side &a = pair.a, &b = pair.b;
  const Registered inbox(b, Bytes(64), kLocal);
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(b.post_receive(id, {inbox.sge()}) == 0);
  std::uint64_t value = 0x1122334455667788;
  const ibv_sge sge{reinterpret_cast<std::uintptr_t>(&value), sizeof value, 0};
  for (std::uint64_t id = 0; id < 4; ++id) {
    value = 0x1122334455667788;
    REQUIRE(a.post(IBV_WR_SEND, id, {sge}, IBV_SEND_INLINE | (id == 2 ? IBV_SEND_SIGNALED : 0)) == 0);
    value = 0;
    const auto received = next(*b.receive_cq);
    CHECK(received.byte_len == 8);
    std::memcpy(&value, inbox.data(), sizeof value);
    CHECK(value == 0x1122334455667788);
  }
  CHECK(next(*a.send_cq).wr_id == 2);
  CHECK(none(*a.send_cq));
}

TEST_CASE_METHOD(
    Loopback,
    "qp: unsignaled work frees its place by itself, and completes where it fails (Verbs draft section 8.1.3.1)",
    "[qp]") {
  Side a(*context, {.depth = 4, .signal_all = false}), b(*context), idle(*context, {.depth = 4, .signal_all = false});
  attach(a, b);
  for (std::uint64_t id = 0; id < 40; ++id) {
    CHECK(eventually([&] { return a.post(IBV_WR_RDMA_WRITE, id, {}) == 0; }));
  }
  CHECK(none(*a.send_cq));
  idle.to_rts();
  REQUIRE(idle.post(IBV_WR_SEND, 7, {}) == 0);
  CHECK(none(*idle.send_cq));
  CHECK(idle.to(IBV_QPS_ERR) == 0);
  check_next(*idle.send_cq, 7, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE_METHOD(ConnectedPair, "qp: pieces of no octets are not checked (Verbs draft section 8.1.3.2)", "[qp]") {
  const ibv_sge nowhere{0, 0, 0xDEAD};
  REQUIRE(b.post_receive(1, {nowhere}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {nowhere}) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(DeepPair, "qp: messages wait for receives (Verbs draft section 13.2)", "[qp]") {
  const bool crc = GENERATE(false, true);
  Registered memory(a, pattern(20'000)), inbox(b, Bytes(20'000), kLocal);
  connect({.crc = crc});
  for (std::uint64_t id = 0; id < 40; ++id) REQUIRE(a.post(IBV_WR_SEND, id, {memory.sge()}) == 0);
  for (std::uint64_t id = 0; id < 40; ++id) {
    CHECK(none(*b.receive_cq));
    std::fill(inbox.begin(), inbox.end(), std::byte{0});
    REQUIRE(b.post_receive(id, {inbox.sge()}) == 0);
    check_next(*b.receive_cq, id);
    CHECK((inbox == memory));
  }
  for (std::uint64_t id = 0; id < 40; ++id) CHECK(next(*a.send_cq).wr_id == id);
}

TEST_CASE_METHOD(ConnectedPair, "qp: the progress thread moves bytes while nobody polls", "[qp]") {
  Registered source(a, pattern(64)), target(b, Bytes(64), kAll);
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 1, {source.sge()}, target) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 2, {}, 0, 0, 0) == 0);
  // The completion of the read says that the write was placed.
  CHECK(next(*a.send_cq).wr_id == 1);
  CHECK(next(*a.send_cq).wr_id == 2);
  CHECK(target == source);
}

TEST_CASE_METHOD(Pair,
                 "qp: a completion queue that overruns leaves the streams of others alone (RFC 5040 section 8.1.1)",
                 "[qp]") {
  Side c(*context), d(*context);
  connect();
  attach(c, d);
  for (int i = 0; i <= a.send_cq->entries(); ++i) a.send_cq->push(ibv_wc{}, false);
  const auto event = next_event(*context, 0);
  REQUIRE(event);
  CHECK(event->event_type == IBV_EVENT_CQ_ERR);
  REQUIRE(d.post_receive(1, {}) == 0);
  REQUIRE(c.post(IBV_WR_SEND, 1, {}) == 0);
  CHECK(next(*d.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*c.send_cq).status == IBV_WC_SUCCESS);
  CHECK(c.qp->state() == IBV_QPS_RTS);
  CHECK(d.qp->state() == IBV_QPS_RTS);
}

TEST_CASE_METHOD(Loopback, "qp: destroyed under traffic", "[qp]") {
  for (int round = 0; round < 20; ++round) {
    Side b(*context);
    const Registered source(b, pattern(100'000)), sink(b, Bytes(100'000), kAll);
    {
      Side a(*context);
      const Registered source_of_a(a, pattern(100'000)), sink_of_a(a, Bytes(100'000), kAll);
      attach(a, b);
      for (std::uint64_t id = 0; id < 8; ++id) {
        a.post(IBV_WR_RDMA_WRITE, id, {source_of_a.sge()}, sink);
        b.post(IBV_WR_RDMA_WRITE, id, {source.sge()}, sink_of_a);
      }
      a.qp.reset();
    }
    CHECK(eventually([&] {
      ibv_wc completion{};
      b.send_cq->poll(1, &completion);
      return b.qp->state() == IBV_QPS_ERR;
    }));
  }
}

TEST_CASE_METHOD(DeepPair, "qp: posted to and polled by several threads", "[qp]") {
  Registered memory(a, pattern(3000)), inbox(b, Bytes(3000), kLocal);
  connect();
  constexpr unsigned kEach = 300;
  std::atomic<unsigned> posted{0}, sent{0}, received{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (unsigned i = 0; i < kEach;) {
        const int error = a.try_post(IBV_WR_SEND, 0, {memory.sge()});
        if (error == 0) {
          ++i;
          ++posted;
        } else if (error != ENOMEM) {
          ++wrong;
          return;
        }
        ibv_wc completion{};
        if (a.send_cq->poll(1, &completion) == 1) {
          ++sent;
          if (completion.status != IBV_WC_SUCCESS) ++wrong;
        }
      }
    });
    threads.emplace_back([&] {
      ibv_wc completion{};
      while (received < 2 * kEach && wrong == 0) {
        const int error = b.post_receive(0, {inbox.sge()});
        if (error != 0 && error != ENOMEM) ++wrong;
        if (b.receive_cq->poll(1, &completion) == 1) {
          ++received;
          if (completion.status != IBV_WC_SUCCESS || completion.byte_len != 3000) ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(received == 2 * kEach);
}
