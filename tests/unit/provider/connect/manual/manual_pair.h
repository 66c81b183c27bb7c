// SPDX-License-Identifier: MIT
// Queue pairs of a process that are connected with ibv_modify_qp.
#pragma once

#include "provider/process/device.h"
#include "tests/unit/provider/pair.h"

namespace uiw::test {

using provider::Gid;

inline constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int kRts =
    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

inline Gid gid(const Context& context, std::size_t index = 0) { return context.device().gids.at(index); }

inline ibv_qp_attr rtr(const Gid& peer, std::uint32_t number, std::uint8_t index = 0) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.sgid_index = index;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.data(), peer.size());
  attributes.dest_qp_num = number;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.max_dest_rd_atomic = 2;
  attributes.min_rnr_timer = 12;
  return attributes;
}

inline int to_rtr(Side& side, const Gid& peer, std::uint32_t number, std::uint32_t psn = 0) {
  ibv_qp_attr attributes = rtr(peer, number);
  attributes.rq_psn = psn;
  return side.qp->modify(attributes, kRtr);
}
inline int to_rtr(Side& side, const Side& peer, std::uint32_t psn = 0) {
  return to_rtr(side, gid(peer.context), peer.qp->number(), psn);
}

inline int to_rts(Side& side, std::uint32_t psn = 0) {
  ibv_qp_attr attributes{};
  attributes.sq_psn = psn;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 1;
  attributes.retry_cnt = 1;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 2;
  return side.qp->modify(attributes, kRts);
}

inline void connect_manually(Side& a, Side& b) {
  for (Side* side : {&a, &b}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(a, b) == 0);
  REQUIRE(to_rtr(b, a) == 0);
  REQUIRE(to_rts(a) == 0);
  REQUIRE(to_rts(b) == 0);
}

// To be connected by connect_manually().
using ManualPair = InitPair;

// A message each way; both are asked at once, so that no side waits for what the other has not been made to do.
inline void exchange(Side& a, Side& b) {
  const Registered out(a, pattern(100)), in_b(a, Bytes(100), kLocal), out_b(b, pattern(100, 2)),
      in(b, Bytes(100), kLocal);
  REQUIRE(b.post_receive(1, {in.sge()}) == 0);
  REQUIRE(a.post_receive(2, {in_b.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 3, {out.sge()}) == 0);
  REQUIRE(b.post(IBV_WR_SEND, 4, {out_b.sge()}) == 0);
  for (Cq* cq : {b.receive_cq.get(), a.receive_cq.get(), a.send_cq.get(), b.send_cq.get()})
    CHECK(next(*cq).status == IBV_WC_SUCCESS);
  CHECK(in == out);
  CHECK(in_b == out_b);
}

}  // namespace uiw::test
