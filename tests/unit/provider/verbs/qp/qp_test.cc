// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp.h"

#include <cerrno>
#include <cstring>

#include "provider/verbs/limits.h"
#include "tests/unit/provider/rnic.h"

using namespace uiw;
using namespace uiw::test;

namespace {
constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
}

TEST_CASE("qp: creation checks type, queues and caps", "[qp]") {
  const auto context = open_loopback();
  Pd pd(*context);
  const auto cq = Cq::create(*context, 16, -1, nullptr);
  const auto error = [&](ibv_qp_init_attr attributes, Cq* send, Cq* receive) {
    errno = 0;
    return Qp::create(*context, pd, send, receive, attributes, nullptr) ? 0 : errno;
  };
  ibv_qp_init_attr good{};
  good.qp_type = IBV_QPT_RC;
  good.cap = {16, 16, 1, 1, 0};
  CHECK(error(good, cq.get(), cq.get()) == 0);
  CHECK(error(good, nullptr, cq.get()) == EINVAL);
  CHECK(error(good, cq.get(), nullptr) == EINVAL);
  good.qp_type = IBV_QPT_UC;  // has RC's stream
  CHECK(error(good, cq.get(), cq.get()) == 0);
  good.qp_type = IBV_QPT_RC;
  for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
    ibv_qp_init_attr attributes = good;
    attributes.qp_type = type;
    CHECK(error(attributes, cq.get(), cq.get()) == EOPNOTSUPP);
  }
  for (int which = 0; which < 5; ++which) {
    for (const bool beyond : {false, true}) {
      ibv_qp_init_attr attributes = good;
      const std::uint32_t more = beyond ? 1 : 0;
      if (which == 0) attributes.cap.max_send_wr = provider::kMaxQpWr + more;
      if (which == 1) attributes.cap.max_recv_wr = provider::kMaxQpWr + more;
      if (which == 2) attributes.cap.max_send_sge = provider::kMaxSge + more;
      if (which == 3) attributes.cap.max_recv_sge = provider::kMaxSge + more;
      if (which == 4) attributes.cap.max_inline_data = provider::kMaxInline + more;
      CHECK(error(attributes, cq.get(), cq.get()) == (beyond ? EINVAL : 0));
    }
  }
  CHECK_FALSE(pd.in_use());
}

TEST_CASE("qp: numbers are 24 bits, and not used twice at a time", "[qp]") {
  const auto context = open_loopback();
  std::vector<std::unique_ptr<Side>> sides;
  for (int i = 0; i < 20; ++i) {
    sides.push_back(std::make_unique<Side>(*context));
    const std::uint32_t number = sides.back()->qp->number();
    CHECK(number >= 1024U << 8);
    CHECK(number < 1U << 24);
    for (int j = 0; j < i; ++j) CHECK(sides[static_cast<std::size_t>(j)]->qp->number() != number);
  }
  unsigned events = 0;
  CHECK(sides[0]->send_cq->prepare_destroy(events) == EBUSY);
  CHECK(sides[0]->pd.in_use());
  sides[0]->qp.reset();
  CHECK(sides[0]->send_cq->prepare_destroy(events) == 0);
  CHECK_FALSE(sides[0]->pd.in_use());
}

TEST_CASE("qp: states (Verbs draft section 6.2, manual page of ibv_modify_qp)", "[qp]") {
  const auto context = open_loopback();
  Side side(*context);
  CHECK(side.qp->state() == IBV_QPS_RESET);
  CHECK(side.to(IBV_QPS_RTR) == EINVAL);
  CHECK(side.to(IBV_QPS_RTS) == EINVAL);
  CHECK(side.to(IBV_QPS_SQD) == EINVAL);
  CHECK(side.to(IBV_QPS_INIT) == 0);
  CHECK(side.to(IBV_QPS_INIT) == 0);
  CHECK(side.to(IBV_QPS_RTS) == EINVAL);
  CHECK(side.to(IBV_QPS_SQD) == EINVAL);
  CHECK(side.qp->state() == IBV_QPS_INIT);
  CHECK(side.to(IBV_QPS_RTR) == 0);
  CHECK(side.to(IBV_QPS_RTS) == 0);
  CHECK(side.to(IBV_QPS_RTS) == 0);
  CHECK(side.to(IBV_QPS_INIT) == EINVAL);
  CHECK(side.qp->state() == IBV_QPS_RTS);
  CHECK(side.to(IBV_QPS_ERR) == 0);
  CHECK(side.to(IBV_QPS_RTS) == EINVAL);
  CHECK(side.to(IBV_QPS_ERR) == 0);
  CHECK(side.to(IBV_QPS_RESET) == 0);
  CHECK(side.qp->state() == IBV_QPS_RESET);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 2;
  CHECK(side.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);
  attributes.port_num = 1;
  attributes.cur_qp_state = IBV_QPS_RTS;
  CHECK(side.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CUR_STATE) == EINVAL);
  attributes.cur_qp_state = IBV_QPS_RESET;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  attributes.pkey_index = 0;
  CHECK(side.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS) == 0);
  ibv_qp_init_attr init{};
  side.qp->query(attributes, init);
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(attributes.port_num == 1);
  CHECK(attributes.qp_access_flags == IBV_ACCESS_REMOTE_READ);
  CHECK(init.cap.max_send_wr == 16);
  CHECK(attributes.cap.max_inline_data >= 64);
}

