// SPDX-License-Identifier: MIT
// Executes what is written to an rdma_cm descriptor: the commands of <rdma/rdma_user_cm.h>, with every length and
// pointer checked. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// Returns the number of octets taken, or a negative errno: EINVAL for a command that is unknown, shorter than its
// structure or longer than the write; ENOSYS for GET_OPTION, as in the kernel; EBADF if there is no channel `object`;
// ENOSPC if the program left too little room for the answer; EFAULT for bad pointers; an error of CmRegistry::use();
// otherwise the error of the command. GET_EVENT blocks if the descriptor does.
long write_cm_command(const UiwHost& host, std::uint64_t object, const void* data, std::size_t size);

}  // namespace uiw::kernel_abi
