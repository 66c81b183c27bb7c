// SPDX-License-Identifier: MIT
// The messages of the iWARP port mapper, held against octets that are written down here, as iwpmd of rdma-core sends
// and takes them (iwpmd/iwarp_pm.h).
#include <arpa/inet.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <string_view>
#include <vector>

#include "provider/connect/mapper/port_mapper_format.h"

namespace uiw::provider {

namespace {

using namespace std::string_view_literals;

std::vector<std::byte> bytes(std::string_view text) {
  std::vector<std::byte> octets(text.size());
  std::memcpy(octets.data(), text.data(), text.size());
  return octets;
}

sockaddr_storage v4(const char* text, std::uint16_t port) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  REQUIRE(::inet_pton(AF_INET, text, &address.sin_addr) == 1);
  return storage;
}

sockaddr_storage v6(const char* text, std::uint16_t port) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, text, &address.sin6_addr) == 1);
  return storage;
}

bool same(const sockaddr_storage& one, const sockaddr_storage& other) {
  return std::memcmp(&one, &other, sizeof one) == 0;
}

// A request of 10.77.0.2, port 0x8001, mapped to port 0x8002, for port 0x1234 of 10.77.0.1.
constexpr std::string_view kRequest =
    "\x04\x00\x80\x02\x12\x34\x80\x01\x01\x02\x03\x04\x05\x06\x07\x08"
    "\x0a\x4d\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x0a\x4d\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x0a\x4d\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"sv;
// The answer: TCP port 0x2a01. IPv6, fd77::2 has asked fd77::1.
constexpr std::string_view kAccept6 =
    "\x16\x05\x00\x00\x2a\x01\x80\x01\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"
    "\xfd\x77\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"
    "\xfd\x77\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"sv;

}  // namespace

TEST_CASE("a request to a port mapper has the octets that iwpmd reads") {
  PortMapperMessage message;
  message.association = 0x0102030405060708;
  message.caller = v4("10.77.0.2", 0x8001);
  message.mapped_caller = v4("10.77.0.2", 0x8002);
  message.called = v4("10.77.0.1", 0x1234);
  const auto encoded = encode(message);
  CHECK(std::vector<std::byte>(encoded.octets().begin(), encoded.octets().end()) == bytes(kRequest));
  const auto decoded = decode_port_mapper(bytes(kRequest));
  REQUIRE(decoded);
  CHECK(decoded->kind == PortMapperKind::request);
  CHECK(decoded->association == message.association);
  CHECK((same(decoded->caller, message.caller) && same(decoded->called, message.called)));
  CHECK(same(decoded->mapped_caller, message.mapped_caller));
}

TEST_CASE("the answers of a port mapper have the octets that iwpmd sends") {
  PortMapperMessage message;
  message.kind = PortMapperKind::accept;
  message.time = 5;
  message.association = 0xFFFEFDFCFBFAF9F8;
  message.caller = v6("fd77::2", 0x8001);
  message.called = v6("fd77::1", 0x2A01);
  auto octets = bytes(kAccept6);
  for (const auto kind : {PortMapperKind::accept, PortMapperKind::acknowledgement, PortMapperKind::rejection}) {
    message.kind = kind;
    octets[0] = static_cast<std::byte>(static_cast<unsigned>(kind) << 4 | 6);
    const auto encoded = encode(message);
    CHECK(std::vector<std::byte>(encoded.octets().begin(), encoded.octets().end()) == octets);
    const auto decoded = decode_port_mapper(octets);
    REQUIRE(decoded);
    CHECK(decoded->kind == kind);
    CHECK(decoded->time == 5);
    CHECK((same(decoded->caller, message.caller) && same(decoded->called, message.called)));
  }
}

TEST_CASE("version 1 of a port mapper's messages is about port space UDP") {
  auto octets = bytes(kRequest);
  octets[0] = std::byte{0x44};
  const auto decoded = decode_port_mapper(octets);
  REQUIRE(decoded);
  CHECK(decoded->kind == PortMapperKind::request);
  CHECK(decoded->space == PortSpace::udp);
  const auto encoded = encode(*decoded);
  CHECK(std::vector<std::byte>(encoded.octets().begin(), encoded.octets().end()) == octets);
  CHECK(decode_port_mapper(bytes(kRequest))->space == PortSpace::tcp);
}

TEST_CASE("a message of a port mapper of another length, version or IP version is refused") {
  const auto good = bytes(kRequest);
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(decode_port_mapper(Octets(good).first(size)).has_value() == (size == 48));
  }
  auto longer = good;
  longer.resize(65);
  CHECK_FALSE(decode_port_mapper(longer));
  for (const unsigned first : {0x84U, 0xC4U, 0x40U, 0x45U, 0x00U, 0x05U, 0x0FU}) {
    auto octets = good;
    octets[0] = static_cast<std::byte>(first);
    CHECK_FALSE(decode_port_mapper(octets));
  }
}

}  // namespace uiw::provider
