// SPDX-License-Identifier: MIT
// Transmitter and receiver against each other: what one side posts is what the other side gets, however the octets
// between them are cut.
#include <catch2/catch.hpp>

#include "tests/unit/mpa/boundary.h"
#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {
constexpr std::uint32_t kAll = ddp::kLocalWrite | ddp::kRemoteRead | ddp::kRemoteWrite;

// Two ends that post random work to each other, and what is to come of it.
class RandomMix {
 public:
  RandomMix(End& a, End& b, unsigned seed, Random& random) : random_(random), readable_(pattern(kSize, seed + 200)) {
    for (int i = 0; i < 2; ++i) {
      Side& side = sides_[i];
      side.end = i == 0 ? &a : &b;
      side.source = pattern(kSize, seed + (i == 0 ? 0 : 100));
      for (Bytes* memory : {&side.exposed, &side.expected_exposed, &side.sink, &side.expected_sink, &side.inbox}) {
        memory->resize(kSize);
      }
      side.readable_stag = side.end->expose(readable_, ddp::kRemoteRead, 0x7000'0000'0000);
      side.writable_stag = side.end->expose(side.exposed, kAll, 0);
    }
  }

  // One of the two posts one request, if it has room.
  void post(std::uint64_t id) {
    const int who = static_cast<int>(between(random_, 0, 1));
    Side &side = sides_[who], &other = sides_[1 - who];
    if (side.end->queue.full()) return;
    const std::size_t length = between(random_, 0, between(random_, 0, 1) != 0 ? 200 : 40'000);
    const std::size_t at = between(random_, 0, kSize - length), to = between(random_, 0, kSize - length);
    const std::vector<MemorySegment> pieces = pieces_of(side, at, length);
    const auto from = side.source.begin() + static_cast<std::ptrdiff_t>(at);
    switch (between(random_, 0, 2)) {
      case 0:
        if (!post_send(id, side, other, pieces, {from, from + static_cast<std::ptrdiff_t>(length)})) return;
        break;
      case 1:
        side.end->write(id, pieces, other.writable_stag, to);
        std::copy_n(from, length, other.expected_exposed.begin() + static_cast<std::ptrdiff_t>(to));
        break;
      default: post_read(id, side, other, at, to, length); break;
    }
    side.expected_sent.push_back({id, Status::success});
  }

  void check() {
    check(sides_[0], sides_[1]);
    check(sides_[1], sides_[0]);
  }

 private:
  static constexpr std::size_t kSize = 300'000;
  struct Side {
    End* end = nullptr;
    Bytes source, exposed, expected_exposed, sink, expected_sink, inbox, expected_inbox;
    Stag readable_stag{}, writable_stag{};
    std::vector<Sent> expected_sent;
    std::vector<std::pair<std::size_t, bool>> messages;  // length, solicited: what the peer shall receive
    std::size_t inbox_at = 0;
  };

  // Pieces of the source itself: it must stay until the work completes.
  std::vector<MemorySegment> pieces_of(Side& side, std::size_t at, std::size_t length) {
    std::vector<MemorySegment> pieces;
    for (std::size_t done = 0, count = between(random_, 1, 70); done < length || pieces.empty();) {
      const std::size_t take = pieces.size() + 1 == count ? length - done : between(random_, 0, length - done);
      pieces.push_back({side.source.data() + at + done, take});
      done += take;
      if (pieces.size() == count) break;
    }
    return pieces;
  }
  // The receive is posted a little larger than the message, in pieces. False if there is no more memory for it.
  bool post_send(std::uint64_t id, Side& side, Side& other, const std::vector<MemorySegment>& pieces,
                 const Bytes& data) {
    const bool solicited = between(random_, 0, 1) != 0;
    const std::size_t length = data.size(), half = length / 2;
    if (other.inbox_at + length + 10 > kSize) return false;
    side.end->send(id, pieces, solicited);
    side.messages.emplace_back(length, solicited);
    std::byte* const inbox = other.inbox.data() + other.inbox_at;
    other.end->post(1000 + id, {{inbox, half}, {inbox, 0}, {inbox + half, length - half + 10}});
    other.expected_inbox.insert(other.expected_inbox.end(), data.begin(), data.end());
    other.expected_inbox.insert(other.expected_inbox.end(), 10, std::byte{0});
    other.inbox_at += length + 10;
    return true;
  }
  void post_read(std::uint64_t id, Side& side, Side& other, std::size_t at, std::size_t to, std::size_t length) {
    std::vector<MemorySegment> sinks;
    for (std::size_t done = 0; done < length && sinks.size() < 5;) {
      const std::size_t take = sinks.size() == 4 ? length - done : between(random_, 1, length - done);
      sinks.push_back({side.sink.data() + to + done, take});
      done += take;
    }
    side.end->read(id, sinks, other.readable_stag, 0x7000'0000'0000 + at);
    std::copy_n(readable_.begin() + static_cast<std::ptrdiff_t>(at), length,
                side.expected_sink.begin() + static_cast<std::ptrdiff_t>(to));
  }

  static void check(Side& side, const Side& other) {
    // Completions in the order of posting (RFC 5040 section 5.5, rule 15).
    CHECK(side.end->sent == side.expected_sent);
    REQUIRE(other.end->received.size() == side.messages.size());
    for (std::size_t m = 0; m < side.messages.size(); ++m) {
      CHECK(other.end->received[m].status == Status::success);
      CHECK(other.end->received[m].length == side.messages[m].first);
      CHECK(other.end->received[m].solicited == side.messages[m].second);
    }
    CHECK((side.exposed == side.expected_exposed));
    CHECK((side.sink == side.expected_sink));
    side.expected_inbox.resize(side.inbox.size());
    CHECK((side.inbox == side.expected_inbox));
    CHECK_FALSE(side.end->stopped);
    CHECK_FALSE(side.end->tx.pending());
    CHECK(at_boundary(side.end->deframer));
    CHECK(side.end->reads->outstanding.empty());
    CHECK(side.end->reads->inbound.empty());
  }

  Random& random_;
  Bytes readable_;
  Side sides_[2];
};
}  // namespace

