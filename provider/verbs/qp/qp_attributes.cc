// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp_attributes.h"

#include <algorithm>
#include <cerrno>

#include "ddp/stag_table.h"
#include "provider/connect/qp_port.h"
#include "provider/memory/rights.h"
#include "provider/process/limits.h"

namespace uiw::provider {

namespace {

constexpr int kKnown = ((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT;
constexpr unsigned kMax3Bits = 7, kMax5Bits = 31;
constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                             IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE |
                             kFlushAccess;  // the kernel takes them for every queue pair

constexpr unsigned bit(ibv_qp_state state) { return 1U << state; }

}  // namespace

bool grant(ibv_qp_cap& cap, bool has_receive_queue) {
  if (cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge || cap.max_inline_data > kMaxInline) return false;
  if (has_receive_queue && (cap.max_recv_wr > kMaxQpWr || cap.max_recv_sge > kMaxSge)) return false;
  if (!has_receive_queue) cap.max_recv_wr = cap.max_recv_sge = 0;
  // Some programs send a few octets inline without having requested it; every adapter grants some.
  cap.max_inline_data = std::max(cap.max_inline_data, kLeastInline);
  return true;
}

bool may_step(ibv_qp_state from, int to, bool manual) {
  if (to < 0 || to > IBV_QPS_ERR) return false;  // a program may pass any number
  constexpr unsigned kAlways = bit(IBV_QPS_RESET) | bit(IBV_QPS_ERR);
  switch (from) {
    case IBV_QPS_RESET: return ((kAlways | bit(IBV_QPS_INIT)) >> to & 1) != 0;
    case IBV_QPS_INIT: return ((kAlways | bit(IBV_QPS_INIT) | bit(IBV_QPS_RTR)) >> to & 1) != 0;
    case IBV_QPS_RTR: return ((kAlways | bit(IBV_QPS_RTR) | bit(IBV_QPS_RTS)) >> to & 1) != 0;
    case IBV_QPS_RTS: return ((kAlways | bit(IBV_QPS_RTS) | bit(IBV_QPS_SQD)) >> to & 1) != 0;
    case IBV_QPS_SQD: return ((kAlways | bit(IBV_QPS_SQD) | (manual ? bit(IBV_QPS_RTS) : 0)) >> to & 1) != 0;
    // A stream may end by itself right before the program closes it: the step to SQD is accepted and does nothing.
    case IBV_QPS_ERR: return ((kAlways | bit(IBV_QPS_SQD)) >> to & 1) != 0;
    default: return false;
  }
}

bool connects(const ibv_qp_attr& attributes, int mask) {
  return (mask & IBV_QP_DEST_QPN) != 0 && attributes.dest_qp_num >= kFirstQpNumber;
}

bool has_all_for(ibv_qp_state from, ibv_qp_state to, int mask, ibv_qp_type type) {
  const bool reliable = type == IBV_QPT_RC;
  int needed = 0;
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
    needed = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  } else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
    needed = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN;
    if (reliable) needed |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  } else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
    needed = IBV_QP_SQ_PSN;
    if (reliable) needed |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return (mask & needed) == needed;
}

int check_attributes(const ibv_qp_attr& attributes, int mask, int to, ibv_qp_type type) {
  if ((mask & ~kKnown) != 0) return EINVAL;
  const auto has = [mask](int which) { return (mask & which) != 0; };
  if (has(IBV_QP_QKEY)) return EINVAL;  // datagrams only
  if (has(IBV_QP_PORT) && attributes.port_num != 1) return EINVAL;
  if (has(IBV_QP_PKEY_INDEX) && attributes.pkey_index != 0) return EINVAL;
  if (has(IBV_QP_ACCESS_FLAGS) && (attributes.qp_access_flags & ~kAccess) != 0) return EINVAL;
  const int mtu = number_in(attributes.path_mtu);
  if (has(IBV_QP_PATH_MTU) && (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)) return EINVAL;
  if (has(IBV_QP_TIMEOUT) && attributes.timeout > kMax5Bits) return EINVAL;
  if (has(IBV_QP_MIN_RNR_TIMER) && attributes.min_rnr_timer > kMax5Bits) return EINVAL;
  if (has(IBV_QP_RETRY_CNT) && attributes.retry_cnt > kMax3Bits) return EINVAL;
  if (has(IBV_QP_RNR_RETRY) && attributes.rnr_retry > kMax3Bits) return EINVAL;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) && attributes.max_rd_atomic > kMaxReadDepth) return EINVAL;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && attributes.max_dest_rd_atomic > kMaxReadDepth) return EINVAL;
  if (has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && (!has(IBV_QP_STATE) || to != IBV_QPS_SQD)) return EINVAL;
  if (has(IBV_QP_AV) || has(IBV_QP_DEST_QPN)) {
    if (to != IBV_QPS_RTR || !has(IBV_QP_STATE)) return EINVAL;
    if (!has(IBV_QP_DEST_QPN) || attributes.dest_qp_num != kManagedQpNumber) {
      if (!has_all_for(IBV_QPS_INIT, IBV_QPS_RTR, mask, type)) return EINVAL;
      // Without a GID there is no address; so it is on every device whose link layer is Ethernet.
      if (attributes.ah_attr.is_global == 0 || attributes.ah_attr.port_num != 1) return EINVAL;
      if (attributes.dest_qp_num < kFirstQpNumber || attributes.dest_qp_num >> 24 != 0) return EINVAL;
    }
  }
  // The device does not report IBV_DEVICE_AUTO_PATH_MIG, IBV_DEVICE_RESIZE_MAX_WR or packet pacing.
  if (has(IBV_QP_ALT_PATH) || has(IBV_QP_CAP) || has(IBV_QP_RATE_LIMIT)) return EOPNOTSUPP;
  if (has(IBV_QP_PATH_MIG_STATE) && number_in(attributes.path_mig_state) != IBV_MIG_MIGRATED) return EOPNOTSUPP;
  return 0;
}

std::uint32_t denied_rights(unsigned access) { return kRemoteRights & ~remote_rights(access); }

void copy_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) to.qp_access_flags = from.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) to.pkey_index = from.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) to.port_num = from.port_num;
  if ((mask & IBV_QP_AV) != 0) to.ah_attr = from.ah_attr;
  if ((mask & IBV_QP_DEST_QPN) != 0) to.dest_qp_num = from.dest_qp_num;
  if ((mask & IBV_QP_PATH_MTU) != 0) to.path_mtu = from.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) to.timeout = from.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) to.retry_cnt = from.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) to.rnr_retry = from.rnr_retry;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) to.min_rnr_timer = from.min_rnr_timer;
  if ((mask & IBV_QP_RQ_PSN) != 0) to.rq_psn = from.rq_psn & kPsnMask;
  if ((mask & IBV_QP_SQ_PSN) != 0) to.sq_psn = from.sq_psn & kPsnMask;
}

}  // namespace uiw::provider
