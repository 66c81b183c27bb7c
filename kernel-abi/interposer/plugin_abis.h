// SPDX-License-Identifier: MIT
// The private ABIs of libibverbs that plugins are built for.
#pragma once

namespace uiw::kernel_abi {

// The one that most systems have comes first.
inline constexpr int kPluginAbis[] = {
#define UIW_PRIVATE_ABI(number, release) number,
#include "provider/plugin/abi/releases.def"
#undef UIW_PRIVATE_ABI
};

}  // namespace uiw::kernel_abi
