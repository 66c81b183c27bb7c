// SPDX-License-Identifier: MIT
// What does a write to an rdma_cm descriptor do? The commands of <rdma/rdma_user_cm.h>, with every length and
// pointer checked. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// The octets taken, or a negative errno: EINVAL for a command that is unknown, shorter than its structure or
// longer than the write; ENOSPC where the program left too little room for the answer; EFAULT for bad
// pointers; else what the command itself says. GET_EVENT blocks where the descriptor does.
long write_cm_command(const UiwHost& host, std::uint64_t object, const void* data, std::size_t size);

}  // namespace uiw::kernel_abi
