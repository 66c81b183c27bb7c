// SPDX-License-Identifier: MIT
// Memory that two processes share: a memfd of its full size, sparse, and sealed so that neither can shrink or grow it.
// The process that makes it passes the descriptor on; each maps it, and needs no descriptor from then on. The kernel
// frees it when nobody maps it any more. Thread-safe.
#pragma once

#include <cstddef>

namespace uiw::mpa {

// `size`: of all; `allocated`: octets at the beginning for which the system is to have memory from the start, since
// they are accessed without a guard.
struct SealedSize {
  std::size_t size, allocated;
};

// The descriptor of new memory, close-on-exec, which the caller owns; -1 if the system does not allow it. `name` and
// `purpose` are string literals: what the memory is called, and see DescriptorChange.
int make_sealed_memory(const char* name, const char* purpose, SealedSize size);
// Whether memory that a peer has made is as make_sealed_memory() makes it.
bool is_sealed_memory(int fd, SealedSize size);
// Null if the system does not allow it. The child of a fork has no part in it.
std::byte* map_sealed_memory(int fd, std::size_t size);

}  // namespace uiw::mpa
