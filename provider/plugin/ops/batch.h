// SPDX-License-Identifier: MIT
// The functions ibv_wr_*, by which a program posts send requests in a batch (ibv_wr_post(3)).
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

// Fills in the function pointers of a queue pair, which the program calls by way of ibv_wr_*().
void offer_send_ops(ibv_qp_ex& qp);
// Of a process that is checked: each request goes to add_checked() (checked.h).
void offer_checked_send_ops(ibv_qp_ex& qp);

}  // namespace uiw::plugin
