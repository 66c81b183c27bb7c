// SPDX-License-Identifier: MIT
// How two ends find out that both are uiw, by messages that mean nothing to any other peer, and what changes then.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;
using Verdict = mpa::UlpduSink::Verdict;
using mpa::PeerKind;
using mpa::ReadyToReceive;

namespace {

constexpr std::uint64_t kOffset = 0x7569776957415250;
const Bytes kHello = Wire().u8(0xC1).u8(0x40).u32(0x756977FF).u64(kOffset).bytes();
const Bytes kHelloRead =
    Wire().u8(0x41).u8(0x41).u32(0).u32(1).u32(1).u32(0).u32(0).u64(0).u32(0).u32(0x756977FF).u64(kOffset).bytes();

StreamOptions asking(bool initiator, ReadyToReceive rtr = ReadyToReceive::write) {
  return {.rtr = rtr, .hold = !initiator, .peer = PeerKind::not_known};
}
Verdict give(End& end, const Bytes& ulpdu) {
  const Verdict verdict = end.give(ulpdu);
  if (verdict == Verdict::go_on && end.rx.heard()) end.tx.release_hold();
  return verdict;
}
std::vector<Bytes> said(End& end) { return ulpdus_of(take_all(end), true); }
Bytes send_of(std::uint32_t msn) { return Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(msn).u32(0).bytes(); }

}  // namespace

TEST_CASE_METHOD(Single, "hello: the ready-to-receive message of an initiator says it, by an STag and an offset",
                 "[hello]") {
  SECTION("a Write") {
    end.start(asking(true));
    CHECK(said(end) == std::vector<Bytes>{kHello});
  }
  SECTION("a Read") {
    end.start(asking(true, ReadyToReceive::read));
    CHECK(said(end) == std::vector<Bytes>{kHelloRead});
  }
  SECTION("not where it is known what the peer is") {
    StreamOptions options = asking(true);
    options.peer = GENERATE(PeerKind::other, PeerKind::uiw);
    end.start(options);
    CHECK(said(end) == std::vector<Bytes>{Wire().u8(0xC1).u8(0x40).u32(0).u64(0).bytes()});
  }
}

TEST_CASE_METHOD(Single, "hello: the responder answers with its first message, before anything else", "[hello]") {
  const auto rtr = GENERATE(ReadyToReceive::write, ReadyToReceive::read);
  end.start(asking(false, rtr));
  end.send(1, {});
  CHECK(said(end).empty());
  REQUIRE(give(end, rtr == ReadyToReceive::write ? kHello : kHelloRead) == Verdict::go_on);
  CHECK(end.known == std::vector{PeerKind::uiw});
  const auto out = said(end);
  REQUIRE(out.size() == (rtr == ReadyToReceive::write ? 2U : 3U));
  CHECK(out[0] == kHello);
  if (rtr == ReadyToReceive::read) CHECK(out[1] == Wire().u8(0xC1).u8(0x42).u32(0).u64(0).bytes());
  CHECK(out.back() == send_of(1));
  CHECK(end.rx.progress() == rdmap::Progress{});  // a hello is no Write
  // Once.
  REQUIRE(give(end, kHello) == Verdict::go_on);
  CHECK(said(end).empty());
  CHECK(end.known.size() == 1);
}

TEST_CASE_METHOD(Single, "hello: a first message that is none comes from another peer", "[hello]") {
  const bool initiator = GENERATE(false, true);
  end.start(asking(initiator));
  end.post(1, {});
  Bytes first;
  SECTION("a ready-to-receive message as others send it") { first = Wire().u8(0xC1).u8(0x40).u32(1).u64(1).bytes(); }
  SECTION("a hello with another offset") { first = Wire().u8(0xC1).u8(0x40).u32(0x756977FF).u64(kOffset + 1).bytes(); }
  SECTION("a report") { first = Wire().u8(0xC1).u8(0x40).u32(0x75697702).u64(1).bytes(); }
  SECTION("a Send") { first = send_of(1); }
  SECTION("an empty FPDU") { first = {}; }
  REQUIRE(give(end, first) == Verdict::go_on);
  CHECK(end.known == std::vector{PeerKind::other});
  REQUIRE(give(end, kHello) == Verdict::go_on);  // too late
  CHECK(end.known.size() == 1);
  CHECK(end.reports == 0);
  end.send_immediate(7, {}, 5);
  take_all(end);
  REQUIRE(end.tx.failure());
  CHECK(end.tx.failure()->status == Status::local_operation);
}

