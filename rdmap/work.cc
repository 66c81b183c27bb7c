// SPDX-License-Identifier: MIT
#include "rdmap/work.h"

#include <algorithm>

namespace uiw::rdmap {

namespace {

std::size_t room(std::uint32_t max_sges, std::uint32_t max_inline) {
  constexpr std::size_t kAlign = alignof(Sge);
  return std::max(max_sges * sizeof(Sge), (max_inline + kAlign - 1) / kAlign * kAlign);
}

}  // namespace

SendQueue::SendQueue(std::uint32_t depth, std::uint32_t max_sges, std::uint32_t max_inline)
    : depth_(depth),
      max_sges_(max_sges),
      max_inline_(max_inline),
      room_(room(max_sges, max_inline)),
      entries_(depth, sizeof(SendWork) + room_),
      operands_(depth, sizeof(Operands)) {
  if (depth > 0) entries_.provide_first();
}

ReceiveQueue::ReceiveQueue(std::uint32_t depth, std::uint32_t max_sges)
    : depth_(depth),
      max_sges_(max_sges == 0 ? 1 : max_sges),
      entries_(depth, sizeof(ReceiveWork) + max_sges_ * sizeof(Sge)) {
  if (depth > 0) entries_.provide_first();
}

}  // namespace uiw::rdmap
