// SPDX-License-Identifier: MIT
// IBV_WR_SEND_WITH_IMM, where it was agreed on and where it was not.
#include <endian.h>

#include <cerrno>

#include "tests/unit/provider/verbs/srq_pool.h"

using namespace uiw;
using namespace uiw::test;

namespace {

ibv_send_wr request(std::uint64_t id, std::uint32_t value, ibv_sge* sge = nullptr) {
  ibv_send_wr made{};
  made.wr_id = id;
  made.opcode = IBV_WR_SEND_WITH_IMM;
  made.imm_data = htobe32(value);
  made.sg_list = sge;
  made.num_sge = sge != nullptr ? 1 : 0;
  return made;
}

int post(Side& side, ibv_send_wr made) {
  ibv_send_wr* bad = nullptr;
  return side.qp->post_send(&made, &bad);
}

}  // namespace

TEST_CASE("send_immediate: a receive, also of a shared queue, completes with it", "[send_immediate]") {
  const auto context = open_loopback();
  const bool shared = GENERATE(false, true), crc = GENERATE(false, true);
  Pool pool(*context);
  Side near(*context), far(*context, 16, 4, 64, true, shared ? pool.srq.get() : nullptr);
  attach(near, far, crc, 4, 128, GENERATE(mpa::PeerKind::uiw, mpa::PeerKind::not_known));
  Bytes data = pattern(200), inbox(256);
  const auto source = near.expose(data, 0);
  const auto sink = far.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  for (std::uint64_t id : {0U, 1U}) {
    REQUIRE((shared ? pool.post(id) : far.post_receive(id, {sge_of(inbox, *sink)})) == 0);
  }
  ibv_sge sge = sge_of(data, *source);
  REQUIRE(post(near, request(7, 0xA1B2C3D4, &sge)) == 0);
  near.qp->begin_batch();
  near.qp->add(request(8, 5));
  REQUIRE(near.qp->end_batch() == 0);
  for (const std::uint64_t id : {7U, 8U}) {
    const ibv_wc done = next(*near.send_cq);
    CHECK(done.wr_id == id);
    CHECK(done.status == IBV_WC_SUCCESS);
    CHECK(done.opcode == IBV_WC_SEND);
  }
  for (const std::uint64_t id : {0U, 1U}) {
    const ibv_wc came = next(*far.receive_cq);
    CHECK(came.wr_id == id);
    CHECK(came.opcode == IBV_WC_RECV);
    CHECK(came.wc_flags == IBV_WC_WITH_IMM);
    CHECK(came.imm_data == htobe32(id == 0 ? 0xA1B2C3D4 : 5));
    CHECK(came.src_qp == 0);
    CHECK(came.byte_len == (id == 0 ? 200U : 0U));
  }
  CHECK(std::equal(data.begin(), data.end(), shared ? pool.at(0) : inbox.data()));
}

TEST_CASE("send_immediate: refused on a connection without it", "[send_immediate]") {
  const auto context = open_loopback();
  Side near(*context), far(*context);
  attach(near, far);
  CHECK(post(near, request(1, 5)) == EOPNOTSUPP);
  near.qp->begin_batch();
  ibv_send_wr before{};
  before.opcode = IBV_WR_SEND;
  near.qp->add(before);
  near.qp->add(request(2, 5));
  CHECK(near.qp->end_batch() == EOPNOTSUPP);
  CHECK(near.qp->sends_outstanding() == 0);
  CHECK(none(*near.send_cq));
  CHECK(near.qp->state() == IBV_QPS_RTS);
}

TEST_CASE("send_immediate: posted before the connection stands, it fails in its turn if there is no agreement",
          "[send_immediate]") {
  const auto context = open_loopback();
  const mpa::PeerKind peer = GENERATE(mpa::PeerKind::other, mpa::PeerKind::not_known, mpa::PeerKind::uiw);
  const bool agreed = peer != mpa::PeerKind::other;  // each finds out that the other is uiw
  Side near(*context), far(*context);
  CHECK(post(near, request(1, 5)) == EINVAL);
  near.to_rts();
  REQUIRE(near.post(IBV_WR_SEND, 1, {}) == 0);
  REQUIRE(post(near, request(2, 5)) == 0);
  REQUIRE(near.post(IBV_WR_SEND, 3, {}) == 0);
  REQUIRE(far.to(IBV_QPS_INIT) == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(far.post_receive(id, {}) == 0);
  auto [one, two] = tcp_pair();
  Qp::Attachment attachment;
  attachment.agreement.peer = peer;
  attachment.agreement.rtr = mpa::ReadyToReceive::write;
  REQUIRE(far.qp->attach(two, attachment) == 0);
  attachment.initiator = true;
  REQUIRE(near.qp->attach(one, attachment) == 0);
  const ibv_wc_status wanted[] = {IBV_WC_SUCCESS, agreed ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR,
                                  agreed ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const ibv_wc done = next(*near.send_cq);
    CHECK(done.wr_id == id);
    CHECK(done.status == wanted[id - 1]);
  }
  CHECK(next(*far.receive_cq).status == IBV_WC_SUCCESS);
  const ibv_wc second = next(*far.receive_cq);
  CHECK(second.status == (agreed ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR));
  if (agreed) CHECK(second.imm_data == htobe32(5));
}
