// SPDX-License-Identifier: MIT
#include "provider/connect/startup/retry_counts_format.h"

#include <catch2/catch.hpp>

#include "tests/unit/octets.h"

using namespace uiw::test;
using uiw::provider::append;
using uiw::provider::RetryCounts;
using uiw::provider::take_retry_counts;

TEST_CASE("retry_counts: they follow the private data, and are taken away from its end", "[retry_counts]") {
  for (const std::size_t size : {0U, 1U, 8U, 196U}) {
    const Bytes said = pattern(size);
    for (std::uint8_t retry = 0; retry <= 7; ++retry) {
      for (std::uint8_t rnr_retry = 0; rnr_retry <= 7; ++rnr_retry) {
        Bytes octets = said;
        append({retry, rnr_retry}, octets);
        CHECK(octets.size() == size + (retry == 7 && rnr_retry == 7 ? 0 : 8));
        CHECK(take_retry_counts(octets) == RetryCounts{retry, rnr_retry});
        CHECK(octets == said);
      }
    }
  }
}

TEST_CASE("retry_counts: their octets", "[retry_counts]") {
  Bytes octets(1);
  append({5, 0}, octets);
  CHECK(octets == Wire().u8(0).u8('u').u8('i').u8('w').u8('-').u8('c').u8('m').u8(5).u8(0).bytes());
}

TEST_CASE("retry_counts: private data that has none stays as it is, and every peer assumes 7", "[retry_counts]") {
  const Bytes key = Wire().u8('u').u8('i').u8('w').u8('-').u8('c').u8('m').bytes();
  Bytes beyond = key, cut = key, other = pattern(8);
  beyond.insert(beyond.end(), {std::byte{8}, std::byte{0}});
  cut.push_back(std::byte{0});
  for (const Bytes& said : {Bytes(), beyond, cut, other}) {
    Bytes octets = said;
    CHECK(take_retry_counts(octets) == RetryCounts{});
    CHECK(octets == said);
  }
}
