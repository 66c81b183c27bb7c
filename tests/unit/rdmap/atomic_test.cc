// SPDX-License-Identifier: MIT
// Atomic operations (RFC 7306 section 5): their headers, their arithmetic against the RFC's pseudo-code, and how two
// ends carry them out.
#include "rdmap/atomic.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/guarded_copy.h"
#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;
using rdmap::AtomicOpcode;
using rdmap::AtomicOperands;

namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr unsigned kRequest = 0x4A, kResponse = 0x4B;

// The pseudo-code of section 5.1.1, bit by bit.
std::uint64_t add_by_bits(std::uint64_t original, std::uint64_t add, std::uint64_t mask) {
  std::uint64_t result = 0;
  unsigned carry = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t location = std::uint64_t{1} << bit;
    unsigned sum = carry + ((original & location) != 0) + ((add & location) != 0);
    carry = (sum & 2) >> 1;
    sum &= 1;
    if (sum != 0) result |= location;
    carry = carry != 0 && (mask & location) == 0;
  }
  return result;
}

Bytes request(std::uint32_t msn, unsigned opcode, std::uint32_t identifier, std::uint32_t stag, std::uint64_t offset,
              const AtomicOperands& with) {
  return Wire()
      .u8(0x41)
      .u8(kRequest)
      .u32(0)
      .u32(1)
      .u32(msn)
      .u32(0)
      .u32(opcode)
      .u32(identifier)
      .u32(stag)
      .u64(offset)
      .u64(with.data)
      .u64(with.mask)
      .u64(with.compare)
      .u64(with.compare_mask);
}
Bytes response(std::uint32_t msn, std::uint32_t identifier, std::uint64_t original) {
  return Wire().u8(0x41).u8(kResponse).u32(0).u32(3).u32(msn).u32(0).u32(identifier).u64(original);
}

std::uint64_t host_number(const Bytes& octets) {
  std::uint64_t value = 0;
  std::memcpy(&value, octets.data(), sizeof value);
  return value;
}

struct Target {
  alignas(8) std::uint64_t words[4] = {100, 200, 300, 400};
  Stag stag{};
  explicit Target(End& end, std::uint32_t rights = ddp::kRemoteAtomic | ddp::kRemoteRead | ddp::kLocalWrite) {
    ddp::Region region;
    region.memory = reinterpret_cast<std::byte*>(words);
    region.base = 0x1000;
    region.length = sizeof words;
    region.rights = rights;
    region.domain = &end.domain;
    stag = end.stags.add(region).value();
  }
  std::uint32_t key() const { return static_cast<std::uint32_t>(stag); }
};

}  // namespace

TEST_CASE("atomic: headers, octet by octet (RFC 7306 figures 4 and 6)", "[atomic]") {
  const rdmap::AtomicRequest asked{AtomicOpcode::compare_swap,
                                   0x01020304,
                                   Stag{0x11121314},
                                   0x2122232425262728,
                                   {0x3132333435363738, 0x4142434445464748, 0x5152535455565758, 0x6162636465666768}};
  Bytes out(rdmap::kAtomicRequestSize);
  rdmap::encode(asked, out.data());
  CHECK(out == Wire()
                   .u32(2)
                   .u32(0x01020304)
                   .u32(0x11121314)
                   .u64(0x2122232425262728)
                   .u64(0x3132333435363738)
                   .u64(0x4142434445464748)
                   .u64(0x5152535455565758)
                   .u64(0x6162636465666768)
                   .bytes());
  CHECK(rdmap::decode_atomic_request(out) == asked);
  out[0] = std::byte{0xFF};  // reserved: ignored on receive
  CHECK(rdmap::decode_atomic_request(out) == asked);
  for (std::size_t cut = 0; cut < out.size(); ++cut) CHECK_FALSE(rdmap::decode_atomic_request(Octets(out).first(cut)));

  const rdmap::AtomicResponse answer{0x01020304, 0x1112131415161718};
  out.resize(rdmap::kAtomicResponseSize);
  rdmap::encode(answer, out.data());
  CHECK(out == Wire().u32(0x01020304).u64(0x1112131415161718).bytes());
  CHECK(rdmap::decode_atomic_response(out) == answer);
  for (std::size_t cut = 0; cut < out.size(); ++cut) CHECK_FALSE(rdmap::decode_atomic_response(Octets(out).first(cut)));
}

