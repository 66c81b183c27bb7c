// SPDX-License-Identifier: MIT
// Carries out what is written to a uverbs descriptor. Thread-safe.
#pragma once

#include <cstddef>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// Returns the number of octets taken, or a negative errno.
long write_uverbs_command(const UiwHost& host, const void* data, std::size_t size);

}  // namespace uiw::kernel_abi
