// SPDX-License-Identifier: MIT
// The steps and attributes that ibv_modify_qp accepts for queue pairs of datagrams, as its manual page says.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>

#include "provider/verbs/qp/qp_attributes.h"

namespace uiw::provider {

// 0; EINVAL for a step that there is not, an attribute that is missing, or one that such queue pairs do not have. `to`
// is the state after the step.
inline int check_datagram_step(ibv_qp_state from, int to, const ibv_qp_attr& attributes, int mask) {
  constexpr int kAlways = IBV_QP_STATE | IBV_QP_CUR_STATE;
  int needed = 0, optional = 0;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    // from any state
  } else if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
    needed = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  } else if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) {
    optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  } else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
    optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
  } else if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
    needed = IBV_QP_SQ_PSN;
    optional = IBV_QP_QKEY;
  } else if (from == IBV_QPS_RTS && to == IBV_QPS_SQD) {
    optional = IBV_QP_EN_SQD_ASYNC_NOTIFY;
  } else if (from == IBV_QPS_SQD && to == IBV_QPS_SQD) {
    optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
  } else if ((from == IBV_QPS_RTS || from == IBV_QPS_SQD || from == IBV_QPS_SQE) && to == IBV_QPS_RTS) {
    optional = IBV_QP_QKEY;
  } else if (from != to || (mask & IBV_QP_STATE) != 0) {
    return EINVAL;
  }
  if ((mask & needed) != needed || (mask & ~(kAlways | needed | optional)) != 0) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) return EINVAL;
  return (mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0 ? EINVAL : 0;
}

}  // namespace uiw::provider
