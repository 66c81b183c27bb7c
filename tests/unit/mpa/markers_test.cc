// SPDX-License-Identifier: MIT
// Markers (RFC 5044 section 4.3), sent and received, wherever they stand in an FPDU.
#include "mpa/markers.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "mpa/deframer.h"
#include "mpa/framer.h"
#include "tests/unit/octets.h"

using namespace uiw;
using mpa::Batch;
using mpa::Deframer;
using mpa::Framer;
using mpa::MemorySegment;
using test::add_marked_fpdu;
using test::Bytes;
using test::Octets;
using test::Random;

namespace {

class Sink final : public mpa::UlpduSink {
 public:
  std::vector<Bytes> ulpdus;
  unsigned refuse = 0;  // pause that often

  Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) override {
    REQUIRE(offset == 0);
    REQUIRE(piece.size() == total);
    if (refuse > 0) {
      --refuse;
      return Verdict::pause;
    }
    ulpdus.emplace_back(piece.begin(), piece.end());
    return Verdict::go_on;
  }
};

// Lengths whose FPDUs take a stream through each place that a marker can have in an FPDU.
std::vector<Bytes> some_ulpdus() {
  std::vector<Bytes> ulpdus;
  unsigned seed = 0;
  for (std::size_t i = 0; i < 300; ++i) ulpdus.push_back(test::pattern(i % 41 * 4 + i % 3, ++seed));
  // With a marker each of these has 508 octets, so that the next one begins 4 octets closer to a marker.
  for (std::size_t i = 0; i < 128; ++i) ulpdus.push_back(test::pattern(498, ++seed));
  for (const std::size_t size : {0, 1, 490, 494, 498, 502, 506, 510, 1000, 1016, 5000, 65532, 65535, 7}) {
    ulpdus.push_back(test::pattern(size, ++seed));
  }
  return ulpdus;
}

Bytes stream_of(const std::vector<Bytes>& ulpdus, bool crc) {
  Bytes stream;
  for (const Bytes& ulpdu : ulpdus) add_marked_fpdu(stream, ulpdu, crc);
  return stream;
}

Deframer::Result feed(Deframer& deframer, Sink& sink, Octets octets, std::size_t piece) {
  while (!octets.empty()) {
    const auto [result, consumed] = deframer.receive(octets.first(std::min(piece, octets.size())), sink);
    octets = octets.subspan(consumed);
    if (result == Deframer::Result::more) continue;
    if (result != Deframer::Result::paused) return result;
    while (deframer.receive({}, sink).result == Deframer::Result::paused) {
    }
  }
  return Deframer::Result::more;
}

}  // namespace

TEST_CASE("markers: the octets (RFC 5044 section 4.3)", "[markers]") {
  // An FPDU of 508 octets behind the first marker of the stream ends where the second one stands.
  Framer framer;
  framer.start(false, true);
  Batch batch;
  const Bytes payload = test::pattern(502);
  const MemorySegment piece{payload.data(), payload.size()};
  REQUIRE(framer.add(batch, {}, {&piece, 1}) == Framer::Result::added);
  REQUIRE(framer.add(batch, {}, {&piece, 1}) == Framer::Result::added);
  REQUIRE(framer.add(batch, {}, {}) == Framer::Result::added);
  test::Wire expected;
  expected.u32(0).u16(502).add(payload).u32(0);
  expected.u32(0).u16(502).add(payload).u32(0);
  expected.u32(0).u16(0).u16(0).u32(0);
  REQUIRE(batch.vectors().size() == 1);
  const iovec& all = batch.vectors()[0];
  CHECK(Bytes(static_cast<std::byte*>(all.iov_base), static_cast<std::byte*>(all.iov_base) + all.iov_len) ==
        expected.bytes());
  CHECK(batch.fpdu_bytes(0) == 512);
  CHECK(batch.fpdu_bytes(2) == 12);
}