TEST_CASE_METHOD(Pair, "stream: a random mix of operations, both ways (RFC 5040 section 5)", "[stream]") {
  const bool crc = GENERATE(false, true);
  const std::size_t mulpdu = GENERATE(128, 1440, 9000, 65535);
  const unsigned seed = static_cast<unsigned>(GENERATE(range(1, 9)));
  Random random(seed);
  const auto depth = static_cast<std::uint32_t>(between(random, 1, 4)), probe_slots = seed % 4 == 0 ? 1U : 0U;
  start({.crc = crc,
         .mulpdu = mulpdu,
         .ord = depth,
         .ird = depth + probe_slots,
         .completion = seed % 2 == 0 ? rdmap::Completion::remote : rdmap::Completion::local,
         .probe_slots = probe_slots},
        seed);
  RandomMix mix(a, b, seed, random);
  for (unsigned round = 0; round < 60; ++round) {
    mix.post(round);
    for (std::size_t steps = between(random, 0, 3); steps > 0; --steps) step();
  }
  run();
  mix.check();
}

TEST_CASE_METHOD(Pair, "stream: all forms of Send (RFC 5040 sections 5.3 and 7.2)", "[stream]") {
  const bool crc = GENERATE(false, true);
  start({.crc = crc});
  Bytes memory(100), window(10);
  const Stag first = b.expose(window, kAll, 0), second = b.expose(window, kAll, 0);
  const Bytes data = pattern(5000);
  Bytes inbox(5000);
  a.send(1, {memory_segment(data)});
  a.send(2, {memory_segment(data)}, true);
  a.send(3, {memory_segment(data)}, false, first);
  a.send(4, {memory_segment(data)}, true, second);
  a.send(5, {});
  a.send(6, {}, true);
  for (std::uint64_t id = 10; id < 16; ++id) b.post(id, {memory_segment(inbox)});
  run();
  REQUIRE(b.received.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(b.received[i].id == 10 + i);
    CHECK(b.received[i].status == Status::success);
    CHECK(b.received[i].length == (i < 4 ? 5000 : 0));
    CHECK(b.received[i].solicited == (i % 2 == 1));
    CHECK(b.received[i].invalidated == (i == 2 || i == 3));
  }
  CHECK(b.received[2].stag == first);
  CHECK(b.received[3].stag == second);
  CHECK_FALSE(b.stags.region(first));
  CHECK_FALSE(b.stags.region(second));
  CHECK((inbox == data));
  CHECK(a.sent.size() == 6);
}

