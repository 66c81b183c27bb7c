// SPDX-License-Identifier: MIT
// The private ABIs of libibverbs that plugins are built for; provider/plugin/CMakeLists.txt builds them.
#pragma once

namespace uiw::kernel_abi {

// The one that most systems have comes first.
inline constexpr int kPluginAbis[] = {34, 57, 59, 64, 65};

}  // namespace uiw::kernel_abi
