// SPDX-License-Identifier: MIT
#include "provider/datagram/datagram_format.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::provider;
using namespace uiw::test;

namespace {

Bytes with_crc(Bytes octets) {
  const std::uint32_t crc = slow_crc32c(octets);
  for (int i = 0; i < 4; ++i) octets.push_back(static_cast<std::byte>(crc >> (8 * i)));
  return octets;
}

// The fields of a good datagram, from which each test changes one.
struct Fields {
  std::uint32_t key = 0x75697764, version = 0x01000000, destination = 0x9C4003, source = 0x9C4105, qkey = 0x11111111;
  std::uint8_t ddp = 0x41, rdmap = 0x43;
  std::uint32_t word = 0, queue = 0, msn = 7, offset = 0;
};

Bytes datagram(const Fields& f) {
  Wire wire;
  wire.u32(f.key).u32(f.version).u32(f.destination).u32(f.source).u32(f.qkey);
  wire.u8(f.ddp).u8(f.rdmap).u32(f.word).u32(f.queue).u32(f.msn).u32(f.offset);
  wire.u8(0xAB).u8(0xCD);
  return with_crc(wire.bytes());
}

Bytes encoded(const DatagramHeader& header) {
  const auto octets = provider::encode(header);
  return {octets.begin(), octets.end()};
}

DatagramError error_of(const Fields& fields) { return decode_datagram(datagram(fields)).error; }

}  // namespace

TEST_CASE("datagram_format: the octets of docs/datagrams.md", "[datagram]") {
  const DatagramHeader header{0x9C4003, 0x9C4105, 0x11111111, false, std::nullopt, ddp::Msn{7}};
  const Bytes wire = datagram(Fields{});
  CHECK(encoded(header) == Bytes(wire.begin(), wire.begin() + kDatagramHeaderSize));
  const DecodedDatagram decoded = decode_datagram(wire);
  REQUIRE(decoded.error == DatagramError::none);
  CHECK(decoded.header == header);
  REQUIRE(decoded.payload.size() == 2);
  CHECK(decoded.payload.data() == wire.data() + kDatagramHeaderSize);
}

TEST_CASE("datagram_format: round trips", "[datagram]") {
  for (const bool solicited : {false, true}) {
    for (const std::optional<std::uint32_t> immediate : {std::optional<std::uint32_t>(), std::optional(0xA1A2A3A4U)}) {
      for (const std::size_t size : {0, 1, 4096}) {
        const DatagramHeader header{kMulticastQp, 0x040000, 0xFFFFFFFF, solicited, immediate, ddp::Msn{0xFFFFFFFF}};
        Bytes wire = encoded(header);
        wire.resize(wire.size() + size, std::byte{0x5A});
        wire = with_crc(wire);
        const DecodedDatagram decoded = decode_datagram(wire);
        REQUIRE(decoded.error == DatagramError::none);
        CHECK(decoded.header == header);
        CHECK(decoded.payload.size() == size);
      }
    }
  }
}

TEST_CASE("datagram_format: what does not belong to the format is refused", "[datagram]") {
  CHECK(error_of({.key = 0x75697765}) == DatagramError::key);
  CHECK(error_of({.version = 0x02000000}) == DatagramError::version);
  CHECK(error_of({.version = 0x01000001}) == DatagramError::version);
  CHECK(error_of({.destination = 0x1000000}) == DatagramError::qp_number);
  CHECK(error_of({.source = 0x1000000}) == DatagramError::qp_number);
  CHECK(error_of({.source = kMulticastQp}) == DatagramError::qp_number);
  CHECK(error_of({.destination = kMulticastQp}) == DatagramError::none);
  CHECK(error_of({.ddp = 0x01}) == DatagramError::segment);    // not the last segment
  CHECK(error_of({.ddp = 0xC1}) == DatagramError::segment);    // tagged
  CHECK(error_of({.ddp = 0x42}) == DatagramError::segment);    // another version of DDP
  CHECK(error_of({.rdmap = 0x83}) == DatagramError::segment);  // another version of RDMAP
  CHECK(error_of({.queue = 1}) == DatagramError::segment);
  CHECK(error_of({.offset = 1}) == DatagramError::segment);
  for (std::uint8_t opcode = 0; opcode < 16; ++opcode) {
    const bool good = opcode == 0x3 || opcode == 0x5 || opcode == 0xE || opcode == 0xF;
    CHECK(error_of({.rdmap = static_cast<std::uint8_t>(0x40 | opcode)}) ==
          (good ? DatagramError::none : DatagramError::segment));
  }
}

TEST_CASE("datagram_format: a datagram that was cut or changed is refused", "[datagram]") {
  const Bytes good = datagram(Fields{});
  for (std::size_t size = 0; size < good.size(); ++size) {
    // A copy of this size, so that a sanitizer sees reads past its end.
    CHECK(decode_datagram(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))).error !=
          DatagramError::none);
  }
  CHECK(decode_datagram(Octets(good).first(kDatagramOverhead - 1)).error == DatagramError::size);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes changed = good;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    CHECK(decode_datagram(changed).error != DatagramError::none);
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  CHECK(decode_datagram(longer).error == DatagramError::crc);
}

TEST_CASE("datagram_format: any octets are decoded without reading past the end", "[datagram]") {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    Bytes octets(random() % 64);
    for (std::byte& octet : octets) octet = static_cast<std::byte>(random());
    CHECK(decode_datagram(octets).error != DatagramError::none);
    // With key, version and CRC right the inner fields are reached.
    Bytes inner = encoded({});
    for (std::size_t i = kDatagramOwnHeader; i < inner.size(); ++i) inner[i] = static_cast<std::byte>(random());
    const DatagramError error = decode_datagram(with_crc(inner)).error;
    CHECK((error == DatagramError::none || error == DatagramError::segment));
  }
}

TEST_CASE("datagram_format: the source port proves who holds the source queue pair", "[datagram]") {
  const DatagramHeader header{0x9C4003, 0x9C4105, 0, false, std::nullopt, {}};
  CHECK(comes_from_holder(header, 0x9C41));
  CHECK_FALSE(comes_from_holder(header, 0x9C40));
  CHECK_FALSE(comes_from_holder(header, 0));
}
