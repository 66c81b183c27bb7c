// SPDX-License-Identifier: MIT
#include "mpa/framer.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "base/guarded_copy.h"
#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using mpa::Batch;
using mpa::Framer;
using mpa::MemorySegment;

namespace {

Bytes gather(Batch& batch) {
  Bytes out;
  for (const iovec& vector : batch.vectors()) {
    const auto* from = static_cast<const std::byte*>(vector.iov_base);
    out.insert(out.end(), from, from + vector.iov_len);
  }
  REQUIRE(out.size() == batch.bytes());
  return out;
}

Bytes ulpdu_of(const Bytes& header, const std::vector<MemorySegment>& payload) {
  Bytes out = header;
  for (const MemorySegment& piece : payload) out.insert(out.end(), piece.data, piece.data + piece.size);
  return out;
}

}  // namespace

TEST_CASE("framer: a copy, where nothing may refer to the payload afterwards", "[framer]") {
  Bytes data = pattern(5000);
  const Bytes expected = data;
  Framer framer;
  framer.start(false);
  Batch batch;
  const MemorySegment piece{data.data(), data.size()};
  REQUIRE(framer.add(batch, {}, {&piece, 1}, true) == Framer::Result::added);
  std::fill(data.begin(), data.end(), std::byte{0});
  CHECK(gather(batch) == fpdu(expected, false));
}

