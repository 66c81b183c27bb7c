// SPDX-License-Identifier: MIT
#include "provider/capture/segment_format.h"

#include <arpa/inet.h>

#include <catch2/catch.hpp>

#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using namespace uiw::provider;

namespace {

sockaddr_storage address(int family, const char* text, unsigned short port) {
  sockaddr_storage storage{};
  storage.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    auto& ip = reinterpret_cast<sockaddr_in&>(storage);
    REQUIRE(::inet_pton(family, text, &ip.sin_addr) == 1);
    ip.sin_port = htons(port);
  } else {
    auto& ip = reinterpret_cast<sockaddr_in6&>(storage);
    REQUIRE(::inet_pton(family, text, &ip.sin6_addr) == 1);
    ip.sin6_port = htons(port);
  }
  return storage;
}

Bytes encoded(const Segment& segment) {
  std::array<std::byte, kMostSegmentHeaders> headers;
  const std::size_t size = encode_headers(segment, headers);
  return {headers.begin(), headers.begin() + static_cast<std::ptrdiff_t>(size)};
}

}  // namespace

TEST_CASE("segment_format: a segment of IPv4", "[segment_format]") {
  const SegmentEndpoint from(address(AF_INET, "172.16.10.99", 0x1234)), to(address(AF_INET, "172.16.10.12", 4791));
  Segment segment{from, to, 0x01020304, 0xA0B0C0D0, kPsh | kAck, 21};
  // RFC 791 section 3.1; the checksum was computed by hand (RFC 1071).
  Wire ip;
  ip.u16(0x4500).u16(61).u32(0x0000'4000).u16(0x4006).u16(0xCE2B).u32(0xAC100A63).u32(0xAC100A0C);
  // RFC 9293 section 3.1.
  Wire tcp;
  tcp.u16(0x1234).u16(4791).u32(0x01020304).u32(0xA0B0C0D0).u16(0x5018).u16(0xFFFF).u32(0);
  CHECK(encoded(segment) == Wire().add(ip).add(tcp).bytes());
}

TEST_CASE("segment_format: a segment of IPv6 that opens a connection", "[segment_format]") {
  const SegmentEndpoint from(address(AF_INET6, "2001:db8::1", 1)), to(address(AF_INET6, "2001:db8::2", 2));
  Wire wire;  // RFC 8200 section 3, RFC 7323 section 2.2
  wire.u32(0x60000000).u16(24).u8(6).u8(64);
  wire.u64(0x20010db8'00000000).u64(1).u64(0x20010db8'00000000).u64(2);
  wire.u16(1).u16(2).u32(7).u32(0).u16(0x6002).u16(0xFFFF).u32(0).u32(0x0103030E);
  CHECK(encoded({from, to, 7, 0, kSyn, 0}) == wire.bytes());
}

TEST_CASE("segment_format: an IPv4 address that a socket of IPv6 has", "[segment_format]") {
  const SegmentEndpoint mapped(address(AF_INET6, "::ffff:10.0.0.1", 80));
  CHECK(mapped == SegmentEndpoint(address(AF_INET, "10.0.0.1", 80)));
  CHECK(encoded({mapped, mapped, 0, 0, kAck, kMostSegmentPayload}).size() == 40);
}
