// SPDX-License-Identifier: MIT
#include "mpa/crc32c.h"

#include <catch2/catch.hpp>

#include "tests/unit/octets.h"

using namespace uiw;
using uiw::test::Bytes;

namespace {
std::uint32_t crc_of(test::Octets octets) {
  mpa::Crc32c crc;
  crc.add(octets);
  return crc.value();
}
}  // namespace

// RFC 3720 appendix B.4: the octets in the order in which they go out.
TEST_CASE("crc32c: the iSCSI examples", "[crc32c]") {
  Bytes zeros(32, std::byte{0}), ones(32, std::byte{0xFF}), up(32), down(32);
  for (unsigned i = 0; i < 32; ++i) {
    up[i] = static_cast<std::byte>(i);
    down[i] = static_cast<std::byte>(31 - i);
  }
  const test::Wire read10 = test::Wire()
                                .u32(0x01C00000)
                                .zeros(12)
                                .u32(0x14000000)
                                .u32(0x00000400)
                                .u32(0x00000014)
                                .u32(0x00000018)
                                .u32(0x28000000)
                                .zeros(4)
                                .u32(0x02000000)
                                .zeros(4);
  const std::vector<std::pair<Bytes, std::uint32_t>> examples = {
      {zeros, 0xAA36918A}, {ones, 0x43ABA862}, {up, 0x4E79DD46}, {down, 0x5CDB3F11}, {read10.bytes(), 0x563A96D9}};
  for (const auto& [octets, wire] : examples) {
    std::byte stored[4];
    mpa::store_crc(stored, crc_of(octets));
    CHECK(test::big_endian(stored) == wire);
    CHECK(mpa::load_crc(stored) == crc_of(octets));
  }
  CHECK(crc_of(std::as_bytes(std::span("123456789", 9))) == 0xE3069283U);
}

TEST_CASE("crc32c: pieces add up, at every length and alignment", "[crc32c]") {
  const Bytes data = test::pattern(300);
  CHECK(crc_of({}) == 0);
  for (std::size_t start = 0; start < 17; ++start) {
    for (std::size_t size = 0; size + start <= data.size(); size += 1 + size / 16) {
      const auto octets = test::Octets(data).subspan(start, size);
      mpa::Crc32c split;
      split.add(octets.first(size / 3));
      split.add(octets.subspan(size / 3));
      REQUIRE(split.value() == test::slow_crc32c(octets));
      REQUIRE(crc_of(octets) == test::slow_crc32c(octets));
    }
  }
}
