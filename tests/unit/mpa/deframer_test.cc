// SPDX-License-Identifier: MIT
#include "mpa/deframer.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/mpa/boundary.h"
#include "tests/unit/octets.h"

using namespace uiw;
using mpa::Deframer;
using test::Bytes;
using test::Octets;
using test::Random;

namespace {

// Puts pieces together again and checks the promises of UlpduSink.
class Collector final : public mpa::UlpduSink {
 public:
  std::vector<Bytes> ulpdus;
  unsigned refuse = 0;                    // pause that often
  std::size_t stop_at = ~std::size_t{0};  // stop at this ULPDU
  bool whole = false;                     // CRC on: in one piece
  bool pause_bodies = false;
  bool gives_room = false;  // CRC off: for the rest of a ULPDU
  Octets not_in;            // headers are not passed where they are
  std::size_t paused = 0;

  MutableOctets destination(std::size_t most) override {
    if (!gives_room) return {};
    REQUIRE(most == total_ - open_.size());
    room_.resize(most);
    return room_;
  }
  Verdict placed(std::size_t octets, std::size_t offset, std::size_t total) override {
    REQUIRE(octets <= room_.size());
    return ulpdu(Octets(room_).first(octets), offset, total);
  }

  Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) override {
    REQUIRE(offset == open_.size());
    REQUIRE(offset + piece.size() <= total);
    if (whole) REQUIRE(piece.size() == total);
    if (offset == 0) {
      REQUIRE(piece.size() >= std::min(total, Deframer::kHeadSize));
      REQUIRE((piece.data() < not_in.data() || piece.data() >= not_in.data() + not_in.size()));
    } else {
      REQUIRE_FALSE(piece.empty());
      REQUIRE(total == total_);
    }
    if (!refused_.empty() || refused_once_) {
      // The same piece as before, though perhaps with more behind it.
      REQUIRE(piece.size() >= refused_.size());
      REQUIRE(std::equal(refused_.begin(), refused_.end(), piece.begin()));
    }
    if (refuse > 0 && (offset == 0 || pause_bodies)) {
      --refuse;
      ++paused;
      refused_.assign(piece.begin(), piece.end());
      refused_once_ = true;
      return Verdict::pause;
    }
    refused_.clear();
    refused_once_ = false;
    if (ulpdus.size() == stop_at) return Verdict::stop;
    total_ = total;
    open_.insert(open_.end(), piece.begin(), piece.end());
    if (open_.size() == total) {
      ulpdus.push_back(std::move(open_));
      open_.clear();
    }
    return Verdict::go_on;
  }

 private:
  Bytes open_, refused_, room_;
  bool refused_once_ = false;
  std::size_t total_ = 0;
};

std::vector<Bytes> some_ulpdus() {
  std::vector<Bytes> ulpdus;
  unsigned seed = 0;
  for (const std::size_t size :
       {0, 1, 2, 3, 4, 13, 14, 18, 46, 70, 77, 78, 79, 80, 81, 82, 83, 200, 1454, 0, 0, 5000, 65533, 65534, 65535, 7}) {
    ulpdus.push_back(test::pattern(size, ++seed));
  }
  return ulpdus;
}

Bytes stream_of(const std::vector<Bytes>& ulpdus, bool crc) {
  Bytes stream;
  for (const Bytes& ulpdu : ulpdus) {
    const Bytes one = test::fpdu(ulpdu, crc);
    stream.insert(stream.end(), one.begin(), one.end());
  }
  return stream;
}

// The caller's part: gives segments of the sizes that `next` says, and again what was not consumed.
template <typename Next>
void feed(Deframer& deframer, Collector& sink, Octets stream, Next next) {
  std::size_t again = 0;  // after a pause: what was not taken, and perhaps more
  while (!stream.empty()) {
    const std::size_t size = std::min(stream.size(), again + next());
    const auto [result, consumed] = deframer.receive(stream.first(size), sink);
    again = result == Deframer::Result::paused ? size - consumed : 0;
    REQUIRE((result == Deframer::Result::more || result == Deframer::Result::paused));
    REQUIRE(consumed <= size);
    if (result == Deframer::Result::more) REQUIRE(consumed == size);
    stream = stream.subspan(consumed);
    if (result == Deframer::Result::paused && stream.empty()) {
      // Everything was consumed and kept: tried again with no new octets.
      while (deframer.receive({}, sink).result == Deframer::Result::paused) {
      }
    }
  }
}

}  // namespace

