// SPDX-License-Identifier: MIT
// The steps and attributes that ibv_modify_qp accepts for queue pairs of datagrams, as its manual page says.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "provider/verbs/qp/qp_attributes.h"

namespace uiw::provider {

// 0; EINVAL for a step that there is not, an attribute that is missing, or one that such queue pairs do not have. `to`
// is the state after the step.
inline int check_datagram_step(ibv_qp_state from, int to, const ibv_qp_attr& attributes, int mask) {
  struct Step {
    ibv_qp_state from, to;
    int needed, optional;
  };
  constexpr int kAlways = IBV_QP_STATE | IBV_QP_CUR_STATE;
  constexpr Step kSteps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
      {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
      {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
      {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY},
      {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY},
      {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
      {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
      {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY},
      {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_QKEY},
  };
  int needed = 0, optional = 0;
  const bool from_any = to == IBV_QPS_RESET || to == IBV_QPS_ERR;
  const Step* const step = std::find_if(std::begin(kSteps), std::end(kSteps),
                                        [&](const Step& one) { return one.from == from && one.to == to; });
  if (!from_any && step != std::end(kSteps)) {
    needed = step->needed;
    optional = step->optional;
  } else if (!from_any && (from != to || (mask & IBV_QP_STATE) != 0)) {
    return EINVAL;
  }
  if ((mask & needed) != needed || (mask & ~(kAlways | needed | optional)) != 0) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) return EINVAL;
  return (mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0 ? EINVAL : 0;
}

}  // namespace uiw::provider
