// SPDX-License-Identifier: MIT
// The frames with which two queue pairs find each other without rdma_cm.
#include "provider/connect/manual/greeting_format.h"

#include "tests/unit/provider/connect/manual/manual_caller.h"

using namespace uiw;
using namespace uiw::test;
using provider::PairGreeting;
using provider::PairRefusal;

TEST_CASE("manual: the greeting's octets", "[manual]") {
  PairGreeting greeting{0x123456, 0xABCDEF, {}, {}, 0x345678};
  for (std::size_t i = 0; i < 16; ++i) {
    greeting.source[i] = static_cast<std::uint8_t>(i);
    greeting.destination[i] = static_cast<std::uint8_t>(0xF0 + i);
  }
  const Bytes octets = octets_of(greeting);
  CHECK(octets == Wire()
                      .text("uiw-pair")
                      .u8(2)
                      .u8(0)
                      .u16(8)
                      .u32(0x123456)
                      .u32(0xABCDEF)
                      .u64(0x0001020304050607)
                      .u64(0x08090A0B0C0D0E0F)
                      .u64(0xF0F1F2F3F4F5F6F7)
                      .u64(0xF8F9FAFBFCFDFEFF)
                      .u16(1)
                      .u16(4)
                      .u32(0x345678)
                      .bytes());
  CHECK(provider::decode_pair_greeting(octets) == greeting);
  CHECK(greeting.reversed().reversed().same_ends(greeting));
  CHECK_FALSE(greeting.reversed().same_ends(greeting));
  CHECK(octets_of(greeting, PairRefusal::wrong_address)[9] == std::byte{3});

  for (const std::size_t at : {0U, 7U, 8U, 9U}) {  // key, version, a rejection
    Bytes other = octets;
    other[at] ^= std::byte{1};
    CHECK_FALSE(provider::decode_pair_greeting(other));
  }
  for (std::size_t size = 0; size < octets.size(); ++size) {
    Bytes other = octets;
    other.resize(size);
    CHECK_FALSE(provider::decode_pair_greeting(other));
  }
}

// Written down once and for all: no release may stop to understand one of these.
TEST_CASE("manual: the greetings of other releases", "[manual]") {
  const auto greeting_with = [](const Bytes& options, unsigned size) {
    return Wire()
        .text("uiw-pair")
        .u8(2)
        .u8(0)
        .u16(size)
        .u32(0x00123456)
        .u32(0x00ABCDEF)
        .u64(0)
        .u64(0x0000FFFF7F000001)
        .u64(0)
        .u64(0x0000FFFF7F000002)
        .add(options)
        .bytes();
  };
  const auto exact = [&](const Bytes& options) {
    return greeting_with(options, static_cast<unsigned>(options.size()));
  };
  const Bytes psn = Wire().u16(1).u16(4).u32(0x00345678).bytes();
  const Bytes unknown = Wire().u16(0x1234).u16(3).u8(1).u8(2).u8(3).bytes(), empty = Wire().u16(0xFFFF).u16(0).bytes();
  PairGreeting expected{0x123456,
                        0xABCDEF,
                        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1},
                        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 2},
                        0x345678};
  CHECK(provider::decode_pair_greeting(exact(psn)) == expected);
  CHECK(provider::decode_pair_greeting(exact(Wire().add(unknown).add(psn).add(empty).bytes())) == expected);
  CHECK(provider::decode_pair_greeting(exact(Wire().add(psn).add(unknown).bytes())) == expected);
  // What stands behind the options is of a release that has more to say.
  CHECK(provider::decode_pair_greeting(greeting_with(Wire().add(psn).u64(77).bytes(), 8)) == expected);
  expected.psn = 0;
  CHECK(provider::decode_pair_greeting(exact({})) == expected);
  CHECK(provider::decode_pair_greeting(exact(unknown)) == expected);
  CHECK(provider::decode_pair_greeting(exact(Wire().u16(1).u16(8).u64(5).bytes())) ==
        expected);  // as long as no PSN is
  // Options that do not fit.
  CHECK_FALSE(provider::decode_pair_greeting(greeting_with(psn, 9)));
  CHECK_FALSE(provider::decode_pair_greeting(exact(Wire().u16(1).u16(5).u32(1).bytes())));
  CHECK_FALSE(provider::decode_pair_greeting(exact(Wire().add(psn).u8(0).bytes())));
}
