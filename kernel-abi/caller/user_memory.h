// SPDX-License-Identifier: MIT
// Reads and writes buffers of the program so that a bad pointer gives EFAULT, as from the kernel. If a sandbox forbids
// the system calls by which pointers are checked, a bad pointer ends the program (user_memory.cc). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uiw::kernel_abi {

// Both return 0 or EFAULT; after EFAULT a part may have been copied.
int copy_from_user(void* to, const void* from, std::size_t size);
int copy_to_user(std::uint64_t to, const void* from, std::size_t size);

}  // namespace uiw::kernel_abi
