// SPDX-License-Identifier: MIT
#include "mpa/fpdu_remainder.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>

using namespace uiw;
using mpa::FpduRemainder;

TEST_CASE("fpdu_remainder: what is kept is there until it is taken") {
  FpduRemainder rest;
  CHECK(rest.empty());
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{4097}, mpa::kFpduBufferSize}) {
    std::byte* const room = rest.provide(size, 100);
    REQUIRE(room != nullptr);
    std::memset(room, 0x5A, size);
    rest.keep(size);
    CHECK(rest.octets().size() == size);
    rest.take(size - 1);
    CHECK(rest.octets().size() == 1);
    CHECK(rest.octets()[0] == std::byte{0x5A});
    CHECK_FALSE(rest.empty());
    rest.take(1);
    CHECK(rest.empty());
    rest.clear();
  }
}

TEST_CASE("fpdu_remainder: a small one keeps its memory, which has room for later ones") {
  FpduRemainder rest;
  const std::byte* const room = rest.provide(10, 1500);
  rest.keep(10);
  rest.clear();
  CHECK(rest.provide(1500, 1500) == room);
}

TEST_CASE("fpdu_buffer: a thread that keeps spares takes them again, one to receive and one to send") {
  mpa::keep_spare_fpdu_buffers(true);
  FpduRemainder sends;
  mpa::FpduBuffer receives = mpa::take_fpdu_buffer();
  const std::array first = {static_cast<const std::byte*>(receives.get()),
                            static_cast<const std::byte*>(sends.provide(60'000, 60'000))};
  CHECK(first[0] != first[1]);
  mpa::give_back_fpdu_buffer(std::move(receives));
  sends.clear();
  CHECK(sends.provide(60'000, 60'000) == first[0]);
  receives = mpa::take_fpdu_buffer();
  CHECK(receives.get() == first[1]);
  mpa::give_back_fpdu_buffer(std::move(receives));
  mpa::give_back_fpdu_buffer(mpa::take_fpdu_buffer());
  mpa::keep_spare_fpdu_buffers(false);
}
