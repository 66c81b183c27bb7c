// SPDX-License-Identifier: MIT
// Finds the memory that the scatter/gather elements of posted work name, and copies received octets into it. The STag
// of each element is looked up again at each use, since the memory may have been deregistered since the work was
// posted. Called inside a ReadSection (base/grace_period.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ddp/stag_table.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// The most memory segments in one FPDU. If a message has more of them, it continues in the next FPDU.
constexpr std::size_t kMaxPieces = 64;
// gather() returns this if a part of the memory may not be read: it was not registered for this use when the work was
// posted, or it was deregistered later. A std::optional would be slower: it is returned in memory, and the processor
// stalls when two small stores are loaded as one word.
constexpr std::size_t kUnavailable = ~std::size_t{0};

namespace detail {
std::size_t gather_registered(const ddp::Accessor& memory, std::span<const Sge> sges, std::uint32_t offset,
                              std::uint32_t& size, MemorySegment* pieces);
}

// Finds the memory of `size` octets of the send queue entry `sequence`, from `offset` on. Returns the number of memory
// segments in `pieces`, or kUnavailable. `size` is reduced if the octets are in more than kMaxPieces segments. Called
// with the sender's lock held.
inline std::size_t gather(const ddp::Accessor& memory, SendQueue& queue, std::uint64_t sequence, std::uint32_t offset,
                          std::uint32_t& size, MemorySegment* pieces) {
  if (queue.at(sequence).inlined) {
    pieces[0] = {queue.inline_room(sequence) + offset, size};
    return 1;
  }
  return detail::gather_registered(memory, queue.sges(sequence), offset, size, pieces);
}

// A position in a message: the index of a scatter/gather element, and an offset into this element in octets.
struct ScatterPosition {
  std::size_t sge = 0;
  std::uint32_t offset = 0;
};

// Copies `octets` into the elements from position `at` on, and moves `at` to the end of the copied octets. False if the
// memory may not be written to or is not accessible, or if the elements have no room left.
bool scatter(const ddp::Accessor& memory, std::span<const Sge> sges, ScatterPosition& at, Octets octets);

}  // namespace uiw::rdmap
