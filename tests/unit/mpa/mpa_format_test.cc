// SPDX-License-Identifier: MIT
#include "mpa/mpa_format.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "mpa/markers.h"
#include "tests/unit/octets.h"

using namespace uiw;
using test::Bytes;
using test::Wire;

TEST_CASE("mpa_format: start-up header, octet by octet (RFC 5044 section 7.1.1)", "[mpa_format]") {
  mpa::StartupHeader header;
  header.kind = mpa::FrameKind::request;
  header.crc = true;
  header.revision = 1;
  header.pd_length = 0x0102;
  Bytes out(mpa::kStartupHeaderSize);
  mpa::encode(header, out.data());
  CHECK(out == Wire().text("MPA ID Req Frame").u8(0x40).u8(1).u16(0x0102).bytes());

  header.kind = mpa::FrameKind::reply;
  header.markers = header.rejected = header.enhanced = true;
  header.crc = false;
  header.revision = 2;
  header.pd_length = 512;
  mpa::encode(header, out.data());
  CHECK(out == Wire().text("MPA ID Rep Frame").u8(0x80 | 0x20 | 0x10).u8(2).u16(512).bytes());
  CHECK(mpa::decode_startup_header(out) == header);
}

TEST_CASE("mpa_format: every start-up header comes back as it was", "[mpa_format]") {
  for (unsigned bits = 0; bits < 64; ++bits) {
    mpa::StartupHeader header;
    header.kind = (bits & 1) != 0 ? mpa::FrameKind::reply : mpa::FrameKind::request;
    header.markers = (bits & 2) != 0;
    header.crc = (bits & 4) != 0;
    header.rejected = (bits & 8) != 0;
    header.enhanced = (bits & 16) != 0;
    header.revision = (bits & 32) != 0 ? 2 : 1;
    header.pd_length = static_cast<std::uint16_t>(bits * 8);
    Bytes out(mpa::kStartupHeaderSize);
    mpa::encode(header, out.data());
    REQUIRE(mpa::decode_startup_header(out) == header);
  }
}

TEST_CASE("mpa_format: start-up headers that are none (RFC 5044 section 7.1.1)", "[mpa_format]") {
  const auto frame = [](std::string_view key, unsigned flags, unsigned revision, unsigned length) {
    return mpa::decode_startup_header(Wire().text(key).u8(flags).u8(revision).u16(length).bytes());
  };
  CHECK(frame("MPA ID Req Frame", 0, 1, 0));
  CHECK(frame("MPA ID Req Frame", 0, 1, 512));
  CHECK_FALSE(frame("MPA ID Req Frame", 0, 1, 513));
  CHECK_FALSE(frame("MPA ID Req Frame", 0, 1, 0xFFFF));
  CHECK_FALSE(frame("MPA ID Req Frame", 0, 0, 0));
  CHECK_FALSE(frame("MPA ID Req Frame", 0, 3, 0));
  CHECK_FALSE(frame("MPA ID Req Frame", 0, 255, 0));
  CHECK_FALSE(frame("MPA ID Rsp Frame", 0, 1, 0));
  CHECK_FALSE(frame("mpa id req frame", 0, 1, 0));
  // Reserved flags are not looked at.
  const auto reserved = frame("MPA ID Rep Frame", 0x4F, 1, 0);
  REQUIRE(reserved);
  CHECK(reserved->crc);
  CHECK_FALSE((reserved->markers || reserved->rejected || reserved->enhanced));

  const Bytes whole = Wire().text("MPA ID Req Frame").u8(0).u8(1).u16(0);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(mpa::decode_startup_header(test::Octets(whole).first(size)));
  }
  for (std::size_t i = 0; i < 16; ++i) {
    Bytes bent = whole;
    bent[i] ^= std::byte{0x20};
    CHECK_FALSE(mpa::decode_startup_header(bent));
  }
}

