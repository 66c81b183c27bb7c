// SPDX-License-Identifier: MIT
#include "rdmap/work.h"

#include <bit>

namespace uiw::rdmap {

namespace {
std::uint64_t slots(std::uint32_t depth) { return std::bit_ceil(std::uint64_t{depth == 0 ? 1 : depth}); }
}  // namespace

SendQueue::SendQueue(std::uint32_t depth, std::uint32_t max_pieces, std::uint32_t max_inline)
    : depth_(depth),
      max_pieces_(max_pieces),
      max_inline_(max_inline),
      piece_slots_(max_pieces == 0 ? 1 : max_pieces),  // inline data needs one
      mask_(slots(depth) - 1),
      work_(std::make_unique<SendWork[]>(mask_ + 1)),
      // Not written to before they are used: most of a deep queue is never touched.
      pieces_(std::make_unique_for_overwrite<Piece[]>((mask_ + 1) * piece_slots_)),
      inline_(std::make_unique_for_overwrite<std::byte[]>((mask_ + 1) * max_inline)),
      operands_(std::make_unique_for_overwrite<Operands[]>(mask_ + 1)) {}

ReceiveQueue::ReceiveQueue(std::uint32_t depth, std::uint32_t max_pieces)
    : depth_(depth),
      max_pieces_(max_pieces == 0 ? 1 : max_pieces),
      mask_(slots(depth) - 1),
      work_(std::make_unique<ReceiveWork[]>(mask_ + 1)),
      pieces_(std::make_unique_for_overwrite<Piece[]>((mask_ + 1) * max_pieces_)) {}

}  // namespace uiw::rdmap