TEST_CASE("atomic: addition by fields (RFC 7306 section 5.1.1)", "[atomic]") {
  CHECK(rdmap::add_fields(kAll, 1, 0) == 0);
  CHECK(rdmap::add_fields(0xFF, 1, 0x80) == 0);  // the carry out of the low octet is dropped
  CHECK(rdmap::add_fields(0xFFFF'FFFF, 1, 0x8000'0000) == 0);
  CHECK(rdmap::add_fields(0x0101, 0x0101, 0x8080) == 0x0202);
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t original = random(), add = random(), mask = i % 3 == 0 ? 0 : random() & random();
    REQUIRE(rdmap::add_fields(original, add, mask) == add_by_bits(original, add, mask));
  }
}

TEST_CASE("atomic: executed on memory, plain and masked (RFC 7306 sections 5.1.1 and 5.1.2)", "[atomic]") {
  alignas(8) std::uint64_t word = 0;
  auto* memory = reinterpret_cast<std::byte*>(&word);
  std::uint64_t original = 0;
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t before = random();
    const AtomicOperands with{random(), i % 2 == 0 ? 0 : random(), i % 3 == 0 ? before : random(), random() & random()};
    word = before;
    REQUIRE(rdmap::execute(AtomicOpcode::fetch_add, with, memory, original));
    REQUIRE(original == before);
    REQUIRE(word == add_by_bits(before, with.data, with.mask));
    word = before;
    REQUIRE(rdmap::execute(AtomicOpcode::compare_swap, with, memory, original));
    REQUIRE(original == before);
    const bool equal = ((with.compare ^ before) & with.compare_mask) == 0;
    REQUIRE(word == (equal ? (before & ~with.mask) | (with.data & with.mask) : before));
  }
  word = 5;
  REQUIRE(rdmap::execute(AtomicOpcode::compare_swap, {9, kAll, 4, kAll}, memory, original));
  CHECK(word == 5);
  REQUIRE(rdmap::execute(AtomicOpcode::compare_swap, {9, kAll, 5, kAll}, memory, original));
  CHECK(word == 9);
}

TEST_CASE("atomic: exact beside threads that use the processor's atomics (section 5.3)", "[atomic]") {
  alignas(8) std::uint64_t word = 0;
  constexpr int kTurns = 20'000;
  std::thread local([&] {
    for (int i = 0; i < kTurns; ++i) std::atomic_ref(word).fetch_add(1);
  });
  for (int i = 0; i < kTurns; ++i) {
    std::uint64_t original;
    // A masked addition whose one field is the whole word takes the loop.
    const AtomicOperands with{1, i % 2 == 0 ? 0 : std::uint64_t{1} << 63, 0, kAll};
    rdmap::execute(AtomicOpcode::fetch_add, with, reinterpret_cast<std::byte*>(&word), original);
  }
  local.join();
  CHECK(word == 2 * kTurns);
}

TEST_CASE("atomic: memory that is gone fails the operation, not the program", "[atomic]") {
  install_copy_guard();
  auto* gone = static_cast<std::byte*>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(gone != MAP_FAILED);
  std::uint64_t original;
  CHECK_FALSE(rdmap::execute(AtomicOpcode::fetch_add, {1, 0, 0, kAll}, gone, original));
  ::munmap(gone, 4096);
}

TEST_CASE_METHOD(StartedEnd, "atomic: a responder answers in order, reads among them (section 5.2.2)", "[atomic]") {
  Target target(end);
  REQUIRE(end.give(request(1, 0, 77, target.key(), 0x1000, {5, 0, 0, kAll})) == mpa::UlpduSink::Verdict::go_on);
  REQUIRE(end.give(Wire()
                       .u8(0x41)
                       .u8(0x41)
                       .u32(0)
                       .u32(1)
                       .u32(2)
                       .u32(0)
                       .u32(0x99)
                       .u64(0x500)
                       .u32(8)
                       .u32(target.key())
                       .u64(0x1000)
                       .bytes()) == mpa::UlpduSink::Verdict::go_on);
  REQUIRE(end.give(request(3, 2, 78, target.key(), 0x1008, {9, kAll, 200, kAll})) == mpa::UlpduSink::Verdict::go_on);
  CHECK(target.words[0] == 100);  // nothing has happened yet: they are carried out in their turn
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 3);
  CHECK(out[0] == response(1, 77, 100));
  std::uint64_t read = 105;
  CHECK(out[1] == Wire().u8(0xC1).u8(0x42).u32(0x99).u64(0x500).add(std::as_bytes(std::span(&read, 1))).bytes());
  CHECK(out[2] == response(2, 78, 200));
  CHECK(target.words[1] == 9);
}

