// SPDX-License-Identifier: MIT
// The memory of one stream: two control blocks and two rings (sealed_memory.h). Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "base/stream/sealed_memory.h"
#include "base/stream/shared_ring.h"

namespace uiw {

// The ring that an end writes: the caller writes the first, the called end the second.
enum class RingSide { first, second };

class SharedMemory {
 public:
  // Size of each ring: small enough that the part in use stays in the cache of a processor core, large enough that both
  // ends work at the same time.
  static constexpr std::size_t kRing = 256 * 1024;
  // Offset of the first ring, behind the control blocks: the largest page size that systems have.
  static constexpr std::size_t kControl = 64 * 1024;
  // To be raised when the control blocks change. It makes the memory larger, and memory of another size is refused:
  // ends of different versions stay on TCP.
  static constexpr std::size_t kLayout = 1;
  static constexpr std::size_t kSize = kControl + 2 * kRing + kLayout * kControl;

  // The number of such objects in this process. A child of a fork begins with none.
  static unsigned count();

  // As the functions of SealedMemory. Null if there is no memory, or it cannot be attached.
  static std::unique_ptr<SharedMemory> create(int& fd);
  static std::unique_ptr<SharedMemory> attach(int fd);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  RingControl& control(RingSide written_by) const {
    return reinterpret_cast<RingControl*>(memory_.data())[static_cast<std::size_t>(written_by)];
  }
  MutableOctets ring(RingSide written_by) const {
    return {memory_.data() + kControl + static_cast<std::size_t>(written_by) * kRing, kRing};
  }

 private:
  explicit SharedMemory(SealedMemory memory);
  static std::unique_ptr<SharedMemory> made_of(SealedMemory memory);

  const SealedMemory memory_;
};

}  // namespace uiw
