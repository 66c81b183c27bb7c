// SPDX-License-Identifier: MIT
// Queue pairs of a process that are connected with ibv_modify_qp.
#pragma once

#include "provider/process/device.h"
#include "tests/unit/provider/rnic.h"

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

inline int to_rtr(Side& side, const Gid& peer, std::uint32_t number) {
  return side.qp->modify(rtr(peer, number), kRtr);
}
inline int to_rtr(Side& side, const Side& peer) { return to_rtr(side, gid(peer.context), peer.qp->number()); }

inline int to_rts(Side& side) {
  ibv_qp_attr attributes{};
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

}  // namespace uiw::test
