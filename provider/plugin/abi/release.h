// SPDX-License-Identifier: MIT
// The release of the libibverbs in this process, as far as the private ABI depends on it.
#pragma once

namespace uiw::plugin {

// The first rdma-core release with the same private ABI: 39, 57, 59, 62, 64 or 65. PABI 59 includes two of them.
int release();

}  // namespace uiw::plugin