TEST_CASE("markers: the FPDUs of figures 5 and 6 (RFC 5044 section 4.4)", "[markers]") {
  // Two Sends of 24 octets that are zero: one at the begin of the stream, the other behind 492 octets.
  const auto send = [](unsigned msn) { return test::Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(msn).u32(0).zeros(24); };
  test::Wire figure5, figure6;
  figure5.u32(0).u16(42).add(send(1).bytes()).u32(0x52239983);
  const Bytes second = send(2);
  figure6.u16(42).add(Octets(second).first(18)).u16(0).u16(0x14).add(Octets(second).subspan(18)).u32(0x84925898);
  const auto octets = [](Framer& framer, const Bytes& ulpdu) {
    Batch batch;
    REQUIRE(framer.add(batch, ulpdu, {}) == Framer::Result::added);
    Bytes out(batch.bytes());
    REQUIRE(batch.copy_out(0, out.size(), out.data()));
    return out;
  };
  Framer framer;
  framer.start(true, true);
  CHECK(octets(framer, send(1)) == figure5.bytes());
  framer.sent(492);
  CHECK(octets(framer, second) == figure6.bytes());

  Bytes stream = figure5;
  add_marked_fpdu(stream, test::pattern(492 - stream.size() - 6), true);
  REQUIRE(stream.size() == 492);
  stream.insert(stream.end(), figure6.bytes().begin(), figure6.bytes().end());
  Deframer deframer;
  deframer.start(true, Deframer::Kind::marked);
  Sink sink;
  CHECK(feed(deframer, sink, stream, stream.size()) == Deframer::Result::more);
  REQUIRE(sink.ulpdus.size() == 3);
  CHECK(sink.ulpdus[0] == send(1).bytes());
  CHECK(sink.ulpdus[2] == second);
}

TEST_CASE("markers: the FPDUs of these tests begin at each distance from a marker", "[markers]") {
  Bytes stream;
  std::set<std::size_t> begun;
  for (const Bytes& ulpdu : some_ulpdus()) {
    begun.insert(stream.size() % 512);
    add_marked_fpdu(stream, ulpdu, false);
  }
  // There are 128 places but one: behind a marker there is always something of the same FPDU.
  CHECK(begun.count(4) == 0);
  CHECK(begun.size() == 127);
}

TEST_CASE("markers: FPDUs are sent with them, whatever part of a batch goes out", "[markers]") {
  const bool crc = GENERATE(false, true);
  auto ulpdus = some_ulpdus();
  for (Bytes& ulpdu : ulpdus) ulpdu.resize(std::min(ulpdu.size(), mpa::kMaxMulpdu));
  const Bytes expected = stream_of(ulpdus, crc);
  Framer framer;
  framer.start(crc, true);
  CHECK(framer.copies());
  Batch batch;
  Bytes stream, rest;
  Random random(GENERATE(1, 2, 3));
  for (std::size_t next = 0; next < ulpdus.size() || !rest.empty();) {
    batch.clear();
    const std::size_t first = next;
    if (!rest.empty()) batch.add_remainder(rest);
    const std::size_t before = batch.fpdus();
    for (std::size_t i = 0; i < 5 && first + i < ulpdus.size(); ++i) {
      const Bytes& ulpdu = ulpdus[first + i];
      const std::size_t header = std::min<std::size_t>(18, ulpdu.size());
      const MemorySegment payload{ulpdu.data() + header, ulpdu.size() - header};
      REQUIRE(framer.add(batch, Octets(ulpdu).first(header), {&payload, 1}) == Framer::Result::added);
    }
    // TCP takes a part of it; of the FPDU in which that ends, the rest is kept.
    const std::size_t taken = test::between(random, 1, batch.bytes());
    Bytes octets(batch.bytes());
    REQUIRE(batch.copy_out(0, octets.size(), octets.data()));
    stream.insert(stream.end(), octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(taken));
    framer.sent(taken);
    std::size_t end = 0;
    for (std::size_t i = 0; i < batch.fpdus() && end < taken; ++i) {
      end += batch.fpdu_bytes(i);
      if (i >= before) ++next;
    }
    rest.assign(octets.begin() + static_cast<std::ptrdiff_t>(taken), octets.begin() + static_cast<std::ptrdiff_t>(end));
  }
  CHECK(stream == expected);
}

