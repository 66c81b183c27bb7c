// SPDX-License-Identifier: MIT
// The release of the libibverbs in this process, as far as the private ABI depends on it.
#pragma once

namespace uiw::plugin {

// The rdma-core release of the libibverbs in this process, rounded down to a release in which releases.def notes a
// change of the private ABI: for example 59 for release 61.
int release();

// How many operations the ibv_qp_ex of that libibverbs has behind wr_abort: none, wr_atomic_write, or wr_flush too.
unsigned late_send_ops();

}  // namespace uiw::plugin