TEST_CASE("deframer: any segmentation gives the same ULPDUs (RFC 5044 section 4.1)", "[deframer]") {
  const bool crc = GENERATE(false, true);
  const bool shared = !crc && GENERATE(false, true);
  const auto expected = some_ulpdus();
  const Bytes stream = stream_of(expected, crc);
  Deframer deframer;
  deframer.start(crc, shared ? Deframer::Kind::shared : Deframer::Kind::plain);
  Collector sink;
  sink.whole = crc;
  if (shared) sink.not_in = stream;
  SECTION("in one piece") {
    feed(deframer, sink, stream, [&] { return stream.size(); });
  }
  SECTION("octet by octet") {
    feed(deframer, sink, stream, [] { return std::size_t{1}; });
  }
  SECTION("in pieces of one size") {
    const std::size_t size = GENERATE(2, 3, 5, 7, 64, 79, 81, 1460, 8191);
    feed(deframer, sink, stream, [&] { return size; });
  }
  SECTION("at random") {
    Random random(GENERATE(range(1, 20)));
    feed(deframer, sink, stream, [&] { return test::between(random, 1, test::between(random, 1, 3000)); });
  }
  SECTION("at random, pausing") {
    Random random(GENERATE(range(1, 20)));
    feed(deframer, sink, stream, [&] {
      sink.refuse += static_cast<unsigned>(test::between(random, 0, 1));
      return test::between(random, 1, test::between(random, 1, 3000));
    });
    CHECK(sink.paused > 0);
  }
  CHECK(sink.ulpdus == expected);
  CHECK(deframer.taken() == stream.size());
  CHECK(test::at_boundary(deframer));
}

TEST_CASE("deframer: a split at each octet of two FPDUs", "[deframer]") {
  const bool crc = GENERATE(false, true);
  for (const std::size_t size : {0, 1, 14, 80, 81, 100}) {
    const std::vector<Bytes> expected = {test::pattern(size, 1), test::pattern(33, 2)};
    const Bytes stream = stream_of(expected, crc);
    const std::size_t first = mpa::fpdu_size(size);
    for (std::size_t at = 0; at <= stream.size(); ++at) {
      Deframer deframer;
      deframer.start(crc);
      Collector sink;
      REQUIRE(deframer.receive(Octets(stream).first(at), sink).consumed == at);
      REQUIRE(deframer.taken() == (at == stream.size() ? at : at >= first ? first : 0));
      REQUIRE(deframer.receive(Octets(stream).subspan(at), sink).consumed == stream.size() - at);
      REQUIRE(sink.ulpdus == expected);
      Deframer stopped;
      stopped.start(crc);
      Collector before;
      stopped.receive(Octets(stream).first(at), before);
      REQUIRE(test::at_boundary(stopped) == (at == 0 || at == first || at == stream.size()));
    }
  }
}

TEST_CASE("deframer: nothing of an FPDU is delivered before its CRC was checked (RFC 5044 section 4.4)", "[deframer]") {
  const std::vector<Bytes> expected = {test::pattern(40, 1), test::pattern(101, 2)};
  const Bytes good = stream_of(expected, true);
  const std::size_t first = mpa::fpdu_size(40);
  for (std::size_t at = first; at < good.size(); ++at) {
    if (at == first || at == first + 1) continue;  // the length: another test
    for (const std::size_t piece : {std::size_t{1}, std::size_t{50}, good.size()}) {
      Bytes bad = good;
      bad[at] ^= std::byte{0x10};
      Deframer deframer;
      deframer.start(true);
      Collector sink;
      Octets rest = bad;
      Deframer::Result result = Deframer::Result::more;
      while (!rest.empty() && result == Deframer::Result::more) {
        const auto outcome = deframer.receive(rest.first(std::min(piece, rest.size())), sink);
        result = outcome.result;
        rest = rest.subspan(outcome.consumed);
      }
      REQUIRE(result == Deframer::Result::bad_crc);
      REQUIRE(sink.ulpdus == std::vector<Bytes>{expected[0]});
      REQUIRE(deframer.taken() == first);
    }
  }
}

