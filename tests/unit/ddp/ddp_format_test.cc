// SPDX-License-Identifier: MIT
#include "ddp/ddp_format.h"

#include <catch2/catch.hpp>

#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE("ddp_format: control octet (RFC 5041 section 4.1)", "[ddp_format]") {
  CHECK(ddp::encode(ddp::Control{true, true, 1}) == std::byte{0xC1});
  CHECK(ddp::encode(ddp::Control{true, false, 1}) == std::byte{0x81});
  CHECK(ddp::encode(ddp::Control{false, true, 1}) == std::byte{0x41});
  CHECK(ddp::encode(ddp::Control{false, false, 1}) == std::byte{0x01});
  for (unsigned octet = 0; octet < 256; ++octet) {
    const auto control = ddp::decode_control(static_cast<std::byte>(octet));
    CHECK(control.tagged == (octet >= 0x80));
    CHECK(control.last == ((octet & 0x40) != 0));
    CHECK(control.version == (octet & 3));
    CHECK(ddp::encode(control) == static_cast<std::byte>(octet & 0xC3));  // reserved bits are zero on the wire
  }
}

TEST_CASE("ddp_format: tagged header (RFC 5041 section 4.2, figure 4)", "[ddp_format]") {
  const ddp::TaggedHeader header{true, 0x42, ddp::Stag{0x01020304}, 0x1112131415161718};
  Bytes out(ddp::kTaggedHeaderSize);
  ddp::encode(header, out.data());
  CHECK(out == Wire().u8(0xC1).u8(0x42).u32(0x01020304).u64(0x1112131415161718).bytes());
  CHECK(ddp::decode_tagged(out) == header);
  out[0] |= std::byte{0x3C};  // reserved: ignored
  CHECK(ddp::decode_tagged(out) == header);
  for (std::size_t cut = 0; cut < out.size(); ++cut) CHECK_FALSE(ddp::decode_tagged(Octets(out).first(cut)));
  ddp::clear_last(out.data());
  CHECK(ddp::decode_tagged(out) == ddp::TaggedHeader{false, 0x42, ddp::Stag{0x01020304}, 0x1112131415161718});
}

TEST_CASE("ddp_format: untagged header (RFC 5041 section 4.3, figure 5)", "[ddp_format]") {
  const ddp::UntaggedHeader header{false, 0x44, 0xA1A2A3A4, 0x01020304, ddp::Msn{0x11121314}, 0x21222324};
  Bytes out(ddp::kUntaggedHeaderSize);
  ddp::encode(header, out.data());
  CHECK(out == Wire().u8(0x01).u8(0x44).u32(0xA1A2A3A4).u32(0x01020304).u32(0x11121314).u32(0x21222324).bytes());
  CHECK(ddp::decode_untagged(out) == header);
  for (std::size_t cut = 0; cut < out.size(); ++cut) CHECK_FALSE(ddp::decode_untagged(Octets(out).first(cut)));
}

TEST_CASE("ddp_format: MSNs count modulo 2^32 (RFC 5041 section 4.3)", "[ddp_format]") {
  CHECK(ddp::next(ddp::Msn{1}) == ddp::Msn{2});
  CHECK(ddp::next(ddp::Msn{0xFFFFFFFF}) == ddp::Msn{0});
}
