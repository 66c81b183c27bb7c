// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp_attributes.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>

#include "ddp/stag_table.h"
#include "provider/connect/qp_port.h"
#include "provider/memory/rights.h"
#include "provider/process/limits.h"
#include "provider/verbs/context.h"

namespace uiw::provider {

namespace {

constexpr int kKnown = (IBV_QP_DEST_QPN << 1) - 1;  // bits beyond these are for raw packets, or not defined
constexpr unsigned kMax3Bits = 7, kMax5Bits = 31;
constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                             IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE | kFlushAccess;

// The attributes that a step requires for one type of queue pairs, and those that it accepts besides.
struct Attributes {
  int required = 0, optional = 0;
};
struct Step {
  ibv_qp_state from, to;
  Attributes rc{}, uc{}, ud{};
  Attributes of(ibv_qp_type type) const {
    switch (type) {
      case IBV_QPT_RC: return rc;
      case IBV_QPT_UC: return uc;
      case IBV_QPT_XRC_SEND:
      case IBV_QPT_XRC_RECV: return {meant(type, rc.required), meant(type, rc.optional)};
      default: return ud;
    }
  }
};

constexpr int kKey = IBV_QP_PKEY_INDEX, kPort = IBV_QP_PORT, kRights = IBV_QP_ACCESS_FLAGS, kQkey = IBV_QP_QKEY;
constexpr int kCurrent = IBV_QP_CUR_STATE, kRnrTimer = IBV_QP_MIN_RNR_TIMER, kNotify = IBV_QP_EN_SQD_ASYNC_NOTIFY;
constexpr int kOtherPath = IBV_QP_ALT_PATH, kMigration = IBV_QP_PATH_MIG_STATE;
constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
// The attributes that queue pairs of both RC and UC accept in the steps from RTR, RTS and SQD to RTS.
constexpr int kInRts = kCurrent | kOtherPath | kRights | kMigration;

constexpr Step kSteps[] = {
    {IBV_QPS_RESET, IBV_QPS_RESET},
    {IBV_QPS_RESET, IBV_QPS_INIT, {kKey | kPort | kRights}, {kKey | kPort | kRights}, {kKey | kPort | kQkey}},
    {IBV_QPS_INIT, IBV_QPS_RESET},
    {IBV_QPS_INIT, IBV_QPS_ERR},
    {IBV_QPS_INIT, IBV_QPS_INIT, {0, kKey | kPort | kRights}, {0, kKey | kPort | kRights}, {0, kKey | kPort | kQkey}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {kPeer | IBV_QP_MAX_DEST_RD_ATOMIC | kRnrTimer, kOtherPath | kRights | kKey},
     {kPeer, kOtherPath | kRights | kKey},
     {0, kKey | kQkey}},
    {IBV_QPS_RTR, IBV_QPS_RESET},
    {IBV_QPS_RTR, IBV_QPS_ERR},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {IBV_QP_SQ_PSN | kRetries, kInRts | kRnrTimer},
     {IBV_QP_SQ_PSN, kInRts},
     {IBV_QP_SQ_PSN, kCurrent | kQkey}},
    {IBV_QPS_RTS, IBV_QPS_RESET},
    {IBV_QPS_RTS, IBV_QPS_ERR},
    {IBV_QPS_RTS, IBV_QPS_RTS, {0, kInRts | kRnrTimer}, {0, kInRts}, {0, kCurrent | kQkey}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {0, kNotify}, {0, kNotify}, {0, kNotify}},
    {IBV_QPS_SQD, IBV_QPS_RESET},
    {IBV_QPS_SQD, IBV_QPS_ERR},
    {IBV_QPS_SQD, IBV_QPS_RTS, {0, kInRts | kRnrTimer}, {0, kInRts}, {0, kCurrent | kQkey}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {0,
      kPort | IBV_QP_AV | kRetries | IBV_QP_MAX_DEST_RD_ATOMIC | kOtherPath | kRights | kKey | kRnrTimer | kMigration},
     {0, IBV_QP_AV | kOtherPath | kRights | kKey | kMigration},
     {0, kKey | kQkey}},
    {IBV_QPS_SQE, IBV_QPS_RESET},
    {IBV_QPS_SQE, IBV_QPS_ERR},
    {IBV_QPS_SQE, IBV_QPS_RTS, {}, {0, kCurrent | kRights}, {0, kCurrent | kQkey}},
    {IBV_QPS_ERR, IBV_QPS_RESET},
    {IBV_QPS_ERR, IBV_QPS_ERR},
};

const Step* find_step(ibv_qp_state from, int to) {
  const Step* const found = std::find_if(std::begin(kSteps), std::end(kSteps), [&](const Step& step) {
    return step.from == from && static_cast<int>(step.to) == to;
  });
  return found == std::end(kSteps) ? nullptr : found;
}

// Whether the attributes have kManagedQpNumber as the peer's queue pair number: then rdma_cm makes the connection, and
// the step makes none.
bool is_managed(const ibv_qp_attr& attributes, int mask) {
  return (mask & IBV_QP_DEST_QPN) != 0 && attributes.dest_qp_num == kManagedQpNumber;
}

bool is_rnic_step(ibv_qp_state from, int to, ibv_qp_type type, const ibv_qp_attr& attributes, int mask, bool manual,
                  bool connected) {
  const auto has = [mask](int which) { return (mask & which) != 0; };
  if (has(IBV_QP_QKEY)) return false;  // the Q_Key is for datagrams only
  if (has(IBV_QP_EN_SQD_ASYNC_NOTIFY) && (!has(IBV_QP_STATE) || to != IBV_QPS_SQD)) return false;
  if (has(IBV_QP_AV) || has(IBV_QP_DEST_QPN)) {
    const int required = find_step(IBV_QPS_INIT, IBV_QPS_RTR)->of(type).required;
    if (to != IBV_QPS_RTR || !has(IBV_QP_STATE)) return false;
    if (!is_managed(attributes, mask) && (mask & required) != required) return false;
  }
  if (!has(IBV_QP_STATE) || from == to || to == IBV_QPS_RESET || to == IBV_QPS_ERR) return true;
  switch (from) {
    case IBV_QPS_INIT: return to == IBV_QPS_RTR;
    case IBV_QPS_RTR: {
      const int required = find_step(from, IBV_QPS_RTS)->of(type).required;
      if (to == IBV_QPS_RTS) return manual ? (mask & required) == required : connected;
      return to == IBV_QPS_INIT && !manual;  // on iWARP, both are the state Idle
    }
    // rdma_cm brings a queue pair to RTS by itself. If the program then makes the steps of InfiniBand, those to INIT
    // and RTR are accepted and do not change the state.
    case IBV_QPS_RTS: return to == IBV_QPS_SQD || (connected && !manual && (to == IBV_QPS_INIT || to == IBV_QPS_RTR));
    case IBV_QPS_SQD: return to == IBV_QPS_RTS && manual;
    // The program closes a stream by the step to SQD. If the stream has ended by itself right before, the step is
    // accepted and does not change the state.
    case IBV_QPS_ERR: return to == IBV_QPS_SQD;
    default: return false;
  }
}

}  // namespace