TEST_CASE_METHOD(Pair, "stream: a message waits for a receive and nothing passes it (Verbs draft section 13.2)",
                 "[stream]") {
  const bool crc = GENERATE(false, true);
  const std::size_t size = GENERATE(0, 10, 3000);
  start({.crc = crc, .mulpdu = 512}, 7);
  const Bytes data = pattern(size, 3), late = pattern(10, 4);
  Bytes exposed(10), inbox(size);
  const Stag stag = b.expose(exposed, kAll, 0);
  a.send(1, {memory_segment(data)});
  a.write(2, {memory_segment(late)}, stag, 0);
  run();
  CHECK(b.paused);
  CHECK(b.received.empty());
  CHECK(exposed == Bytes(10));
  b.post(5, {memory_segment(inbox)});
  run();
  CHECK_FALSE(b.paused);
  REQUIRE(b.received.size() == 1);
  CHECK((inbox == data));
  CHECK(exposed == late);
}

TEST_CASE_METHOD(Pair, "stream: no more reads outstanding than agreed on (RFC 5040 section 6.1)", "[stream]") {
  const bool crc = GENERATE(false, true);
  const std::uint32_t ord = GENERATE(1, 2, 5);
  start({.crc = crc, .ord = ord, .ird = ord});
  Bytes source = pattern(20000), sink(20000);
  const Stag stag = b.expose(source, ddp::kRemoteRead, 0);
  for (std::uint64_t id = 1; id <= 12; ++id) a.read(id, {{sink.data() + id * 1000, 1000}}, stag, id * 1000);
  CHECK(take_all(a).size() == ord * (2 + 18 + 28 + 4));
  CHECK(a.reads->outstanding.size() == ord);
  CHECK_FALSE(a.tx.pending());
  // Afresh, all of them.
  Pair pair;
  pair.start({.crc = crc, .ord = ord, .ird = ord}, 3);
  const Stag other = pair.b.expose(source, ddp::kRemoteRead, 0);
  for (std::uint64_t id = 1; id <= 12; ++id) pair.a.read(id, {{sink.data() + id * 1000, 1000}}, other, id * 1000);
  bool moved = true;
  while (moved) {
    moved = pair.step();
    REQUIRE(pair.a.reads->outstanding.size() <= ord);
    REQUIRE(pair.b.reads->inbound.size() <= ord);
  }
  CHECK(pair.a.sent.size() == 12);
  CHECK(std::equal(source.begin() + 1000, source.begin() + 13000, sink.begin() + 1000));
}

TEST_CASE_METHOD(Pair, "stream: zero-length Reads and Writes need no valid STag (RFC 5040 sections 5.1 and 5.2.1)",
                 "[stream]") {
  const bool crc = GENERATE(false, true);
  start({.crc = crc});
  a.read(1, {}, Stag{0xDEAD0000}, ~std::uint64_t{0});
  a.write(2, {}, Stag{0xDEAD0000}, ~std::uint64_t{0});
  run();
  CHECK(a.sent == std::vector<Sent>{{1, Status::success}, {2, Status::success}});
  CHECK_FALSE(b.stopped);
}

TEST_CASE_METHOD(Pair, "stream: fence and completion order behind a read (RFC 5040 section 5.5)", "[stream]") {
  start();
  Bytes source = pattern(100), sink(100), exposed(100);
  const Bytes data = pattern(100, 2);
  const Stag readable = b.expose(source, ddp::kRemoteRead, 0), writable = b.expose(exposed, kAll, 0);
  a.read(1, {memory_segment(sink)}, readable, 0);
  a.write(2, {memory_segment(data)}, writable, 0);
  a.write(3, {memory_segment(data)}, writable, 0, true);
  a.send(4, {});
  const auto first = ulpdus_of(take_all(a), true);
  // The read and the unfenced write; the fenced one and what stands behind it wait.
  REQUIRE(first.size() == 2);
  CHECK(a.sent.empty());  // the write is done but stands behind the read
  for (const Bytes& ulpdu : first) b.give(ulpdu);
  const auto answer = ulpdus_of(take_all(b), true);
  REQUIRE(answer.size() == 1);
  a.give(answer[0]);
  CHECK(a.sent == std::vector<Sent>{{1, Status::success}, {2, Status::success}});
  CHECK(sink == source);
  CHECK(ulpdus_of(take_all(a), true).size() == 2);
  CHECK(a.sent.size() == 4);
}

