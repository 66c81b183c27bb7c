// SPDX-License-Identifier: MIT
#include "rdmap/transmit/disorder.h"

#include <catch2/catch.hpp>
#include <vector>

using uiw::rdmap::Piece;
using uiw::rdmap::piece_at;

namespace {

// The pieces of a whole Write; each is sent in parts of at most `most` octets.
std::vector<Piece> pieces_of(std::uint64_t offset, std::uint32_t length, std::uint64_t seed, std::uint32_t most) {
  std::vector<Piece> pieces;
  for (std::uint32_t sent = 0; sent < length;) {
    Piece piece = piece_at(offset, length, sent, seed);
    piece.size = std::min(piece.size, most);
    pieces.push_back(piece);
    sent += piece.size;
  }
  return pieces;
}

}  // namespace

TEST_CASE("The pieces of a Write cover each of its octets once") {
  for (const std::uint32_t length : {1U, 7U, 8U, 9U, 16U, 63U, 64U, 1000U, 65'537U}) {
    for (const std::uint64_t offset : {0U, 1U, 7U, 4096U}) {
      for (std::uint64_t seed = 1; seed < 20; ++seed) {
        for (const std::uint32_t most : {5U, 64U, ~0U}) {
          std::vector<int> covered(length);
          for (const Piece& piece : pieces_of(offset, length, seed, most)) {
            REQUIRE(piece.size > 0);
            REQUIRE(piece.from + std::uint64_t{piece.size} <= length);
            for (std::uint32_t i = 0; i < piece.size; ++i) ++covered[piece.from + i];
          }
          REQUIRE(covered == std::vector<int>(length, 1));
        }
      }
    }
  }
}

TEST_CASE("Aligned words of eight octets are not divided") {
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    for (const Piece& piece : pieces_of(5, 100, seed, ~0U)) {
      const std::uint64_t end = 5 + piece.from + piece.size;
      REQUIRE(((5 + piece.from) % 8 == 0 || piece.from == 0));
      REQUIRE((end % 8 == 0 || end == 105));
    }
  }
}

TEST_CASE("The last octets of a Write come early or late, as the seed says") {
  int early = 0, late = 0;
  for (std::uint64_t seed = 1; seed < 100; ++seed) {
    const std::vector<Piece> pieces = pieces_of(0, 64, seed, ~0U);
    REQUIRE(pieces.size() == 8);
    pieces.back().from + pieces.back().size == 64 ? ++late : ++early;
  }
  CHECK(early > 10);
  CHECK(late > 5);
}
