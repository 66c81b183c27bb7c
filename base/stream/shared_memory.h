// SPDX-License-Identifier: MIT
// The memory that the two ends of one stream share: a control block and a ring (shared_ring.h) for each direction, in
// memory that neither end can resize (sealed_memory.h). Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

#include "base/bytes.h"
#include "base/stream/sealed_memory.h"
#include "base/stream/shared_ring.h"

namespace uiw {

// The two rings of a stream. The end that has initiated the connection (the caller) writes the first ring, the called
// end writes the second.
enum class RingSide { first, second };

class SharedMemory {
 public:
  // Size of each ring in octets: small enough that the part in use stays in the cache of a processor core, large enough
  // that one end can write while the other end reads.
  static constexpr std::size_t kRing = 256 * 1024;
  // Offset of the first ring, after the control blocks. It is the largest page size of the usual systems, so each ring
  // begins at a page boundary, and its pages can be freed.
  static constexpr std::size_t kControl = 64 * 1024;
  // The version of the layout, to be raised when the control blocks change. It adds to the size of the memory, and
  // attach() refuses memory of another size, so two ends with different layouts stay on TCP.
  static constexpr std::size_t kLayout = 1;
  static constexpr std::size_t kSize = kControl + 2 * kRing + kLayout * kControl;

  // The number of SharedMemory objects in this process. The child of a fork begins with 0.
  static unsigned count();

  // create() makes memory for two rings, and sets `fd` to its descriptor, which the caller owns, or to -1. attach()
  // maps memory that a peer has created; the caller goes on owning `fd`. Null if the memory cannot be created or
  // mapped.
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