TEST_CASE_METHOD(Pair, "stream: ready-to-receive messages (RFC 6581 section 9)", "[stream]") {
  const auto rtr = GENERATE(mpa::ReadyToReceive::fulpdu, mpa::ReadyToReceive::write, mpa::ReadyToReceive::read);
  const bool crc = GENERATE(false, true);
  const std::uint32_t depth = GENERATE(0, 1, 4);
  a.start({.crc = crc, .ord = depth, .ird = depth, .rtr = rtr});
  b.start({.crc = crc, .ord = depth, .ird = depth, .rtr = rtr, .hold = true});
  Bytes inbox(10), source = pattern(50), sink(50);
  const Bytes data = pattern(10);
  a.post(1, {memory_segment(inbox)});
  b.send(2, {memory_segment(data)});
  const Stag stag = b.expose(source, ddp::kRemoteRead, 0);
  // The responder says nothing before the first FPDU (RFC 5044 section 7.1.2).
  CHECK(take_all(b).empty());
  CHECK_FALSE(b.tx.pending());
  CHECK(a.tx.pending());
  CHECK_FALSE(b.rx.heard());
  if (depth > 0) {
    for (std::uint64_t id = 10; id < 15; ++id) a.read(id, {memory_segment(sink)}, stag, 0);
  }
  seed(static_cast<unsigned>(GENERATE(range(1, 6))));
  run();
  CHECK(b.rx.heard());
  CHECK_FALSE((a.stopped || b.stopped));
  CHECK(inbox == data);
  CHECK(b.sent.size() == 1);
  CHECK(a.sent.size() == (depth > 0 ? 5 : 0));
  if (depth > 0) CHECK(sink == source);
  CHECK(a.reads->outstanding.empty());
}

TEST_CASE_METHOD(Pair, "stream: a ready-to-receive read and as many reads as agreed on, all at once", "[stream]") {
  // RFC 6581 section 9: the ready-to-receive message may be an RDMA Read. The initiator that sends its reads right
  // behind must not be told that they are too many.
  const std::uint32_t depth = GENERATE(1, 2, 4);
  a.start({.ord = depth, .ird = depth, .rtr = mpa::ReadyToReceive::read});
  b.start({.ord = depth, .ird = depth, .rtr = mpa::ReadyToReceive::read, .hold = true});
  Bytes source = pattern(50), sink(50);
  const Stag stag = b.expose(source, ddp::kRemoteRead, 0);
  for (std::uint64_t id = 1; id <= depth; ++id) a.read(id, {memory_segment(sink)}, stag, 0);
  for (const Bytes& ulpdu : ulpdus_of(take_all(a), true)) {
    REQUIRE(b.give(ulpdu) == mpa::UlpduSink::Verdict::go_on);
  }
  b.tx.release_hold();
  for (const Bytes& ulpdu : ulpdus_of(take_all(b), true)) a.give(ulpdu);
  run();
  CHECK(a.sent.size() == depth);
}

TEST_CASE_METHOD(Single, "stream: the octets of ready-to-receive messages", "[stream]") {
  SECTION("FPDU of nothing") {
    end.start({.rtr = mpa::ReadyToReceive::fulpdu});
    CHECK(ulpdus_of(take_all(end), true) == std::vector<Bytes>{Bytes{}});
  }
  SECTION("RDMA Write") {
    end.start({.rtr = mpa::ReadyToReceive::write});
    CHECK(ulpdus_of(take_all(end), true) == std::vector<Bytes>{Wire().u8(0xC1).u8(0x40).u32(0).u64(0).bytes()});
  }
  SECTION("RDMA Read") {
    end.start({.rtr = mpa::ReadyToReceive::read});
    CHECK(ulpdus_of(take_all(end), true) ==
          std::vector<Bytes>{Wire().u8(0x41).u8(0x41).u32(0).u32(1).u32(1).u32(0).zeros(28).bytes()});
    CHECK(end.reads->outstanding.size() == 1);
  }
  SECTION("none") {
    end.start({});
    CHECK(take_all(end).empty());
  }
}

TEST_CASE_METHOD(Pair, "stream: responses and own work take turns", "[stream]") {
  start();
  Bytes source = pattern(100), sink(100);
  const Stag stag = b.expose(source, ddp::kRemoteRead, 0);
  for (std::uint64_t id = 1; id <= 4; ++id) a.read(id, {memory_segment(sink)}, stag, 0);
  for (const Bytes& ulpdu : ulpdus_of(take_all(a), true)) b.give(ulpdu);
  CHECK(b.requests == 4);
  for (std::uint64_t id = 1; id <= 4; ++id) b.send(id, {});
  const auto out = ulpdus_of(take_all(b), true);
  REQUIRE(out.size() == 8);
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    CHECK((out[i][0] & std::byte{0x80}) != (out[i + 1][0] & std::byte{0x80}));
  }
}

