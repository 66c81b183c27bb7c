// SPDX-License-Identifier: MIT
// Work between two queue pairs: what arrives, what completes, and who moves it.
#include <cstring>

#include "provider/verbs/qp/qp.h"
#include "tests/unit/provider/rnic.h"

using namespace uiw;
using namespace uiw::test;

namespace {
constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
}

TEST_CASE("qp: sends, writes and reads between two", "[qp]") {
  const bool crc = GENERATE(false, true);
  const std::size_t mulpdu = GENERATE(0, 128, 65535);
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes source = pattern(100'000), target(100'000), inbox(5000), sink(100'000);
  const auto source_mr = a.expose(source, 0), sink_mr = a.expose(sink, IBV_ACCESS_LOCAL_WRITE);
  const auto target_mr = b.expose(target, kAll), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b, crc, 4, mulpdu);
  ibv_sge first = sge_of(inbox, *inbox_mr);
  first.length = 1000;
  ibv_sge second = sge_of(inbox, *inbox_mr);
  second.addr += 1000;
  second.length = 4000;
  REQUIRE(b.post_receive(50, {first, second}) == 0);
  ibv_sge part = sge_of(source, *source_mr);
  part.length = 3000;
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 1, {sge_of(source, *source_mr)}, 0, target_mr->key(), address_of(target)) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {part}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 3, {sge_of(sink, *sink_mr)}, 0, target_mr->key(), address_of(target)) == 0);
  const auto received = next(*b.receive_cq);
  CHECK(received.wr_id == 50);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.byte_len == 3000);
  CHECK(received.qp_num == b.qp->number());
  CHECK((target == source));  // the write was before the send
  CHECK(std::equal(source.begin(), source.begin() + 3000, inbox.begin()));
  const ibv_wc_opcode opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_RDMA_READ};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const auto completion = next(*a.send_cq);
    CHECK(completion.wr_id == id);
    CHECK(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.opcode == opcodes[id - 1]);
    CHECK(completion.qp_num == a.qp->number());
  }
  CHECK((sink == source));
}

TEST_CASE("qp: only what is signaled completes; inline data may change at once", "[qp]") {
  const auto context = open_loopback();
  Side a(*context, 16, 4, 64, false), b(*context);
  Bytes inbox(64);
  const auto inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b);
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(b.post_receive(id, {sge_of(inbox, *inbox_mr)}) == 0);
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

TEST_CASE("qp: unsignaled work frees its place by itself, and completes where it fails (Verbs draft section 8.1.3.1)",
          "[qp]") {
  const auto context = open_loopback();
  Side a(*context, 4, 4, 64, false), b(*context), idle(*context, 4, 4, 64, false);
  attach(a, b);
  for (std::uint64_t id = 0; id < 40; ++id) {
    CHECK(eventually([&] { return a.post(IBV_WR_RDMA_WRITE, id, {}) == 0; }));
  }
  CHECK(none(*a.send_cq));
  idle.to_rts();
  REQUIRE(idle.post(IBV_WR_SEND, 7, {}) == 0);
  CHECK(none(*idle.send_cq));
  CHECK(idle.to(IBV_QPS_ERR) == 0);
  const auto completion = next(*idle.send_cq);
  CHECK(completion.wr_id == 7);
  CHECK(completion.status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("qp: pieces of no octets are not checked (Verbs draft section 8.1.3.2)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  attach(a, b);
  const ibv_sge nowhere{0, 0, 0xDEAD};
  REQUIRE(b.post_receive(1, {nowhere}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {nowhere}) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE("qp: messages wait for receives (Verbs draft section 13.2)", "[qp]") {
  const bool crc = GENERATE(false, true);
  const auto context = open_loopback();
  Side a(*context, 64), b(*context, 64);
  Bytes memory = pattern(20'000), inbox(20'000);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b, crc);
  for (std::uint64_t id = 0; id < 40; ++id) REQUIRE(a.post(IBV_WR_SEND, id, {sge_of(memory, *mr)}) == 0);
  for (std::uint64_t id = 0; id < 40; ++id) {
    CHECK(none(*b.receive_cq));
    std::fill(inbox.begin(), inbox.end(), std::byte{0});
    REQUIRE(b.post_receive(id, {sge_of(inbox, *inbox_mr)}) == 0);
    const auto completion = next(*b.receive_cq);
    REQUIRE(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.wr_id == id);
    CHECK((inbox == memory));
  }
  for (std::uint64_t id = 0; id < 40; ++id) CHECK(next(*a.send_cq).wr_id == id);
}

TEST_CASE("qp: the progress thread moves bytes while nobody polls", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes source = pattern(64), target(64);
  const auto mr = a.expose(source, 0), target_mr = b.expose(target, kAll);
  attach(a, b);
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 1, {sge_of(source, *mr)}, 0, target_mr->key(), address_of(target)) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 2, {}, 0, 0, 0) == 0);
  // The completion of the read says that the write was placed.
  CHECK(next(*a.send_cq).wr_id == 1);
  CHECK(next(*a.send_cq).wr_id == 2);
  CHECK(target == source);
}

TEST_CASE("qp: a completion queue that overruns leaves the streams of others alone (RFC 5040 section 8.1.1)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context), c(*context), d(*context);
  attach(a, b);
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

TEST_CASE("qp: destroyed under traffic", "[qp]") {
  const auto context = open_loopback();
  const Bytes source = pattern(100'000);
  Bytes memory = source, target = source, sink(100'000), other_sink(100'000);
  for (int round = 0; round < 20; ++round) {
    Side b(*context);
    const auto target_mr = b.expose(target, 0), sink_mr = b.expose(sink, kAll);
    {
      Side a(*context);
      const auto mr = a.expose(memory, 0), other_mr = a.expose(other_sink, kAll);
      attach(a, b);
      for (std::uint64_t id = 0; id < 8; ++id) {
        a.post(IBV_WR_RDMA_WRITE, id, {sge_of(memory, *mr)}, 0, sink_mr->key(), address_of(sink));
        b.post(IBV_WR_RDMA_WRITE, id, {sge_of(target, *target_mr)}, 0, other_mr->key(), address_of(other_sink));
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

TEST_CASE("qp: posted to and polled by several threads", "[qp]") {
  const auto context = open_loopback();
  Side a(*context, 64), b(*context, 64);
  Bytes memory = pattern(3000), inbox(3000);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b);
  constexpr unsigned kEach = 300;
  std::atomic<unsigned> posted{0}, sent{0}, received{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (unsigned i = 0; i < kEach;) {
        ibv_sge sge = sge_of(memory, *mr);
        ibv_send_wr request{};
        request.opcode = IBV_WR_SEND;
        request.sg_list = &sge;
        request.num_sge = 1;
        ibv_send_wr* bad = nullptr;
        const int error = a.qp->post_send(&request, &bad);
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
        ibv_sge sge = sge_of(inbox, *inbox_mr);
        ibv_recv_wr request{};
        request.sg_list = &sge;
        request.num_sge = 1;
        ibv_recv_wr* bad = nullptr;
        const int error = b.qp->post_receive(&request, &bad);
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
