// SPDX-License-Identifier: MIT
// The functions ibv_wr_*, by which a program posts send requests in a batch (ibv_wr_post(3)).
#pragma once

#include <cstdint>

#include "provider/plugin/abi/rdmav_abi.h"

namespace uiw::plugin {

// Fills in the function pointers of a queue pair, which the program calls by way of ibv_wr_*(). `operations` are those
// of enum ibv_qp_create_send_ops_flags that the program has asked for.
void offer_send_ops(verbs_qp& qp, std::uint64_t operations);
// Of a process that is checked: each request goes to add_checked() (checked.h).
void offer_checked_send_ops(verbs_qp& qp, std::uint64_t operations);

}  // namespace uiw::plugin