TEST_CASE("deframer: each single wrong bit of an FPDU is found by the CRC (RFC 5044 section 4.4)", "[deframer]") {
  const bool marked = GENERATE(false, true);
  Bytes stream;
  if (marked) {
    test::add_marked_fpdu(stream, test::pattern(1200), true);
  } else {
    stream = test::fpdu(test::pattern(1200), true);
  }
  const std::size_t bits = 8 * stream.size();
  const Bytes more = test::pattern(70'000, 9);  // for a length that is too great
  stream.insert(stream.end(), more.begin(), more.end());
  for (std::size_t bit = 0; bit < bits; ++bit) {
    stream[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    Deframer deframer;
    deframer.start(true, marked ? Deframer::Kind::marked : Deframer::Kind::plain);
    Collector sink;
    REQUIRE(deframer.receive(stream, sink).result == Deframer::Result::bad_crc);
    REQUIRE(sink.ulpdus.empty());
    stream[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
  }
}

TEST_CASE("deframer: a damaged length field is found by the CRC", "[deframer]") {
  Bytes stream = stream_of({test::pattern(100)}, true);
  const Bytes more = test::pattern(70000, 9);
  stream.insert(stream.end(), more.begin(), more.end());
  for (const unsigned length : {0U, 99U, 101U, 5000U, 65535U}) {
    stream[0] = static_cast<std::byte>(length >> 8);
    stream[1] = static_cast<std::byte>(length);
    Deframer deframer;
    deframer.start(true);
    Collector sink;
    CHECK(deframer.receive(stream, sink).result == Deframer::Result::bad_crc);
    CHECK(sink.ulpdus.empty());
  }
}

TEST_CASE("deframer: with CRC off the field is not looked at (RFC 5044 section 4.4)", "[deframer]") {
  Bytes stream = stream_of({test::pattern(100)}, false);
  for (std::size_t i = stream.size() - 4; i < stream.size(); ++i) stream[i] = std::byte{0xA5};
  Deframer deframer;
  deframer.start(false);
  Collector sink;
  CHECK(deframer.receive(stream, sink).result == Deframer::Result::more);
  CHECK(sink.ulpdus == std::vector<Bytes>{test::pattern(100)});
}

TEST_CASE("deframer: the same piece again after a pause, until it is taken", "[deframer]") {
  const bool crc = GENERATE(false, true);
  const std::size_t size = GENERATE(0, 5, 80, 300);
  const std::size_t split = GENERATE(0, 1, 3, 60);
  const std::vector<Bytes> expected = {test::pattern(size, 1), test::pattern(20, 2)};
  const Bytes stream = stream_of(expected, crc);
  Deframer deframer;
  deframer.start(crc);
  Collector sink;
  sink.refuse = 5;
  Octets rest = stream;
  const std::size_t early = std::min(split, mpa::fpdu_size(size) - 5);
  rest = rest.subspan(deframer.receive(rest.first(early), sink).consumed);
  unsigned paused = 0;
  for (;;) {
    const auto [result, consumed] = deframer.receive(rest, sink);
    rest = rest.subspan(consumed);
    if (result == Deframer::Result::more) break;
    REQUIRE(result == Deframer::Result::paused);
    REQUIRE(++paused <= 5);
  }
  CHECK(rest.empty());
  CHECK(paused == 5 - (early >= 2 + std::min<std::size_t>(size, 80) && !crc ? 1 : 0));
  CHECK(sink.ulpdus == expected);
}

TEST_CASE("deframer: after a pause at the end of the input, the sink is asked again without further octets",
          "[deframer]") {
  const bool shared = GENERATE(false, true);
  const std::size_t size = GENERATE(5, 80, 300);
  const std::size_t head = 2 + std::min<std::size_t>(size, 80);
  const Bytes stream = stream_of({test::pattern(size)}, false);
  Deframer deframer;
  deframer.start(false, shared ? Deframer::Kind::shared : Deframer::Kind::plain);
  Collector sink;
  sink.refuse = 2;
  REQUIRE(deframer.receive(Octets(stream).first(3), sink).result == Deframer::Result::more);
  const auto [result, consumed] = deframer.receive(Octets(stream).subspan(3, head - 3), sink);
  REQUIRE(result == Deframer::Result::paused);
  REQUIRE(consumed == head - 3);
  CHECK(deframer.receive({}, sink).result == Deframer::Result::paused);
  CHECK(deframer.receive({}, sink).result == Deframer::Result::more);
  CHECK(sink.ulpdus.size() == (size <= 80 ? 1 : 0));
  CHECK(deframer.receive({}, sink).result == Deframer::Result::more);
  CHECK(deframer.receive(Octets(stream).subspan(head), sink).result == Deframer::Result::more);
  CHECK(sink.ulpdus == std::vector<Bytes>{test::pattern(size)});
}

TEST_CASE("deframer: stop says where the stream ended", "[deframer]") {
  const bool crc = GENERATE(false, true);
  const auto expected = some_ulpdus();
  const Bytes stream = stream_of(expected, crc);
  for (std::size_t at = 0; at < expected.size(); ++at) {
    Deframer deframer;
    deframer.start(crc);
    Collector sink;
    sink.stop_at = at;
    const auto outcome = deframer.receive(stream, sink);
    CHECK(outcome.result == Deframer::Result::stopped);
    CHECK(sink.ulpdus.size() == at);
    CHECK(outcome.consumed <= stream.size());
  }
}

TEST_CASE("deframer: the rest of an FPDU goes straight to where it belongs", "[deframer]") {
  const bool crc = GENERATE(false, true);
  const auto expected = some_ulpdus();
  const Bytes stream = stream_of(expected, crc);
  Deframer deframer;
  deframer.start(crc);
  Collector sink;
  CHECK(deframer.wanted(sink).empty());
  sink.whole = crc;
  sink.gives_room = !crc;
  Random random(GENERATE(range(1, 10)));
  Octets rest = stream;
  bool used = false;
  while (!rest.empty()) {
    const MutableOctets wanted = deframer.wanted(sink);
    if (!wanted.empty() && test::between(random, 0, 3) != 0) {
      REQUIRE(wanted.size() <= rest.size());
      const std::size_t size = test::between(random, 1, wanted.size());
      std::memcpy(wanted.data(), rest.data(), size);
      rest = rest.subspan(size);
      auto result = deframer.filled(size, sink);
      REQUIRE(result == Deframer::Result::more);
      used = true;
    } else {
      const std::size_t size = std::min(rest.size(), test::between(random, 1, 2000));
      const auto [result, consumed] = deframer.receive(rest.first(size), sink);
      REQUIRE(result == Deframer::Result::more);
      REQUIRE(consumed == size);
      rest = rest.subspan(consumed);
    }
  }
  CHECK(used);
  CHECK(sink.ulpdus == expected);
  CHECK(test::at_boundary(deframer));
}

TEST_CASE("deframer: filled() pauses, stops and finds a bad CRC like receive()", "[deframer]") {
  const Bytes body = test::pattern(500);
  const Bytes good = test::fpdu(body, true);
  const auto complete = [&](const Bytes& stream, Collector& sink, Deframer& deframer) {
    deframer.start(true);
    deframer.receive(Octets(stream).first(100), sink);
    const auto wanted = deframer.wanted(sink);
    REQUIRE(wanted.size() == stream.size() - 100);
    std::memcpy(wanted.data(), stream.data() + 100, wanted.size());
    return deframer.filled(wanted.size(), sink);
  };
  Deframer deframer;
  Collector sink;
  SECTION("pause") {
    sink.refuse = 2;
    REQUIRE(complete(good, sink, deframer) == Deframer::Result::paused);
    CHECK(deframer.wanted(sink).empty());
    CHECK(deframer.receive({}, sink).result == Deframer::Result::paused);
    // The next FPDU is given with it, and not touched before its time.
    const auto outcome = deframer.receive(good, sink);
    CHECK(outcome.result == Deframer::Result::more);
    CHECK(outcome.consumed == good.size());
    CHECK(sink.ulpdus == std::vector<Bytes>{body, body});
    CHECK(test::at_boundary(deframer));
  }
  SECTION("stop") {
    sink.stop_at = 0;
    CHECK(complete(good, sink, deframer) == Deframer::Result::stopped);
  }
  SECTION("bad CRC") {
    Bytes bad = good;
    bad[300] ^= std::byte{1};
    CHECK(complete(bad, sink, deframer) == Deframer::Result::bad_crc);
    CHECK(sink.ulpdus.empty());
  }
}

TEST_CASE("deframer: with CRC off, filled() stops where the sink does", "[deframer]") {
  const Bytes stream = stream_of({test::pattern(500)}, false);
  Deframer deframer;
  deframer.start(false);
  Collector sink;
  sink.gives_room = true;
  REQUIRE(deframer.receive(Octets(stream).first(102), sink).result == Deframer::Result::more);
  const auto wanted = deframer.wanted(sink);
  REQUIRE(wanted.size() == 400);
  sink.stop_at = 0;
  CHECK(deframer.filled(400, sink) == Deframer::Result::stopped);
}

TEST_CASE("deframer: octets that the peer may still change are not filled in", "[deframer]") {
  const Bytes stream = stream_of({test::pattern(500)}, false);
  Deframer deframer;
  deframer.start(false, Deframer::Kind::shared);
  Collector sink;
  sink.gives_room = true;
  for (const std::byte& octet : stream) {
    REQUIRE(deframer.receive({&octet, 1}, sink).result == Deframer::Result::more);
    CHECK(deframer.wanted(sink).empty());
  }
  CHECK(sink.ulpdus.size() == 1);
}

TEST_CASE("deframer: with CRC off nothing is kept to be filled in", "[deframer]") {
  const Bytes stream = stream_of({test::pattern(500)}, false);
  Deframer deframer;
  deframer.start(false);
  Collector sink;
  for (const std::byte octet : stream) {
    deframer.receive({&octet, 1}, sink);
    CHECK(deframer.wanted(sink).empty());
  }
  CHECK(sink.ulpdus.size() == 1);
}
