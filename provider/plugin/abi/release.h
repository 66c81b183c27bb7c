// SPDX-License-Identifier: MIT
// Which libibverbs is in this process, as far as the private ABI tells releases apart?
#pragma once

namespace uiw::plugin {

// The rdma-core release that began what this libibverbs has: 39, 57, 59, 62, 64 or 65. PABI 59 stands for two
// of them.
int release();

}  // namespace uiw::plugin
