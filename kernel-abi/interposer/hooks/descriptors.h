// SPDX-License-Identifier: MIT
// Functions about descriptors for the other hooks. Part of the interposer.
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "kernel-abi/interposer/fd_table.h"

namespace uiw::kernel_abi {

// Removes the descriptor's entry from the table, and calls the library's release() unless the entry was one of the
// library's own descriptors. Not to be called in the child of a vfork.
void drop_descriptor(int fd);

// To be called for a descriptor that libc has just created. If the table already has an entry for this number, the
// entry is removed (except in the child of a vfork): a call that is not hooked, such as a bare system call or fclose(),
// has closed the descriptor of that entry. Returns `fd`.
inline int forget_stale(int fd) {
  if (__builtin_expect(fd >= 0 && fd_lookup(fd).present(), 0) && !fd_table_is_borrowed()) drop_descriptor(fd);
  return fd;
}

// Whether `fd`, which has the entry `entry` in the table, still is the stand-in for a socket of NETLINK_RDMA
// (sockets.cc). If not, a bare system call has closed the stand-in, and the entry is removed. Keeps errno.
bool is_stand_in(FdEntry entry, int fd);
// Passes a request to the library, in place of send() to the kernel. Returns the number of octets, or -1 with errno.
ssize_t send_request(FdEntry entry, int fd, const void* data, size_t size);

}  // namespace uiw::kernel_abi
