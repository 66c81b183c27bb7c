// SPDX-License-Identifier: MIT
// Operations that only return information.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uiw::plugin {

int query_rt_values(ibv_context* context, ibv_values_ex* values);
// Stores the speed in units of 100 Mb/s.
int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags);

}  // namespace uiw::plugin
