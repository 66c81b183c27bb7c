// SPDX-License-Identifier: MIT
// What do the other hooks have to know of descriptors? Part of the interposer.
#pragma once

#include "kernel-abi/interposer/fd_table.h"

namespace uiw::kernel_abi {

// Ends an entry, telling the library where it is alive. Not in a vfork child.
void drop_descriptor(int fd);

// For a descriptor that libc has just made: an entry that is still there belonged to one that was closed
// behind our back (a bare system call, fclose). Returns `fd`.
inline int forget_stale(int fd) {
  if (__builtin_expect(fd >= 0 && fd_lookup(fd).present(), 0) && !fd_table_is_borrowed()) drop_descriptor(fd);
  return fd;
}

}  // namespace uiw::kernel_abi