TEST_CASE("markers: any segmentation gives the same ULPDUs", "[markers]") {
  const bool crc = GENERATE(false, true);
  const auto expected = some_ulpdus();
  const Bytes stream = stream_of(expected, crc);
  Deframer deframer;
  deframer.start(crc, Deframer::Kind::marked);
  Sink sink;
  SECTION("passed in") {
    const std::size_t piece = GENERATE(1, 2, 3, 5, 64, 511, 512, 513, 1460, 1 << 20);
    sink.refuse = GENERATE(0, 50);
    CHECK(feed(deframer, sink, stream, piece) == Deframer::Result::more);
  }
  SECTION("read straight into the room for the rest of an FPDU") {
    Octets rest = stream;
    Random random(7);
    while (!rest.empty()) {
      const auto room = deframer.wanted(sink);
      std::size_t take = std::min(rest.size(), test::between(random, 1, 700));
      if (room.empty()) {
        REQUIRE(deframer.receive(rest.first(take), sink).consumed == take);
      } else {
        take = std::min(take, room.size());
        std::copy_n(rest.begin(), take, room.begin());
        REQUIRE(deframer.filled(take, sink) == Deframer::Result::more);
      }
      rest = rest.subspan(take);
    }
  }
  CHECK((sink.ulpdus == expected));
  CHECK(deframer.taken() == stream.size());
}

TEST_CASE("markers: one that points elsewhere ends the stream (RFC 5044 section 8)", "[markers]") {
  const Bytes ulpdu = test::pattern(1200);
  Bytes stream;
  add_marked_fpdu(stream, test::pattern(100), false);
  const std::size_t second = stream.size();
  add_marked_fpdu(stream, ulpdu, false);
  const auto receive = [&](Octets octets) {
    Deframer deframer;
    deframer.start(false, Deframer::Kind::marked);
    Sink sink;
    const auto result = feed(deframer, sink, octets, octets.size());
    CHECK(sink.ulpdus.size() == (result == Deframer::Result::more ? 2U : 1U));
    return result;
  };
  CHECK(receive(stream) == Deframer::Result::more);
  const std::size_t at = GENERATE(512, 1024);
  CHECK(test::big_endian(Octets(stream).subspan(at, 4)) == at - second);
  for (int bit = 2; bit < 16; ++bit) {
    Bytes bad = stream;
    bad[at + 3 - static_cast<std::size_t>(bit / 8)] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK(receive(bad) == Deframer::Result::bad_marker);
  }
  // The two low bits and the reserved ones do not count.
  for (const unsigned bit : {0U, 1U, 16U, 23U, 31U}) {
    Bytes same = stream;
    same[at + 3 - bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK(receive(same) == Deframer::Result::more);
  }
}

TEST_CASE("markers: the CRC covers them (RFC 5044 section 4.4)", "[markers]") {
  Bytes stream;
  add_marked_fpdu(stream, test::pattern(1200), true);
  for (const std::size_t at : {0, 3, 512, 515, 1024}) {
    Bytes bad = stream;
    bad[at] ^= std::byte{1};
    Deframer deframer;
    deframer.start(true, Deframer::Kind::marked);
    Sink sink;
    CHECK(feed(deframer, sink, bad, 100) == Deframer::Result::bad_crc);
    CHECK(sink.ulpdus.empty());
  }
}

TEST_CASE("markers: the largest ULPDU leaves room for them (RFC 5044 section 4.5)", "[markers]") {
  for (std::size_t emss = 512; emss < 9100; ++emss) {
    const std::size_t most = mpa::marked_mulpdu(emss);
    REQUIRE(most == emss - (6 + 4 * ((emss + 511) / 512) + emss % 4));
    for (std::size_t position = 0; position < 512; position += 4) {
      REQUIRE(mpa::marked_size(position, mpa::fpdu_size(most)) <= emss);
    }
  }
  CHECK(mpa::marked_mulpdu(1460) == 1460 - 6 - 4 * 3);
  CHECK(mpa::marked_mulpdu(0) == 128);
  CHECK(mpa::marked_mulpdu(65535) == mpa::kMaxMulpdu);
}
