// SPDX-License-Identifier: MIT
// How are the program's buffers read and written so that a bad pointer gives EFAULT, as from the kernel?
#pragma once

#include <cstddef>
#include <cstdint>

namespace uiw::kernel_abi {

// Both return 0 or EFAULT; a partial copy may have been made.
int copy_from_user(void* to, const void* from, std::size_t size);
int copy_to_user(std::uint64_t to, const void* from, std::size_t size);

}  // namespace uiw::kernel_abi