TEST_CASE_METHOD(Single, "atomic: what a responder refuses, memory untouched (RFC 7306 section 8.2)", "[atomic]") {
  end.start({.ird = 1});
  Target target(end), readable(end, ddp::kRemoteRead);
  const AtomicOperands one{1, 0, 0, kAll};
  Bytes bad;
  unsigned layer = 0, type = 0, code = 0;
  SECTION("alignment") { bad = request(1, 0, 1, target.key(), 0x1004, one), type = 2, code = 0x07; }
  SECTION("right") { bad = request(1, 0, 1, readable.key(), 0x1000, one), type = 1, code = 0x02; }
  SECTION("STag") { bad = request(1, 0, 1, target.key() ^ 0x100, 0x1000, one), type = 1, code = 0x00; }
  SECTION("bounds") { bad = request(1, 0, 1, target.key(), 0x101C, one), type = 1, code = 0x01; }
  SECTION("operation") {
    const unsigned opcode = GENERATE(1, 3, 4, 14, 15);
    bad = request(1, opcode, 1, target.key(), 0x1000, one), type = 2, code = 0x06;
  }
  SECTION("MSN") { bad = request(2, 0, 1, target.key(), 0x1000, one), layer = 1, type = 2, code = 0x03; }
  SECTION("length") {
    bad = request(1, 0, 1, target.key(), 0x1000, one);
    bad.resize(bad.size() + 4);
    layer = 1, type = 2, code = 0x05;
  }
  SECTION("more than were agreed on") {
    REQUIRE(end.give(request(1, 0, 1, target.key(), 0x1008, one)) == mpa::UlpduSink::Verdict::go_on);
    bad = request(2, 0, 1, target.key(), 0x1000, one), layer = 1, type = 2, code = 0x02;
  }
  REQUIRE(end.give(bad) == mpa::UlpduSink::Verdict::stop);
  REQUIRE(end.rx.error());
  CHECK(static_cast<unsigned>(end.rx.error()->layer) == layer);
  CHECK(end.rx.error()->type == type);
  CHECK(end.rx.error()->code == code);
  CHECK(end.rx.error()->has_ddp_header);
  CHECK_FALSE(end.rx.error()->has_read_request);  // section 8.1: that field stays empty
  CHECK(target.words[0] == 100);
}

TEST_CASE_METHOD(StartedEnd, "atomic: what a requester sends, and what it makes of the answer (section 5.2.1)",
                 "[atomic]") {
  Bytes first(8), second(8);
  end.atomic(1, first, AtomicOpcode::fetch_add, {5, 0, 0, kAll}, Stag{0x55}, 0x1000);
  end.atomic(2, second, AtomicOpcode::compare_swap, {6, kAll, 7, kAll}, Stag{0x55}, 0x1008);
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 2);
  const auto id1 = static_cast<std::uint32_t>(big_endian(Octets(out[0]).subspan(22, 4)));
  const auto id2 = static_cast<std::uint32_t>(big_endian(Octets(out[1]).subspan(22, 4)));
  CHECK(id1 != id2);
  CHECK(out[0] == request(1, 0, id1, 0x55, 0x1000, {5, 0, 0, kAll}));
  CHECK(out[1] == request(2, 2, id2, 0x55, 0x1008, {6, kAll, 7, kAll}));
  CHECK(end.sent.empty());
  SECTION("right answers") {
    REQUIRE(end.give(response(1, id1, 0x1122334455667788)) == mpa::UlpduSink::Verdict::go_on);
    CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
    CHECK(host_number(first) == 0x1122334455667788);
    REQUIRE(end.give(response(2, id2, 9)) == mpa::UlpduSink::Verdict::go_on);
    CHECK(host_number(second) == 9);
    // Nothing more is outstanding.
    CHECK(end.give(response(3, id2 + 1, 9)) == mpa::UlpduSink::Verdict::stop);
  }
  SECTION("wrong MSN") { CHECK(end.give(response(2, id1, 9)) == mpa::UlpduSink::Verdict::stop); }
  SECTION("wrong identifier") { CHECK(end.give(response(1, id2, 9)) == mpa::UlpduSink::Verdict::stop); }
  SECTION("a read response instead") {
    CHECK(end.give(Wire().u8(0xC1).u8(0x42).u32(0).u64(0).zeros(8).bytes()) == mpa::UlpduSink::Verdict::stop);
  }
  SECTION("refused: which work it was (section 1.1)") {
    rdmap::Terminate why;
    why.layer = rdmap::Layer::rdma, why.type = 2, why.code = 6;
    why.has_ddp_header = true;
    why.ddp_header_size = 18;
    std::copy_n(out[1].begin(), 18, why.ddp_header.begin());
    CHECK(end.tx.find_terminated(why) == 1);
  }
}