TEST_CASE_METHOD(Single,
                 "hello: the hello of a responder that is no answer to a ready-to-receive message is not answered",
                 "[hello]") {
  end.start(asking(true));
  take_all(end);
  REQUIRE(give(end, kHello) == Verdict::go_on);
  CHECK(end.known == std::vector{PeerKind::uiw});
  CHECK(said(end).empty());
}

TEST_CASE_METHOD(Single, "hello: Send with immediate waits until it is known what the peer is", "[hello]") {
  end.start(asking(true));
  end.send(1, {});
  end.send_immediate(2, {}, 5);
  end.send(3, {});
  CHECK(said(end) == std::vector<Bytes>{kHello, send_of(1)});
  SECTION("uiw") {
    REQUIRE(give(end, kHello) == Verdict::go_on);
    const auto out = said(end);
    REQUIRE(out.size() == 2);
    CHECK(out[0] == Wire().u8(0x41).u8(0x4F).u32(5).u32(0).u32(2).u32(0).bytes());
    CHECK(out[1] == send_of(3));
  }
  SECTION("another") {
    end.post(1, {});
    REQUIRE(give(end, send_of(1)) == Verdict::go_on);
    take_all(end);
    REQUIRE(end.tx.failure());
    end.flush_failed();
    CHECK(end.sent == std::vector<Sent>{{1, Status::success}, {2, Status::local_operation}, {3, Status::flushed}});
  }
  SECTION("silent") {
    end.tx.peer_known(PeerKind::other, false);
    take_all(end);
    CHECK(end.tx.failure());
  }
}

TEST_CASE_METHOD(Single, "hello: a peer that was silent for too long may still say hello", "[hello]") {
  end.start(asking(true));
  end.tx.peer_known(PeerKind::other, false);
  REQUIRE(give(end, kHello) == Verdict::go_on);
  CHECK(end.known == std::vector{PeerKind::uiw});
  end.send_immediate(1, {}, 5);
  CHECK(said(end) == std::vector<Bytes>{kHello, Wire().u8(0x41).u8(0x4F).u32(5).u32(0).u32(1).u32(0).bytes()});
}

TEST_CASE_METHOD(Single, "hello: FPDUs to uiw may be longer than a TCP segment, once TCP has the one in progress",
                 "[hello]") {
  const bool crc = GENERATE(false, true);
  const Bytes data = pattern(1000);
  StreamOptions options = asking(true);
  options.crc = crc;
  options.mulpdu = 114;  // 100 octets of an RDMA Write
  options.mulpdu_to_uiw = 2000;
  end.start(options);
  end.write(1, {memory_segment(data)}, Stag{7}, 0);
  auto batch = std::make_unique<rdmap::OutgoingBatch>();
  Bytes stream;
  // TCP takes the hello, a segment, and a half of the next one.
  const std::size_t taken = 20 + 120 + 60;
  REQUIRE(end.tx.fill(*batch) == rdmap::Transmitter::Fill::ready);
  stream = gather(batch->fpdus.vectors(), taken);
  end.tx.sent(*batch, taken);
  REQUIRE(give(end, kHello) == Verdict::go_on);
  const Bytes rest = take_all(end);
  stream.insert(stream.end(), rest.begin(), rest.end());
  const auto out = ulpdus_of(stream, crc);
  // Without a CRC the FPDU that TCP has a part of is built again, and with it those behind it in its batch.
  REQUIRE(out.size() == (crc ? 4U : 11U));
  CHECK(out[1].size() == 114);
  CHECK(out[2].size() == 114);
  if (crc) CHECK(out[3].size() == 14 + 800);
  Bytes came;
  for (const Bytes& ulpdu : out) came.insert(came.end(), ulpdu.begin() + 14, ulpdu.end());
  CHECK(came == data);
  end.write(2, {memory_segment(data)}, Stag{7}, 0);
  CHECK(ulpdus_of(take_all(end), crc).size() == 1);
}

TEST_CASE_METHOD(StartedEnd, "hello: an RDMA Write of no octets to an STag like ours has STag 0", "[hello]") {
  const Bytes data = pattern(4);
  const Stag like{0x756977FF};
  end.write(1, {}, like, kOffset);
  end.write(2, {memory_segment(data)}, like, kOffset);
  const auto out = said(end);
  REQUIRE(out.size() == 2);
  CHECK(out[0] == Wire().u8(0xC1).u8(0x40).u32(0).u64(kOffset).bytes());
  CHECK(out[1] == Wire().u8(0xC1).u8(0x40).u32(0x756977FF).u64(kOffset).add(data).bytes());
}