TEST_CASE("framer: FPDUs octet by octet (RFC 5044 section 4.1)", "[framer]") {
  const bool crc = GENERATE(false, true);
  const Bytes data = pattern(70'000);
  Framer framer;
  framer.start(crc);
  CHECK(framer.copies() == crc);
  Batch batch;
  for (const std::size_t header : {0, 14, 18, 46}) {
    Bytes head = pattern(46, 3);
    head.resize(header);
    for (const std::size_t size : {0, 1, 2, 3, 4, 5, 100, 1023, 1024, 1025, 1026, 1440, 65'535 - 46}) {
      batch.clear();
      CHECK(batch.empty());
      const std::vector<MemorySegment> payload = {
          {data.data() + 1, size / 2}, {nullptr, 0}, {data.data() + 7, size - size / 2}};
      REQUIRE(framer.add(batch, head, payload) == Framer::Result::added);
      const Bytes expected = fpdu(ulpdu_of(head, payload), crc);
      REQUIRE((gather(batch) == expected));
      CHECK(batch.fpdus() == 1);
      CHECK(batch.fpdu_bytes(0) == expected.size());
      CHECK_FALSE(batch.empty());
    }
  }
}

TEST_CASE("framer: many small FPDUs share a vector", "[framer]") {
  const bool crc = GENERATE(false, true);
  const Bytes data = pattern(Framer::kCopyBelow - 1);
  Framer framer;
  framer.start(crc);
  Batch batch;
  Bytes expected;
  for (std::size_t i = 0; i < Batch::kMaxFpdus; ++i) {
    const Bytes header = pattern(14, static_cast<unsigned>(i));
    const std::vector<MemorySegment> payload = {{data.data(), i}};
    REQUIRE(framer.add(batch, header, payload) == Framer::Result::added);
    const Bytes one = fpdu(ulpdu_of(header, payload), crc);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  CHECK(batch.vectors().size() == 1);
  CHECK((gather(batch) == expected));
  CHECK(framer.add(batch, pattern(14), {}) == Framer::Result::full);
  CHECK((gather(batch) == expected));
}

TEST_CASE("framer: with CRC off large payload is sent from where it lies, with CRC on a copy is", "[framer]") {
  Bytes data = pattern(5000);
  const Bytes before = data;
  const std::vector<MemorySegment> payload = {{data.data(), data.size()}};
  Framer framer;
  Batch batch;
  SECTION("off") {
    framer.start(false);
    REQUIRE(framer.add(batch, pattern(14), payload) == Framer::Result::added);
    bool there = false;
    for (const iovec& vector : batch.vectors()) there = there || vector.iov_base == data.data();
    CHECK(there);
  }
  SECTION("on: what goes out is what was summed, whatever the program does") {
    framer.start(true);
    REQUIRE(framer.add(batch, pattern(14), payload) == Framer::Result::added);
    std::fill(data.begin(), data.end(), std::byte{0});
    CHECK((gather(batch) == fpdu(ulpdu_of(pattern(14), {{before.data(), before.size()}}), true)));
  }
}

TEST_CASE("framer: a full batch takes nothing and loses nothing", "[framer]") {
  const bool crc = GENERATE(false, true);
  const std::size_t size = GENERATE(2000, 60'000);
  const std::size_t pieces = GENERATE(1, 60);
  const Bytes data = pattern(size);
  std::vector<MemorySegment> payload;
  for (std::size_t i = 0; i < pieces; ++i) {
    payload.push_back({data.data() + i * (size / pieces), size / pieces});
  }
  Framer framer;
  framer.start(crc);
  Batch batch;
  std::size_t count = 0, bytes = 0;
  while (framer.add(batch, pattern(14), payload) == Framer::Result::added) {
    ++count;
    bytes += batch.fpdu_bytes(count - 1);
    REQUIRE(count <= Batch::kMaxFpdus);
  }
  CHECK(count > 1);
  CHECK(batch.fpdus() == count);
  CHECK(batch.bytes() == bytes);
  CHECK(batch.bytes() <= Batch::limit(crc));
  // Large pieces fill it by their octets; small ones, or many vectors, earlier.
  if (size == 60'000 && pieces == 1) CHECK(batch.bytes() + batch.fpdu_bytes(0) > Batch::limit(crc));
  CHECK(batch.vectors().size() <= 1024);  // IOV_MAX
  CHECK(gather(batch).size() == bytes);
  batch.clear();
  CHECK(framer.add(batch, pattern(14), payload) == Framer::Result::added);
}

TEST_CASE("batch: skip() drops what went out before", "[framer]") {
  const bool crc = GENERATE(false, true);
  const Bytes data = pattern(3000);
  const std::vector<MemorySegment> payload = {{data.data(), 1000}, {data.data() + 1000, 2000}};
  Framer framer;
  framer.start(crc);
  Batch whole;
  REQUIRE(framer.add(whole, pattern(18), payload) == Framer::Result::added);
  const Bytes all = gather(whole);
  for (const std::size_t octets :
       {0UL, 1UL, 19UL, 20UL, 21UL, 1019UL, 1020UL, 1021UL, 3019UL, 3020UL, 3021UL, 3023UL}) {
    REQUIRE(octets < all.size());
    Batch batch;
    REQUIRE(framer.add(batch, pattern(18), payload) == Framer::Result::added);
    batch.skip(octets);
    CHECK(batch.fpdu_bytes(0) == all.size() - octets);
    REQUIRE(framer.add(batch, pattern(14), {}) == Framer::Result::added);
    Bytes expected(all.begin() + static_cast<std::ptrdiff_t>(octets), all.end());
    const Bytes next = fpdu(pattern(14), crc);
    expected.insert(expected.end(), next.begin(), next.end());
    CHECK((gather(batch) == expected));
  }
}

TEST_CASE("batch: copy_out() at any place", "[framer]") {
  const bool crc = GENERATE(false, true);
  const Bytes data = pattern(3000);
  const std::vector<MemorySegment> payload = {{data.data(), 1000}, {data.data() + 1000, 2000}};
  Framer framer;
  framer.start(crc);
  Batch batch;
  for (int i = 0; i < 3; ++i) REQUIRE(framer.add(batch, pattern(18), payload) == Framer::Result::added);
  const Bytes all = gather(batch);
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const std::size_t from = between(random, 0, all.size()), to = between(random, from, all.size());
    Bytes out(to - from + 1, std::byte{0x5A});
    batch.copy_out(from, to, out.data());
    CHECK(out.back() == std::byte{0x5A});
    out.pop_back();
    REQUIRE(
        (out == Bytes(all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to))));
  }
}

TEST_CASE("batch: a remainder stands first and is counted as an FPDU", "[framer]") {
  const Bytes rest = pattern(777);
  Framer framer;
  framer.start(true);
  Batch batch;
  batch.add_remainder(rest);
  CHECK(batch.fpdus() == 1);
  CHECK(batch.fpdu_bytes(0) == 777);
  REQUIRE(framer.add(batch, pattern(14), {}) == Framer::Result::added);
  Bytes expected = rest;
  const Bytes next = fpdu(pattern(14), true);
  expected.insert(expected.end(), next.begin(), next.end());
  CHECK((gather(batch) == expected));
  CHECK(batch.fpdu_bytes(1) == next.size());
}

TEST_CASE("framer: payload that is not there changes nothing", "[framer]") {
  install_copy_guard();
  auto* gone = static_cast<std::byte*>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(gone != MAP_FAILED);
  const bool crc = GENERATE(false, true);
  const Bytes data = pattern(100);
  Framer framer;
  framer.start(crc);
  Batch batch;
  REQUIRE(framer.add(batch, pattern(14), {}) == Framer::Result::added);
  const Bytes before = gather(batch);
  const std::vector<MemorySegment> payload = {{data.data(), 100}, {gone, 8}};
  CHECK(framer.add(batch, pattern(14), payload) == Framer::Result::bad_address);
  CHECK(gather(batch) == before);
  CHECK(batch.fpdus() == 1);
  REQUIRE(framer.add(batch, pattern(14, 2), {}) == Framer::Result::added);
  CHECK(gather(batch).size() == 2 * before.size());
  ::munmap(gone, 4096);
}
