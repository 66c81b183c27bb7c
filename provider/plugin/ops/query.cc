// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/query.h"

#include <algorithm>
#include <cerrno>

#include "provider/plugin/objects.h"
#include "provider/progress/clock.h"

namespace uiw::plugin {

// tv_nsec has all ticks of the clock, as with adapters, so a program can compare it directly with the time stamps of
// completions. It is also correct as a number of nanoseconds, since a tick is one nanosecond.
int query_rt_values(ibv_context*, ibv_values_ex* values) {
  values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
  if (values->comp_mask != 0) {
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = static_cast<long>(provider::raw_clock());
  }
  return 0;
}

int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
  if (port != 1) return with_errno(EINVAL);
  constexpr unsigned kUnit = 100;
  *speed = std::max(context_of(context)->rnic->speed_mbps() / kUnit, 1U);
  return 0;
}

// The result 1 says that the octets of a message become visible in ascending order. rdmap::Receiver promises that of
// RDMA Writes only: Sends and the answers to RDMA Reads are copied by whatever is fastest, since a program looks at
// them after their completion.
int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode opcode, std::uint32_t flags) {
  if (flags != 0) return 0;
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return 1;
    default: return 0;
  }
}

}  // namespace uiw::plugin
