// SPDX-License-Identifier: MIT
// The private ABIs of libibverbs that plugins are built for.
#pragma once

#include <dlfcn.h>
#include <stdio.h>

namespace uiw::kernel_abi {

// In the order of releases.def: the oldest comes first.
inline constexpr int kPluginAbis[] = {
#define UIW_PRIVATE_ABI(number, release) number,
#include "provider/plugin/abi/releases.def"
#undef UIW_PRIVATE_ABI
};

inline bool has_private_abi(void* verbs, int abi) {
  char symbol[64];
  char version[64];
  snprintf(symbol, sizeof symbol, "verbs_register_driver_%d", abi);
  snprintf(version, sizeof version, "IBVERBS_PRIVATE_%d", abi);
  return dlvsym(verbs, symbol, version) != nullptr;
}

// The private ABI of a libibverbs that is loaded, whether or not there is a plugin for it; 0 if it has none up to 255.
inline int private_abi(void* verbs) {
  for (const int known : kPluginAbis)
    if (has_private_abi(verbs, known)) return known;
  constexpr int kLast = 255;
  for (int abi = 1; abi <= kLast; ++abi)
    if (has_private_abi(verbs, abi)) return abi;
  return 0;
}

}  // namespace uiw::kernel_abi
