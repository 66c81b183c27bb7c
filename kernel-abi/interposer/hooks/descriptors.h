// SPDX-License-Identifier: MIT
// Functions about descriptors for the other hooks. Part of the interposer.
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "kernel-abi/interposer/fd_table.h"

namespace uiw::kernel_abi {

// Removes an entry and reports that to the library. Not in the child of a vfork.
void drop_descriptor(int fd);

// To be called for a descriptor that libc has just created: if the table has an entry for the number, its descriptor
// was closed without our knowledge (a bare system call, fclose). Returns `fd`.
inline int forget_stale(int fd) {
  if (__builtin_expect(fd >= 0 && fd_lookup(fd).present(), 0) && !fd_table_is_borrowed()) drop_descriptor(fd);
  return fd;
}

// Defined in sockets.cc. `entry` is that of a socket in place of one of NETLINK_RDMA. False if the descriptor was
// closed by a bare system call and the number is used for something else by now; then the entry is removed. Keeps
// errno.
bool is_stand_in(FdEntry entry, int fd);
// Passes a request to the library, as send() on that socket would to the kernel: the number of octets, or -1 with
// errno.
ssize_t send_request(FdEntry entry, int fd, const void* data, size_t size);

}  // namespace uiw::kernel_abi