bool grant(ibv_qp_cap& cap, bool has_receive_queue, Transport transport) {
  if (cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge || cap.max_inline_data > kMaxInline) return false;
  if (has_receive_queue && (cap.max_recv_wr > kMaxQpWr || cap.max_recv_sge > kMaxSge)) return false;
  if (!has_receive_queue) cap.max_recv_wr = cap.max_recv_sge = 0;
  // Queues of adapters have a power of two of entries: siw grants all of them, rxe keeps one free. Some programs rely
  // on getting more entries than they request.
  for (std::uint32_t* const size : {&cap.max_send_wr, &cap.max_recv_wr}) {
    const std::uint32_t free = transport == Transport::roce ? 1 : 0;
    if (*size != 0) *size = std::min<std::uint32_t>(std::bit_ceil(*size + free) - free, kMaxQpWr);
  }
  // Some programs send a few octets inline without having requested inline data, since adapters usually grant some.
  cap.max_inline_data = std::max(cap.max_inline_data, kLeastInline);
  return true;
}

int meant(ibv_qp_type type, int mask) {
  switch (type) {
    case IBV_QPT_XRC_SEND: return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV: return mask & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    default: return mask;
  }
}

int check_step(ibv_qp_state from, int to, ibv_qp_type type, int mask) {
  if ((mask & ~kKnown) != 0) return EOPNOTSUPP;
  const Step* const step = find_step(from, to);
  if (step == nullptr) return EINVAL;
  const Attributes of_type = step->of(type);
  const bool complete = (mask & of_type.required) == of_type.required;
  return complete && (mask & ~(IBV_QP_STATE | of_type.required | of_type.optional)) == 0 ? 0 : EINVAL;
}

int check_rnic_step(ibv_qp_state from, int to, ibv_qp_type type, const ibv_qp_attr& attributes, int mask, bool manual,
                    bool connected) {
  if ((mask & ~kKnown) != 0) return EOPNOTSUPP;
  return is_rnic_step(from, to, type, attributes, mask, manual, connected) ? 0 : EINVAL;
}

bool connects(const ibv_qp_attr& attributes, int mask) {
  return (mask & IBV_QP_DEST_QPN) != 0 && attributes.dest_qp_num >= kFirstQpNumber;
}

int check_values(Context& context, const ibv_qp_attr& attributes, int mask) {
  const auto has = [mask](int which) { return (mask & which) != 0; };
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
  // As on RoCE, an address vector must have a GID: without a GID there is no address of the peer.
  if (has(IBV_QP_AV) && !is_managed(attributes, mask) &&
      (attributes.ah_attr.is_global == 0 || attributes.ah_attr.port_num != 1 ||
       context.gid(attributes.ah_attr.grh.sgid_index) == kNoGid)) {
    return EINVAL;
  }
  if (has(IBV_QP_DEST_QPN) && !is_managed(attributes, mask) &&
      (attributes.dest_qp_num < kFirstQpNumber || attributes.dest_qp_num >> 24 != 0)) {
    return EINVAL;
  }
  // These attributes need IBV_DEVICE_AUTO_PATH_MIG or IBV_DEVICE_RESIZE_MAX_WR, and the device reports neither.
  if (has(IBV_QP_ALT_PATH) || has(IBV_QP_CAP)) return EOPNOTSUPP;
  if (has(IBV_QP_PATH_MIG_STATE) && number_in(attributes.path_mig_state) != IBV_MIG_MIGRATED) return EOPNOTSUPP;
  return 0;
}

std::uint32_t denied_rights(unsigned access) { return kRemoteRights & ~remote_rights(access); }

void copy_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
  if ((mask & IBV_QP_QKEY) != 0) to.qkey = from.qkey;
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