TEST_CASE("mpa_format: enhanced header (RFC 6581 section 9)", "[mpa_format]") {
  mpa::EnhancedHeader header;
  header.peer_to_peer = header.rtr_read = true;
  header.ird = 0x0123;
  header.ord = 0x3FFF;
  Bytes out(4);
  mpa::encode(header, out.data());
  CHECK(out == Wire().u16(0x8123).u16(0x7FFF).bytes());
  for (unsigned bits = 0; bits < 16; ++bits) {
    header.peer_to_peer = (bits & 1) != 0;
    header.rtr_fulpdu = (bits & 2) != 0;
    header.rtr_write = (bits & 4) != 0;
    header.rtr_read = (bits & 8) != 0;
    for (const unsigned depth : {0U, 1U, 0x1555U, 0x3FFEU, 0x3FFFU}) {
      header.ird = static_cast<std::uint16_t>(depth);
      header.ord = static_cast<std::uint16_t>(0x3FFF - depth);
      mpa::encode(header, out.data());
      REQUIRE(mpa::decode_enhanced_header(out) == header);
      REQUIRE(test::big_endian(test::Octets(out).first(2)) ==
              ((bits & 1) != 0 ? 0x8000U : 0) + ((bits & 2) != 0 ? 0x4000U : 0) + depth);
      REQUIRE(test::big_endian(test::Octets(out).subspan(2)) ==
              ((bits & 4) != 0 ? 0x8000U : 0) + ((bits & 8) != 0 ? 0x4000U : 0) + 0x3FFF - depth);
    }
  }
  for (std::size_t size = 0; size < 4; ++size) CHECK_FALSE(mpa::decode_enhanced_header(test::Octets(out).first(size)));
}

TEST_CASE("mpa_format: FPDUs are words of four octets (RFC 5044 section 4.1)", "[mpa_format]") {
  CHECK(mpa::fpdu_size(0) == 8);
  CHECK(mpa::fpdu_size(1) == 8);
  CHECK(mpa::fpdu_size(2) == 8);
  CHECK(mpa::fpdu_size(3) == 12);
  for (std::size_t ulpdu = 0; ulpdu <= mpa::kMaxUlpdu; ++ulpdu) {
    const std::size_t pad = mpa::pad_size(ulpdu);
    REQUIRE(pad < 4);
    REQUIRE((2 + ulpdu + pad) % 4 == 0);
    REQUIRE(mpa::fpdu_size(ulpdu) == 2 + ulpdu + pad + 4);
  }
}

TEST_CASE("mpa_format: MULPDU follows the EMSS (RFC 5044 section 4.5)", "[mpa_format]") {
  CHECK(mpa::mulpdu(1460) == 1454);
  CHECK(mpa::mulpdu(1461) == 1454);
  CHECK(mpa::mulpdu(1463) == 1454);
  CHECK(mpa::mulpdu(0) == 128);
  CHECK(mpa::mulpdu(100) == 128);
  for (std::size_t emss = 136; emss < 65536; ++emss) {
    const std::size_t most = mpa::mulpdu(emss);
    REQUIRE(mpa::fpdu_size(most) <= emss);
    REQUIRE(most == std::min<std::size_t>(emss - (6 + emss % 4), 64'768));
    if (most < 64'768) REQUIRE(mpa::fpdu_size(most + 1) > emss - emss % 4);
  }
}

TEST_CASE("mpa_format: MULPDU is at least 128 and at most 64768 octets (RFC 5044 section 3)", "[mpa_format]") {
  for (std::size_t emss = 0; emss < 70'000; ++emss) {
    REQUIRE(mpa::mulpdu(emss) >= 128);
    REQUIRE(mpa::mulpdu(emss) <= 64'768);
    REQUIRE(mpa::marked_mulpdu(emss) >= 128);
    REQUIRE(mpa::marked_mulpdu(emss) <= 64'768);
  }
  CHECK(mpa::mulpdu(1U << 20) == 64'768);
  for (std::size_t emss = 0; emss < 136; ++emss) {
    REQUIRE(mpa::mulpdu(emss) == 128);
    REQUIRE(mpa::marked_mulpdu(emss) == 128);
  }
}