TEST_CASE("stream: messages are not interleaved and segments go on where the last one ended (RFC 5041)", "[stream]") {
  const std::size_t mulpdu = GENERATE(128, 600, 16384);
  End a(1, 16, 100);
  a.start({.mulpdu = mulpdu});
  Random random(9);
  const Bytes data = pattern(50'000);
  a.send(1, cut(data, 90, random));
  a.write(2, cut(data, 90, random), Stag{0x11223344}, 0x0102030405060708);
  Bytes got[2];
  int message = 0;
  for (const Bytes& ulpdu : ulpdus_of(take_all(a), true)) {
    REQUIRE(ulpdu.size() <= mulpdu);
    REQUIRE(message < 2);
    const Octets octets = ulpdu;
    std::size_t header = 18;
    if (message == 0) {
      REQUIRE((octets[0] & std::byte{0x80}) == std::byte{0});
      REQUIRE(big_endian(octets.subspan(6, 4)) == 0);
      REQUIRE(big_endian(octets.subspan(10, 4)) == 1);
      REQUIRE(big_endian(octets.subspan(14, 4)) == got[0].size());
    } else {
      header = 14;
      REQUIRE((octets[0] & std::byte{0x80}) != std::byte{0});
      REQUIRE(big_endian(octets.subspan(2, 4)) == 0x11223344);
      REQUIRE(big_endian(octets.subspan(6, 8)) == 0x0102030405060708 + got[1].size());
    }
    got[message].insert(got[message].end(), ulpdu.begin() + static_cast<std::ptrdiff_t>(header), ulpdu.end());
    if ((octets[0] & std::byte{0x40}) != std::byte{0}) ++message;
  }
  CHECK(message == 2);
  CHECK((got[0] == data));
  CHECK((got[1] == data));
}

TEST_CASE_METHOD(Pair, "stream: the segments of a message have one RsvdULP (RFC 5041 sections 4.2 and 4.3)",
                 "[stream]") {
  start({.crc = false, .mulpdu = 128});
  const Bytes data = pattern(1000);
  a.send(1, {memory_segment(data)}, true, Stag{0xA1A2A3A4});
  a.write(2, {memory_segment(data)}, Stag{7}, 0);
  std::size_t sends = 0, writes = 0;
  for (const Bytes& ulpdu : ulpdus_of(take_all(a), false)) {
    const Octets octets = ulpdu;
    if ((octets[0] & std::byte{0x80}) == std::byte{0}) {
      ++sends;
      CHECK(big_endian(octets.subspan(1, 5)) == 0x46A1A2A3A4);
    } else {
      ++writes;
      CHECK(octets[1] == std::byte{0x40});
    }
  }
  CHECK(sends == 10);
  CHECK(writes == 9);
}

TEST_CASE_METHOD(Pair, "stream: with CRC on, octets of a begun FPDU do not change with the program's memory",
                 "[stream]") {
  start({.mulpdu = 9000}, 2);
  Bytes data = pattern(100'000), exposed(100'000);
  const Stag stag = b.expose(exposed, kAll, 0);
  a.write(1, {memory_segment(data)}, stag, 0);
  most = 777;
  unsigned value = 0;
  for (bool moved = true; moved;) {
    moved = step();
    for (std::size_t i = value % 7; i < data.size(); i += 7) data[i] = static_cast<std::byte>(++value);
  }
  CHECK_FALSE(b.bad_crc);
  CHECK_FALSE(b.stopped);
  CHECK(a.sent == std::vector<Sent>{{1, Status::success}});
}

TEST_CASE("stream: a Send or Write completes when TCP has its last octet, not before (RFC 5040 section 5.5)",
          "[stream]") {
  const bool crc = GENERATE(false, true);
  End a(1);
  a.start({.crc = crc});
  const Bytes data = pattern(3000);
  a.send(1, {memory_segment(data)});
  a.write(2, {memory_segment(data)}, Stag{1}, 0);
  auto batch = std::make_unique<rdmap::OutgoingBatch>();
  std::size_t left_of_first = 0, taken = 0;
  for (std::size_t rest = 3000; rest > 0;) {
    const std::size_t payload = std::min<std::size_t>(rest, 1440 - 18);
    left_of_first += mpa::fpdu_size(18 + payload);
    rest -= payload;
  }
  while (a.tx.fill(*batch) == rdmap::Transmitter::Fill::ready) {
    a.tx.sent(*batch, 1);
    ++taken;
    REQUIRE((a.sent.size() >= 1) == (taken >= left_of_first));
  }
  CHECK(a.sent.size() == 2);
}