TEST_CASE("qp: errno of ibv_post_send for each wrong argument", "[qp]") {
  const auto context = open_loopback();
  Side side(*context, 4, 2, 16);
  Bytes memory(4096);
  const auto mr = side.expose(memory, kAll);
  const ibv_sge sge = sge_of(memory, *mr);
  ibv_sge small = sge;
  small.length = 16;
  CHECK(side.post(IBV_WR_SEND, 1, {sge}) == EINVAL);  // RESET
  REQUIRE(side.to(IBV_QPS_INIT) == 0);
  CHECK(side.post(IBV_WR_SEND, 1, {sge}) == EINVAL);
  REQUIRE(side.to(IBV_QPS_RTR) == 0);
  CHECK(side.post(IBV_WR_SEND, 1, {sge}) == EINVAL);
  REQUIRE(side.to(IBV_QPS_RTS) == 0);
  CHECK(side.post(IBV_WR_SEND, 1, {sge, sge, sge}) == EINVAL);
  ibv_qp_attr granted{};
  ibv_qp_init_attr init{};
  side.qp->query(granted, init);
  REQUIRE(granted.cap.max_inline_data >= 16);
  REQUIRE(granted.cap.max_inline_data < 4096);
  small.length = granted.cap.max_inline_data;
  CHECK(side.post(IBV_WR_SEND, 1, {small}, IBV_SEND_INLINE) == 0);
  ++small.length;
  CHECK(side.post(IBV_WR_SEND, 1, {small}, IBV_SEND_INLINE) == EINVAL);
  small.length = 8;
  CHECK(side.post(IBV_WR_SEND, 1, {small, sge}, IBV_SEND_INLINE) == EINVAL);
  CHECK(side.post(IBV_WR_RDMA_READ, 1, {small}, IBV_SEND_INLINE) == EINVAL);
  for (const ibv_wr_opcode opcode : {IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_DRIVER1}) {
    CHECK(side.post(opcode, 1, {sge}) != 0);
  }
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.opcode = IBV_WR_SEND;
  request.num_sge = -1;
  CHECK(side.qp->post_send(&request, &bad) == EINVAL);
  CHECK(bad == &request);
  ibv_sge huge = sge;
  huge.length = 0xFFFFFFFF;
  CHECK(side.post(IBV_WR_SEND, 1, {huge, huge}) == EINVAL);  // more than the device's longest message

  // Of a list, those before the bad one are posted.
  ibv_send_wr list[3] = {};
  for (int i = 0; i < 3; ++i) {
    list[i].opcode = IBV_WR_SEND;
    list[i].wr_id = static_cast<std::uint64_t>(i);
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
  }
  list[1].num_sge = -1;
  CHECK(side.qp->post_send(list, &bad) == EINVAL);
  CHECK(bad == &list[1]);
  CHECK(side.post(IBV_WR_SEND, 9, {}) == 0);
  CHECK(side.post(IBV_WR_SEND, 9, {}) == 0);
  CHECK(side.post(IBV_WR_SEND, 9, {}) == ENOMEM);  // four are there
  CHECK(none(*side.send_cq));
  CHECK(side.to(IBV_QPS_ERR) == 0);
  for (const std::uint64_t id : {1, 0, 9, 9}) {
    const auto completion = next(*side.send_cq);
    CHECK(completion.wr_id == id);
    CHECK(completion.status == IBV_WC_WR_FLUSH_ERR);
  }
  CHECK(none(*side.send_cq));
}

