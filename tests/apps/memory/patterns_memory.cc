// SPDX-License-Identifier: MIT
// What lies where in the memory of an end, and whether it is what it should be.
#include "tests/apps/memory/patterns_memory.h"

#include <algorithm>

namespace apps::patterns {

namespace {

constexpr std::size_t kMargin = 64;  // guard bytes compared on either side of what a case touches

}  // namespace

std::vector<Piece> layout(std::size_t length, unsigned align, unsigned sges, std::size_t number) {
  std::vector<Piece> pieces;
  std::size_t at = kPage + align;
  std::size_t left = length;
  for (unsigned i = 0; i < sges; ++i) {
    std::size_t part = i + 1 == sges ? left : std::min(left, length / sges + (number + i) % 5);
    if (part == 0 && i + 1 != sges) continue;  // a length of 0 in an SGE means 2^31 to some adapters
    if (part == 0 && length != 0) break;
    pieces.push_back({at, part});
    at += part + kMargin + (number * 7 + i * 13) % 64;
    left -= part;
  }
  return pieces;
}

std::vector<ibv_sge> scatter(const Area& area, std::span<const Piece> pieces) {
  std::vector<ibv_sge> list;
  for (const Piece& piece : pieces)
    list.push_back({reinterpret_cast<std::uint64_t>(area.base + piece.offset), static_cast<std::uint32_t>(piece.length),
                    area.mr->lkey});
  return list;
}

void fill(const Area& area, std::span<const Piece> pieces, std::size_t number) {
  std::size_t index = 0;
  for (const Piece& piece : pieces)
    for (std::size_t i = 0; i < piece.length; ++i) area.base[piece.offset + i] = pattern(number, index++);
}

void restore(const Area& area, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces)
    for (std::size_t i = 0; i < piece.length; ++i) area.base[piece.offset + i] = guard(piece.offset + i);
}

void verify(const Area& area, std::span<const Piece> pieces, std::size_t number, std::size_t first, const Case& test,
            std::size_t name) {
  std::size_t index = first;
  std::size_t at = pieces.empty() ? kPage - kMargin : pieces.front().offset - kMargin;
  auto around = [&](std::size_t end) {
    for (; at < end; ++at)
      if (area.base[at] != guard(at))
        die("case %zu (%s, %zu octets, alignments %u and %u, %u SGEs): guard byte at offset %zu is 0x%02x, "
            "not 0x%02x",
            name, kKindName[static_cast<int>(test.kind)], test.length, test.near_align, test.far_align, test.sges, at,
            area.base[at], guard(at));
  };
  for (const Piece& piece : pieces) {
    around(piece.offset);
    for (std::size_t i = 0; i < piece.length; ++i, ++index)
      if (area.base[piece.offset + i] != pattern(number, index))
        die("case %zu (%s, %zu octets, alignments %u and %u, %u SGEs): octet %zu is 0x%02x, not 0x%02x%s", name,
            kKindName[static_cast<int>(test.kind)], test.length, test.near_align, test.far_align, test.sges,
            index - first, area.base[piece.offset + i], pattern(number, index),
            area.base[piece.offset + i] == guard(piece.offset + i) ? " (never written)" : "");
    at = piece.offset + piece.length;
  }
  around(at + kMargin);
  restore(area, pieces);
}

void verify_untouched(const Area& area, const char* which) {
  for (std::size_t i = 0; i < kArea; ++i)
    if (area.base[i] != guard(i))
      die("in the end, octet %zu of %s is 0x%02x, not 0x%02x", i, which, area.base[i], guard(i));
}

}  // namespace apps::patterns
