// SPDX-License-Identifier: MIT
// IBV_WR_SEND_WITH_IMM, where it was agreed on and where it was not.
#include <endian.h>

#include <cerrno>

#include "tests/unit/provider/verbs/pool_pair.h"

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

TEST_CASE_METHOD(Loopback, "send_immediate: a receive, also of a shared queue, completes with it", "[send_immediate]") {
  const bool shared = GENERATE(false, true), crc = GENERATE(false, true);
  Pool pool(*context);
  Pair pair(context, {}, {.srq = shared ? pool.srq.get() : nullptr});
  pair.connect({.crc = crc, .mulpdu = 128, .peer = GENERATE(mpa::PeerKind::uiw, mpa::PeerKind::not_known)});
  Side &near = pair.a, &far = pair.b;
  const Registered data(near, pattern(200)), inbox(far, Bytes(256), kLocal);
  for (std::uint64_t id : {0U, 1U}) {
    REQUIRE((shared ? pool.post(id) : far.post_receive(id, {inbox.sge()})) == 0);
  }
  ibv_sge sge = data.sge();
  REQUIRE(post(near, request(7, 0xA1B2C3D4, &sge)) == 0);
  near.qp->begin_batch();
  near.qp->add(request(8, 5));
  REQUIRE(near.qp->end_batch() == 0);
  for (const std::uint64_t id : {7U, 8U}) {
    const ibv_wc done = check_next(*near.send_cq, id);
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

TEST_CASE_METHOD(ConnectedPair, "send_immediate: refused on a connection without it", "[send_immediate]") {
  CHECK(post(a, request(1, 5)) == EOPNOTSUPP);
  a.qp->begin_batch();
  ibv_send_wr before{};
  before.opcode = IBV_WR_SEND;
  a.qp->add(before);
  a.qp->add(request(2, 5));
  CHECK(a.qp->end_batch() == EOPNOTSUPP);
  CHECK(a.qp->sends_outstanding() == 0);
  CHECK(none(*a.send_cq));
  CHECK(a.qp->state() == IBV_QPS_RTS);
}

TEST_CASE_METHOD(Pair,
                 "send_immediate: posted before the connection stands, it fails in its turn if there is no agreement",
                 "[send_immediate]") {
  const mpa::PeerKind peer = GENERATE(mpa::PeerKind::other, mpa::PeerKind::not_known, mpa::PeerKind::uiw);
  const bool agreed = peer != mpa::PeerKind::other;  // each finds out that the other is uiw
  CHECK(post(a, request(1, 5)) == EINVAL);
  a.to_rts();
  REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
  REQUIRE(post(a, request(2, 5)) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 3, {}) == 0);
  REQUIRE(b.to(IBV_QPS_INIT) == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(b.post_receive(id, {}) == 0);
  auto [one, two] = tcp_pair();
  REQUIRE(b.qp->attach(two, attachment_of({.peer = peer}, false)) == 0);
  REQUIRE(a.qp->attach(one, attachment_of({.peer = peer}, true)) == 0);
  const ibv_wc_status wanted[] = {IBV_WC_SUCCESS, agreed ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR,
                                  agreed ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR};
  for (std::uint64_t id = 1; id <= 3; ++id) check_next(*a.send_cq, id, wanted[id - 1]);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  const ibv_wc second = next(*b.receive_cq);
  CHECK(second.status == (agreed ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR));
  if (agreed) CHECK(second.imm_data == htobe32(5));
}