TEST_CASE("qp: errno of ibv_post_recv for each wrong argument", "[qp]") {
  const auto context = open_loopback();
  Side side(*context, 4, 2);
  Bytes memory(4096);
  const auto mr = side.expose(memory, kAll);
  const ibv_sge sge = sge_of(memory, *mr);
  CHECK(side.post_receive(1, {sge}) == EINVAL);  // RESET
  REQUIRE(side.to(IBV_QPS_INIT) == 0);
  CHECK(side.post_receive(1, {sge, sge, sge}) == EINVAL);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.num_sge = -1;
  CHECK(side.qp->post_receive(&request, &bad) == EINVAL);
  CHECK(bad == &request);
  for (std::uint64_t id = 1; id <= 4; ++id) CHECK(side.post_receive(id, {sge, sge}) == 0);
  CHECK(side.post_receive(5, {}) == ENOMEM);
  CHECK(side.to(IBV_QPS_ERR) == 0);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const auto completion = next(*side.receive_cq);
    CHECK(completion.wr_id == id);
    CHECK(completion.status == IBV_WC_WR_FLUSH_ERR);
  }
  // In error, whatever is posted comes back flushed.
  CHECK(side.post_receive(6, {}) == 0);
  CHECK(next(*side.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(side.post(IBV_WR_SEND, 7, {}) == 0);
  CHECK(next(*side.send_cq).status == IBV_WC_WR_FLUSH_ERR);
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

TEST_CASE("qp: a bad lkey completes in its turn and ends the stream", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes memory(100);
  const auto mr = a.expose(memory, kAll);
  attach(a, b);
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
  ibv_sge sge = sge_of(memory, *mr);
  sge.lkey ^= 1;
  REQUIRE(a.post(IBV_WR_SEND, 2, {sge}) == 0);
  a.post(IBV_WR_SEND, 3, {});
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  const auto completion = next(*a.send_cq);
  CHECK(completion.wr_id == 2);
  CHECK(completion.status == IBV_WC_LOC_PROT_ERR);
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: a read of what is not allowed fails at both ends (RFC 5040 section 7.2)", "[qp]") {
  const auto context = open_loopback(), other = open_loopback();
  Side a(*context), b(*other);
  Bytes memory(100), sink(100);
  const auto mr = b.expose(memory, IBV_ACCESS_LOCAL_WRITE);
  const auto sink_mr = a.expose(sink, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b);
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 1, {sge_of(sink, *sink_mr)}, 0, mr->key(), address_of(memory)) == 0);
  const auto completion = next(*a.send_cq);
  CHECK(completion.wr_id == 1);
  CHECK(completion.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  const auto at_a = next_event(*context), at_b = next_event(*other);
  REQUIRE((at_a && at_b));
  CHECK(at_a->event_type == IBV_EVENT_QP_FATAL);
  CHECK(at_a->element == reinterpret_cast<std::uintptr_t>(a.handle()));
  CHECK(at_b->event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: a message longer than the receive (RFC 5040 section 5.3)", "[qp]") {
  const bool crc = GENERATE(false, true);
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes memory(1000), inbox(999);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b, crc);
  REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
  REQUIRE(b.post_receive(2, {sge_of(inbox, *inbox_mr)}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {sge_of(memory, *mr)}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_LOC_LEN_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
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

TEST_CASE("qp: orderly end: what is posted is sent first", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes memory = pattern(1'000'000), inbox(1'000'000);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  CHECK(a.qp->disconnect(nullptr) == ENOTCONN);
  attach(a, b);
  REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {sge_of(memory, *mr)}) == 0);
  CHECK(a.qp->disconnect(nullptr) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK((inbox == memory));
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return b.qp->state() == IBV_QPS_ERR; }));
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  CHECK(a.qp->disconnect(nullptr) == ENOTCONN);
}

TEST_CASE("qp: SQD is the draft's Closing state: an orderly end without an event (Verbs draft section 6.2.5)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  attach(a, b);
  REQUIRE(a.post_receive(1, {}) == 0);
  REQUIRE(b.post_receive(1, {}) == 0);
  CHECK(a.to(IBV_QPS_SQD) == 0);
  CHECK(a.to(IBV_QPS_SQD) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {}) == 0);  // too late
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE("qp: posts in error while an FPDU is on its way harm nothing", "[qp]") {
  const auto context = open_loopback();
  Side a(*context, 4), b(*context, 4);
  Bytes memory(24'000'000), sink(64);  // more than two sockets hold
  const auto mr = a.expose(memory, kAll);
  attach(a, b);
  // b has no receive and stops reading; a's socket fills up in the middle of an FPDU.
  const ibv_sge all = sge_of(memory, *mr);
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(a.post(IBV_WR_SEND, id, {all}) == 0);
  // b writes to where it must not: a says so in a Terminate, behind its FPDU.
  ibv_sge own = {};
  const auto own_mr = b.expose(sink, kAll);
  own = sge_of(sink, *own_mr);
  REQUIRE(b.post(IBV_WR_RDMA_WRITE, 1, {own}, 0, 0xDEAD00, 0) == 0);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  for (std::uint64_t id = 0; id < 4; ++id) CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  for (std::uint64_t id = 0; id < 16; ++id) {
    REQUIRE(a.post(IBV_WR_SEND, id, {}) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  }
  // b reads again, so that a's socket takes the rest.
  Bytes inbox(24'000'000);
  const auto inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return b.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: back to RESET and connected again", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  for (int round = 0; round < 3; ++round) {
    attach(a, b);
    REQUIRE(b.post_receive(1, {}) == 0);
    REQUIRE(b.post_receive(2, {}) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
    CHECK(a.to(IBV_QPS_RESET) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(eventually([&] { return b.qp->state() == IBV_QPS_ERR; }));
    CHECK(b.to(IBV_QPS_RESET) == 0);
    CHECK(none(*a.send_cq));
    CHECK(none(*b.receive_cq));
  }
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

TEST_CASE("qp: a stream is given once, and in the right state", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  auto [one, two] = tcp_pair();
  const int fd = one.fd();
  CHECK_FALSE(a.qp->can_attach(false));
  CHECK(a.qp->attach(one, {}) == EINVAL);  // RESET
  CHECK(one.fd() == fd);
  attach(a, b);
  CHECK_FALSE(a.qp->can_attach(false));
  CHECK(a.qp->attach(one, {}) == EISCONN);
  CHECK(one.fd() == fd);
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
