// SPDX-License-Identifier: MIT
// What the other hooks need to know of descriptors. Part of the interposer.
#pragma once

#include "kernel-abi/interposer/fd_table.h"

namespace uiw::kernel_abi {

// Removes an entry and, unless it is dead, reports that to the library. Not in the child of a vfork.
void drop_descriptor(int fd);

// To be called for a descriptor that libc has just created: if the table has an entry for the number, its descriptor
// was closed without our knowledge (a bare system call, fclose). Returns `fd`.
inline int forget_stale(int fd) {
  if (__builtin_expect(fd >= 0 && fd_lookup(fd).present(), 0) && !fd_table_is_borrowed()) drop_descriptor(fd);
  return fd;
}

}  // namespace uiw::kernel_abi
