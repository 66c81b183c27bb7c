// SPDX-License-Identifier: MIT
#include "rdmap/work.h"

#include <bit>

namespace uiw::rdmap {

namespace {
std::uint64_t slots(std::uint32_t depth) { return std::bit_ceil(std::uint64_t{depth == 0 ? 1 : depth}); }
}  // namespace

SendQueue::SendQueue(std::uint32_t depth, std::uint32_t max_sges, std::uint32_t max_inline)
    : depth_(depth),
      max_sges_(max_sges),
      max_inline_(max_inline),
      mask_(slots(depth) - 1),
      work_(std::make_unique<SendWork[]>(mask_ + 1)),
      // Not written to before they are used: most of a deep queue is never touched.
      sges_(std::make_unique_for_overwrite<Sge[]>((mask_ + 1) * max_sges)),
      inline_(std::make_unique_for_overwrite<std::byte[]>((mask_ + 1) * max_inline)),
      operands_(std::make_unique_for_overwrite<Operands[]>(mask_ + 1)) {}

ReceiveQueue::ReceiveQueue(std::uint32_t depth, std::uint32_t max_sges)
    : depth_(depth),
      max_sges_(max_sges == 0 ? 1 : max_sges),
      mask_(slots(depth) - 1),
      work_(std::make_unique<ReceiveWork[]>(mask_ + 1)),
      sges_(std::make_unique_for_overwrite<Sge[]>((mask_ + 1) * max_sges_)) {}

}  // namespace uiw::rdmap
