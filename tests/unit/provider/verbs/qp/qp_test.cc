// SPDX-License-Identifier: MIT
// What a queue pair is before it has a stream: its creation, its states, and what may be posted to it.
#include "provider/verbs/qp/qp.h"

#include <cerrno>
#include <cstring>

#include "provider/process/limits.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

// Of a list, those before the bad one are posted.
void check_list_is_posted_in_part(Side& side) {
  ibv_send_wr* bad = nullptr;
  ibv_send_wr list[3] = {};
  for (int i = 0; i < 3; ++i) {
    list[i].opcode = IBV_WR_SEND;
    list[i].wr_id = static_cast<std::uint64_t>(i);
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
  }
  list[1].num_sge = -1;
  CHECK(side.qp->post_send(list, &bad) == EINVAL);
  CHECK(bad == &list[1]);
}

}  // namespace

TEST_CASE_METHOD(Loopback, "qp: creation checks type, queues and caps", "[qp]") {
  Pd pd(context);
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

TEST_CASE_METHOD(Loopback, "qp: numbers are 24 bits, and not used twice at a time", "[qp]") {
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

TEST_CASE_METHOD(Single, "qp: states (Verbs draft section 6.2, manual page of ibv_modify_qp)", "[qp]") {
  CHECK(a.qp->state() == IBV_QPS_INIT);
  CHECK(a.to(IBV_QPS_INIT) == 0);
  CHECK(a.to(IBV_QPS_RTS) == EINVAL);
  CHECK(a.to(IBV_QPS_SQD) == EINVAL);
  CHECK(a.qp->state() == IBV_QPS_INIT);
  CHECK(a.to(IBV_QPS_RTR) == 0);
  CHECK(a.to(IBV_QPS_RTS) == EINVAL);  // the connection manager makes this step
  a.to_rts();
  CHECK(a.to(IBV_QPS_RTS) == 0);
  CHECK(a.to(IBV_QPS_INIT) == EINVAL);
  CHECK(a.qp->state() == IBV_QPS_RTS);
  CHECK(a.to(IBV_QPS_ERR) == 0);
  CHECK(a.to(IBV_QPS_RTS) == EINVAL);
  CHECK(a.to(IBV_QPS_ERR) == 0);
  CHECK(a.to(IBV_QPS_RESET) == 0);
  CHECK(a.qp->state() == IBV_QPS_INIT);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 2;
  CHECK(a.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);
  attributes.port_num = 1;
  attributes.cur_qp_state = IBV_QPS_RTS;
  CHECK(a.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CUR_STATE) == EINVAL);
  attributes.cur_qp_state = IBV_QPS_RESET;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  attributes.pkey_index = 0;
  CHECK(a.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS) == 0);
  ibv_qp_init_attr init{};
  a.qp->query(attributes, init);
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(attributes.port_num == 1);
  CHECK(attributes.qp_access_flags == IBV_ACCESS_REMOTE_READ);
  CHECK(init.cap.max_send_wr == 16);
  CHECK(attributes.cap.max_inline_data >= 64);
}

TEST_CASE_METHOD(Loopback, "qp: errno of ibv_post_send for each wrong argument", "[qp]") {
  Side side(*context, {.depth = 4, .sges = 2, .most_inline = 16});
  Registered memory(side, Bytes(4096), kAll);
  const ibv_sge sge = memory.sge();
  ibv_sge small = sge;
  small.length = 16;
  CHECK(side.post(IBV_WR_SEND, 1, {sge}) == EINVAL);  // INIT
  REQUIRE(side.to(IBV_QPS_RTR) == 0);
  CHECK(side.post(IBV_WR_SEND, 1, {sge}) == EINVAL);
  side.to_rts();
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
  check_list_is_posted_in_part(side);
  CHECK(side.post(IBV_WR_SEND, 9, {}) == 0);
  CHECK(side.post(IBV_WR_SEND, 9, {}) == 0);
  CHECK(side.post(IBV_WR_SEND, 9, {}) == ENOMEM);  // four are there
  CHECK(none(*side.send_cq));
  CHECK(side.to(IBV_QPS_ERR) == 0);
  for (const std::uint64_t id : {1, 0, 9, 9}) check_next(*side.send_cq, id, IBV_WC_WR_FLUSH_ERR);
  CHECK(none(*side.send_cq));
}

TEST_CASE_METHOD(Loopback, "qp: errno of ibv_post_recv for each wrong argument", "[qp]") {
  Side side(*context, {.depth = 4, .sges = 2});
  Registered memory(side, Bytes(4096), kAll);
  const ibv_sge sge = memory.sge();
  CHECK(side.post_receive(1, {sge, sge, sge}) == EINVAL);
  ibv_recv_wr request{};
  ibv_recv_wr* bad = nullptr;
  request.num_sge = -1;
  CHECK(side.qp->post_receive(&request, &bad) == EINVAL);
  CHECK(bad == &request);
  for (std::uint64_t id = 1; id <= 4; ++id) CHECK(side.post_receive(id, {sge, sge}) == 0);
  CHECK(side.post_receive(5, {}) == ENOMEM);
  CHECK(side.to(IBV_QPS_ERR) == 0);
  for (std::uint64_t id = 1; id <= 4; ++id) check_next(*side.receive_cq, id, IBV_WC_WR_FLUSH_ERR);
  // In error, whatever is posted comes back flushed.
  CHECK(side.post_receive(6, {}) == 0);
  CHECK(next(*side.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(side.post(IBV_WR_SEND, 7, {}) == 0);
  CHECK(next(*side.send_cq).status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE_METHOD(Pair, "qp: back to RESET and connected again", "[qp]") {
  for (int round = 0; round < 3; ++round) {
    attach(a, b);
    REQUIRE(b.post_receive(1, {}) == 0);
    REQUIRE(b.post_receive(2, {}) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
    CHECK(a.to(IBV_QPS_RESET) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(b.enters_error());
    CHECK(b.to(IBV_QPS_RESET) == 0);
    CHECK(none(*a.send_cq));
    CHECK(none(*b.receive_cq));
  }
}

TEST_CASE_METHOD(Pair, "qp: a stream is given once, and in the right state", "[qp]") {
  auto [one, two] = tcp_pair();
  const int fd = one.fd();
  REQUIRE(a.to(IBV_QPS_ERR) == 0);
  CHECK_FALSE(a.qp->can_attach());
  CHECK(a.qp->attach(one, {}) == EINVAL);
  CHECK(one.fd() == fd);
  REQUIRE(a.to(IBV_QPS_RESET) == 0);
  connect();
  CHECK_FALSE(a.qp->can_attach());
  CHECK(a.qp->attach(one, {}) == EISCONN);
  CHECK(one.fd() == fd);
}
