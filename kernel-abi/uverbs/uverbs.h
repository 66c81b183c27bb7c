// SPDX-License-Identifier: MIT
// What does a write to a uverbs descriptor do? Thread-safe.
#pragma once

#include <cstddef>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// The octets taken, or a negative errno.
long write_uverbs_command(const UiwHost& host, const void* data, std::size_t size);

}  // namespace uiw::kernel_abi
