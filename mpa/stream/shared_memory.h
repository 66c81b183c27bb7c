// SPDX-License-Identifier: MIT
// The memory of a pair of rings (sealed_memory.h). Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "mpa/bytes.h"
#include "mpa/stream/shared_ring.h"

namespace uiw::mpa {

// Which ring an end writes.
enum class RingSide { first, second };

class SharedMemory {
 public:
  // Octets of each ring. What is used stays in the cache of a processor core, and is enough for the peer to work while
  // this end does.
  static constexpr std::size_t kRing = 256 * 1024;
  // In front of the rings: a page of the system, whose size may be up to this.
  static constexpr std::size_t kControl = 64 * 1024;
  static constexpr std::size_t kSize = kControl + 2 * kRing;

  // How many there are in this process. A child of a fork begins with none.
  static unsigned count();

  // Makes new memory. `fd` is its descriptor, close-on-exec, which the caller owns. Null if the system does not allow
  // it.
  static std::unique_ptr<SharedMemory> create(int& fd);
  // Maps memory that the peer has made; the caller goes on owning `fd`. Null if it is not as create() makes it, or
  // cannot be mapped.
  static std::unique_ptr<SharedMemory> attach(int fd);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  RingControl& control(RingSide written_by) const {
    return reinterpret_cast<RingControl*>(memory_)[static_cast<std::size_t>(written_by)];
  }
  MutableOctets ring(RingSide written_by) const {
    return {memory_ + kControl + static_cast<std::size_t>(written_by) * kRing, kRing};
  }

 private:
  explicit SharedMemory(std::byte* memory);
  static std::unique_ptr<SharedMemory> map(int fd);

  std::byte* const memory_;
  const int process_;  // that has mapped it: a child of a fork has no part in it
};

}  // namespace uiw::mpa
