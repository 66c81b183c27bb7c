// SPDX-License-Identifier: MIT
// The memory of posted work, as scatter/gather elements name it: where its octets are, and how octets get there. Each
// element is looked up again at each use. Called inside a ReadSection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ddp/stag_table.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// The most memory segments in one FPDU; the message continues in the next one.
constexpr std::size_t kMaxPieces = 64;
// What gather() returns if a part of the memory is not registered as it was when the work was posted. (A std::optional
// would go through memory here, and the processor waits where two small stores are loaded as one.)
constexpr std::size_t kUnavailable = ~std::size_t{0};

namespace detail {
std::size_t gather_several(const ddp::Accessor& memory, std::span<const Sge> sges, std::uint32_t offset,
                           std::uint32_t& size, MemorySegment* pieces);
}

// Finds `size` octets of a posted send from `offset` on. Returns the number of memory segments, at most kMaxPieces, or
// kUnavailable; `size` is reduced if there are more segments. Called with the sender's lock held.
inline std::size_t gather(const ddp::Accessor& memory, SendQueue& queue, std::uint64_t sequence, std::uint32_t offset,
                          std::uint32_t& size, MemorySegment* pieces) {
  const SendWork& work = queue.at(sequence);
  if (work.inlined) {
    pieces[0] = {queue.inline_room(sequence) + offset, size};
    return 1;
  }
  if (work.sges != 1) return detail::gather_several(memory, queue.sges(sequence), offset, size, pieces);
  const ddp::Access source = find(memory, *queue.sge_room(sequence), offset, size, ddp::kLocalRead);
  if (source.error != ddp::AccessError::none) return kUnavailable;
  pieces[0] = {source.memory, size};
  return 1;
}

// A position in the elements of a message.
struct ScatterPosition {
  std::size_t sge = 0;
  std::uint32_t offset = 0;
};

// Copies octets to a position, and moves it behind them. False if the memory may not be written to or is not there, or
// the elements are full.
bool scatter(const ddp::Accessor& memory, std::span<const Sge> sges, ScatterPosition& at, Octets octets);

}  // namespace uiw::rdmap
