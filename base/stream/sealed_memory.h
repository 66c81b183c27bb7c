// SPDX-License-Identifier: MIT
// Memory that processes share: a sparse memfd of fixed size, sealed so that no process can shrink or grow it. The
// process that creates the memfd passes its descriptor to the others. Each process maps the memory, and needs no
// descriptor from then on. The kernel frees the memory when no process has a mapping or a descriptor of it any more.
// The child of a fork does not inherit the mapping. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace uiw {

class SealedMemory {
 public:
  // `size`: octets in all. `allocated`: how many octets, from the beginning, are allocated at once, since they are
  // accessed without guarded_copy().
  struct Size {
    std::size_t size, allocated;
  };

  // Creates memory. `fd` is set to its close-on-exec descriptor, which the caller owns, or to -1. `name` (of the memfd)
  // and `purpose` (see DescriptorChange) are string literals. Empty if the memory cannot be created.
  static SealedMemory create(const char* name, const char* purpose, Size size, int& fd);
  // Maps memory that a peer has created; the caller goes on owning `fd`. Empty if the memory has another size, lacks a
  // seal that create() sets, or cannot be allocated or mapped.
  static SealedMemory attach(int fd, Size size);
  SealedMemory(SealedMemory&& other) noexcept;
  SealedMemory& operator=(SealedMemory&&) = delete;
  ~SealedMemory();

  // Null if this object is empty.
  std::byte* data() const { return data_; }
  // False in the child of a fork of the process that has mapped the memory.
  bool is_own() const;

 private:
  SealedMemory(int fd, std::size_t size);  // maps `fd`; -1 makes an empty object

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  pid_t process_ = 0;
};

}  // namespace uiw
