// SPDX-License-Identifier: MIT
// The messages that find a service of datagrams: what is encoded is decoded again, and nothing else is.
#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "provider/connect/lookup/lookup_format.h"

namespace uiw::provider {

namespace {

std::vector<std::byte> octets_of(const LookupMessage& message) {
  const EncodedLookup encoded = encode(message);
  return {encoded.octets().begin(), encoded.octets().end()};
}

void sum_again(std::vector<std::byte>& octets) {
  mpa::Crc32c crc;
  crc.add(Octets(octets).first(octets.size() - kLookupCrcSize));
  mpa::store_crc(octets.data() + octets.size() - kLookupCrcSize, crc.value());
}

}  // namespace

TEST_CASE("a message of a look-up is decoded as it was encoded") {
  const std::vector<std::byte> data(GENERATE(0, 1, 180, 255), std::byte{7});
  for (const LookupMessage& message : {LookupMessage{LookupKind::request, 0x0102030405060708, 0, 0, data},
                                       LookupMessage{LookupKind::reply, ~0ULL, 0xFFFFFE, 0x01234567, data},
                                       LookupMessage{LookupKind::rejection, 1, 0, 0, data}}) {
    const auto octets = octets_of(message);
    const auto decoded = decode_lookup(octets);
    REQUIRE(decoded);
    CHECK(decoded->kind == message.kind);
    CHECK(decoded->request == message.request);
    CHECK(decoded->qp_number == message.qp_number);
    CHECK(decoded->qkey == message.qkey);
    CHECK(std::vector<std::byte>(decoded->private_data.begin(), decoded->private_data.end()) == data);
  }
}

TEST_CASE("a message of a look-up that was changed or cut is refused") {
  const std::vector<std::byte> data(5, std::byte{7});
  const auto good = octets_of({LookupKind::reply, 5, 0x100, 0x11, data});
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(!decode_lookup(Octets(good).first(size)));
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto octets = good;
    octets[i] ^= std::byte{1};
    CHECK(!decode_lookup(octets));
  }
  CHECK(!decode_lookup(std::vector<std::byte>(kMostLookupSize + 1)));
}

TEST_CASE("a message of a look-up with a right sum and a wrong field is refused") {
  const auto [at, value] = GENERATE(
      table<std::size_t, int>({{0, 'x'}, {4, 2}, {5, 0}, {5, 4}, {5, 1}, {5, 3}, {6, 1}, {7, 4}, {7, 6}, {16, 1}}));
  const std::vector<std::byte> data(5, std::byte{7});
  auto octets = octets_of({LookupKind::reply, 5, 0x100, 0x11, data});
  octets[at] = static_cast<std::byte>(value);
  sum_again(octets);
  CHECK(!decode_lookup(octets));
}

TEST_CASE("a service's number is not that of multicast") {
  CHECK(!decode_lookup(octets_of({LookupKind::reply, 5, 0xFFFFFF, 0x11, {}})));
}

}  // namespace uiw::provider
