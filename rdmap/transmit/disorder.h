// SPDX-License-Identifier: MIT
// The pieces of an RDMA Write in another order than that of their addresses. Nothing says in which order the octets of
// a Write become visible before it completes (RFC 5040 section 5.5): segments may arrive in any order, and adapters
// store with relaxed ordering. This lets a test find programs that count on more.
#pragma once

#include <cstdint>

namespace uiw::rdmap {

// What is not divided, where the peer's memory has it aligned.
constexpr std::uint32_t kWord = 8;

struct Piece {
  std::uint32_t from = 0;  // offset in the message
  std::uint32_t size = 0;
};

// The piece that comes when `sent` of the `length` octets of a Write to this tagged offset have been sent. Pieces are
// bounded by aligned words of eight octets, which are not divided. `length` is more than `sent`; the order depends on
// `seed`.
Piece piece_at(std::uint64_t tagged_offset, std::uint32_t length, std::uint32_t sent, std::uint64_t seed);

}  // namespace uiw::rdmap
