// SPDX-License-Identifier: MIT
#include "rdmap/transmit/disorder.h"

#include <algorithm>
#include <numeric>

namespace uiw::rdmap {

namespace {

constexpr std::uint32_t kMostPieces = 32;

// A permutation of 0 to count - 1.
std::uint32_t permuted(std::uint32_t index, std::uint32_t count, std::uint64_t seed) {
  std::uint64_t factor = seed * 0x9E37'79B9'7F4A'7C15U >> 33 | 1;
  while (std::gcd(factor, std::uint64_t{count}) != 1) factor += 2;
  return static_cast<std::uint32_t>((index * (factor % count) + seed % count) % count);
}

}  // namespace

// What is left over at the end comes first, then what precedes the first aligned piece, then the whole pieces.
Piece piece_at(std::uint64_t tagged_offset, std::uint32_t length, std::uint32_t sent, std::uint64_t seed) {
  const std::uint32_t even = (length + kMostPieces - 1) / kMostPieces;
  const std::uint32_t size = std::max(kWord, (even + kWord - 1) / kWord * kWord);
  const auto misaligned = static_cast<std::uint32_t>(tagged_offset % kWord);
  const std::uint32_t front = std::min(length, misaligned == 0 ? 0 : kWord - misaligned);
  const std::uint32_t count = (length - front) / size;
  const std::uint32_t back = length - front - count * size;
  if (sent < back) return {length - back + sent, back - sent};
  if (sent < back + front) return {sent - back, back + front - sent};
  const std::uint32_t at = sent - back - front;
  const std::uint32_t within = at % size;
  return {front + permuted(at / size, count, seed) * size + within, size - within};
}

}  // namespace uiw::rdmap
