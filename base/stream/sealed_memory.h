// SPDX-License-Identifier: MIT
// Memory that two processes share: a memfd of its full size, sparse, and sealed so that neither can shrink or grow it.
// The process that makes it passes the descriptor on; each maps it, and needs no descriptor from then on. The kernel
// frees it when nobody maps it any more. The child of a fork does not inherit it. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace uiw {

class SealedMemory {
 public:
  // `size`: octets in all. `allocated`: how many of them, from the beginning, get memory at once, since they are
  // accessed without guarded_copy().
  struct Size {
    std::size_t size, allocated;
  };

  // Makes new memory. `fd` is its descriptor, close-on-exec, which the caller owns, or -1. `name` (of the memfd) and
  // `purpose` (see DescriptorChange) are string literals. Empty if the system does not allow it.
  static SealedMemory create(const char* name, const char* purpose, Size size, int& fd);
  // Maps memory that a peer has made; the caller goes on owning `fd`. Empty if it is not as create() makes it, or
  // cannot be mapped.
  static SealedMemory attach(int fd, Size size);
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&&) = delete;
  ~SealedMemory();

  // Null if it is empty.
  std::byte* data() const { return data_; }
  // False in the child of a fork of the process that has mapped it.
  bool is_own() const;

 private:
  SealedMemory(int fd, std::size_t size);  // maps it

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  pid_t process_ = 0;
};

}  // namespace uiw
