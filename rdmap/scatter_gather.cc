// SPDX-License-Identifier: MIT
#include "rdmap/scatter_gather.h"

#include <algorithm>

#include "base/guarded_copy.h"

namespace uiw::rdmap {

std::size_t detail::gather_registered(const ddp::Accessor& memory, std::span<const Sge> sges, std::uint32_t offset,
                                      std::uint32_t& size, MemorySegment* pieces) {
  std::size_t count = 0;
  std::uint32_t left = size;
  for (const Sge& sge : sges) {
    if (left == 0 || count == kMaxPieces) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint32_t take = std::min(sge.length - offset, left);
    const ddp::Access source = find(memory, sge, offset, take, ddp::kLocalRead);
    if (source.error != ddp::AccessError::none) return kUnavailable;
    pieces[count++] = {source.memory, take};
    offset = 0;
    left -= take;
  }
  size -= left;
  return count;
}

bool scatter(const ddp::Accessor& memory, std::span<const Sge> sges, ScatterPosition& at, Octets octets) {
  while (!octets.empty()) {
    if (at.sge >= sges.size()) return false;
    const Sge& sge = sges[at.sge];
    const auto take = static_cast<std::uint32_t>(std::min<std::size_t>(octets.size(), sge.length - at.offset));
    if (take > 0) {
      const ddp::Access target = find(memory, sge, at.offset, take, ddp::kLocalWrite);
      if (target.error != ddp::AccessError::none) return false;
      if (target.memory != ddp::discarded && !guarded_copy_unordered(target.memory, octets.data(), take)) return false;
      octets = octets.subspan(take);
      at.offset += take;
    }
    if (at.offset == sge.length) at = {at.sge + 1, 0};
  }
  return true;
}

}  // namespace uiw::rdmap