TEST_CASE_METHOD(Pair, "atomic: reads and atomic operations share one limit (section 5.2)", "[atomic]") {
  start({.ord = 2, .ird = 2}, 5);
  Target target(b);
  std::vector<Bytes> results(20, Bytes(8));
  for (std::uint64_t id = 0; id < results.size(); ++id) {
    if (id % 3 == 2)
      a.read(id, {{results[id].data(), 8}}, target.stag, 0x1008);
    else
      a.atomic(id, results[id], AtomicOpcode::fetch_add, {1, 0, 0, kAll}, target.stag, 0x1000);
  }
  while (step()) REQUIRE(a.reads->outstanding.size() <= 2);
  REQUIRE(a.sent.size() == results.size());
  std::uint64_t count = 100;
  for (std::uint64_t id = 0; id < results.size(); ++id) {
    CHECK(a.sent[id] == Sent{id, Status::success});
    CHECK(host_number(results[id]) == (id % 3 == 2 ? 200 : count++));
  }
  CHECK(target.words[0] == count);
}

TEST_CASE_METHOD(Pair, "atomic: each is carried out once, however often its response has to be built", "[atomic]") {
  const bool crc = GENERATE(false, true);
  const unsigned seed = static_cast<unsigned>(GENERATE(range(1, 20)));
  start({.crc = crc, .ord = 16, .ird = 16}, seed);
  Target target(b);
  std::vector<Bytes> results(60, Bytes(8));
  for (std::uint64_t id = 0; id < results.size(); ++id)
    a.atomic(id, results[id], AtomicOpcode::fetch_add, {1, 0, 0, kAll}, target.stag, 0x1000);
  most = 50;
  run();
  CHECK(target.words[0] == 160);
  for (std::uint64_t id = 0; id < results.size(); ++id) REQUIRE(host_number(results[id]) == 100 + id);
}

// ---- What only a uiw peer is sent: ibv_wr_atomic_write() and ibv_wr_flush() ----

namespace {

constexpr unsigned kWrite = 14, kFlush = 15;
constexpr std::uint64_t kGlobal = 1, kPersistent = 2;

}  // namespace

TEST_CASE("uiw's own atomics: a flush and its operands", "[atomic]") {
  const rdmap::Flush flush{0x1122334455667788, true, false, true};
  CHECK(rdmap::operands_of(flush) == AtomicOperands{0x1122334455667788, kGlobal, 1, 0});
  CHECK(rdmap::flush_of(rdmap::operands_of(flush)) == flush);
  CHECK(rdmap::flush_of({8, kGlobal | kPersistent | 4, 2, kAll}) == rdmap::Flush{8, true, true, false});
}

