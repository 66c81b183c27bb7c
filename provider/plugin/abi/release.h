// SPDX-License-Identifier: MIT
// The release of the libibverbs in this process, as far as the private ABI depends on it.
#pragma once

namespace uiw::plugin {

// The first rdma-core release that providers cannot distinguish from this one, as releases.def lists them.
int release();

}  // namespace uiw::plugin
