// SPDX-License-Identifier: MIT
// Executes what libibverbs writes to a uverbs descriptor, and its ioctl() calls on such a descriptor. Thread-safe.
#pragma once

#include <cstddef>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// Returns the number of octets taken, or a negative errno.
long write_uverbs_command(const UiwHost& host, const void* data, std::size_t size);

// Executes ioctl(RDMA_VERBS_IOCTL). The only method is UVERBS_METHOD_ASYNC_EVENT_ALLOC, which libibverbs needs after
// ibv_import_device(). Returns 0 or a negative errno: -ENOTTY for other methods, in place of which libibverbs then
// writes commands.
int control_uverbs(int fd, void* argument);

}  // namespace uiw::kernel_abi