TEST_CASE_METHOD(Single, "uiw's own atomics: carried out for a uiw peer, and answered in their turn", "[atomic]") {
  end.start({.ird = 8, .peer = mpa::PeerKind::uiw});
  Target target(end, ddp::kRemoteWrite | ddp::kLocalWrite | ddp::kFlushGlobal);
  std::uint64_t octets = 0;
  std::memcpy(&octets, "01234567", 8);
  REQUIRE(end.give(request(1, kWrite, 5, target.key(), 0x1008, {0x3031323334353637, kAll, 0, 0})) ==
          mpa::UlpduSink::Verdict::go_on);
  REQUIRE(end.give(request(2, kFlush, 6, target.key(), 0x1001, {31, kGlobal, 0, 0})) == mpa::UlpduSink::Verdict::go_on);
  REQUIRE(end.give(request(3, kFlush, 7, target.key(), 0, {kAll, kGlobal, 1, 0})) == mpa::UlpduSink::Verdict::go_on);
  REQUIRE(end.give(request(4, kFlush, 8, target.key(), 0x1020, {0, kGlobal, 0, 0})) == mpa::UlpduSink::Verdict::go_on);
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 4);
  for (std::uint32_t i = 0; i < 4; ++i) CHECK(out[i] == response(i + 1, i + 5, 0));
  CHECK(target.words[1] == octets);
}

TEST_CASE_METHOD(Single, "uiw's own atomics: what a responder refuses, memory untouched", "[atomic]") {
  const bool by_uiw = GENERATE(true, false);
  end.start({.ird = 8, .peer = by_uiw ? mpa::PeerKind::uiw : mpa::PeerKind::other});
  Target target(end, ddp::kRemoteWrite | ddp::kLocalWrite | ddp::kFlushGlobal);
  Target readable(end, ddp::kRemoteRead | ddp::kRemoteAtomic | ddp::kLocalWrite);
  Bytes bad;
  unsigned type = 1, code = 0;
  SECTION("a write without the right of a Write") { bad = request(1, kWrite, 1, readable.key(), 0x1000, {}), code = 2; }
  SECTION("a write beyond the region") { bad = request(1, kWrite, 1, target.key(), 0x1020, {}), code = 1; }
  SECTION("a write that is not aligned") { bad = request(1, kWrite, 1, target.key(), 0x1004, {}), type = 2, code = 7; }
  SECTION("a flush without its right") {
    bad = request(1, kFlush, 1, readable.key(), 0x1000, {8, kGlobal, 0, 0}), code = 2;
  }
  SECTION("a flush of another kind than the region's") {
    bad = request(1, kFlush, 1, target.key(), 0x1000, {8, kGlobal | kPersistent, 0, 0}), code = 2;
  }
  SECTION("a flush beyond the region") {
    bad = request(1, kFlush, 1, target.key(), 0x1000, {33, kGlobal, 0, 0}), code = 1;
  }
  SECTION("a flush whose end wraps") {
    bad = request(1, kFlush, 1, target.key(), 0x1000, {kAll, kGlobal, 0, 0}), code = 4;
  }
  SECTION("a flush of nothing in a region that is none") {
    bad = request(1, kFlush, 1, target.key() ^ 0x100, 0x1000, {0, kGlobal, 0, 0}), code = 0;
  }
  SECTION("a flush of a whole region that is none") {
    bad = request(1, kFlush, 1, target.key() ^ 0x100, 0, {0, kGlobal, 1, 0}), code = 0;
  }
  if (!by_uiw) type = 2, code = 6;  // an opcode that was not expected
  REQUIRE(end.give(bad) == mpa::UlpduSink::Verdict::stop);
  REQUIRE(end.rx.error());
  CHECK(end.rx.error()->type == type);
  CHECK(end.rx.error()->code == code);
  CHECK(target.words[0] == 100);
}

TEST_CASE_METHOD(Single, "uiw's own atomics: a write is done when it has come, before its answer is built",
                 "[atomic]") {
  end.start({.ird = 1, .peer = mpa::PeerKind::uiw});
  Target target(end, ddp::kRemoteWrite | ddp::kLocalWrite);
  REQUIRE(end.give(request(1, kWrite, 1, target.key(), 0x1000, {~kAll, kAll, 0, 0})) == mpa::UlpduSink::Verdict::go_on);
  CHECK(target.words[0] == 0);
  // One too many does nothing.
  CHECK(end.give(request(2, kWrite, 2, target.key(), 0x1008, {~kAll, kAll, 0, 0})) == mpa::UlpduSink::Verdict::stop);
  CHECK(target.words[1] == 200);
}
