// SPDX-License-Identifier: MIT
// Copies by process_vm_readv() and process_vm_writev() within this process, since the kernel then checks the pointers.
// If a sandbox forbids these calls, copies by memcpy(), so a bad pointer other than null ends the program by SIGSEGV.
#include "kernel-abi/caller/user_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace uiw::kernel_abi {
namespace {

enum class Direction { in, out };

int copy(void* ours, std::uint64_t theirs, std::size_t size, Direction direction) {
  if (size == 0) return 0;
  auto* address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(theirs));
  const iovec local = {ours, size};
  const iovec remote = {address, size};
  const ssize_t done = direction == Direction::in ? ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0)
                                                  : ::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0);
  if (done == static_cast<ssize_t>(size)) return 0;
  if (done >= 0 || errno == EFAULT || address == nullptr) return EFAULT;
  if (direction == Direction::in)
    std::memcpy(ours, address, size);
  else
    std::memcpy(address, ours, size);
  return 0;
}

}  // namespace

int copy_from_user(void* to, const void* from, std::size_t size) {
  return copy(to, reinterpret_cast<std::uintptr_t>(from), size, Direction::in);
}

int copy_to_user(std::uint64_t to, const void* from, std::size_t size) {
  return copy(const_cast<void*>(from), to, size, Direction::out);
}

}  // namespace uiw::kernel_abi
