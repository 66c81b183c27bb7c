// SPDX-License-Identifier: MIT
// What a receiver does with each thing a peer may send, right or wrong (RFC 5040 section 7.2, RFC 5041 section 7).
#include "rdmap/receiver.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/guarded_copy.h"
#include "tests/unit/rdmap/receiver_fixture.h"

using namespace uiw;
using namespace uiw::test;
using Fixture = ReceiverFixture;
using Verdict = mpa::UlpduSink::Verdict;

namespace {

constexpr std::size_t kFirst = mpa::Deframer::kHeadSize;  // the octets of a ULPDU that come with its headers

// Fills in the rest of a ULPDU where the receiver gives room, in parts of at most `most` octets.
Verdict fill(rdmap::Receiver& receiver, const Bytes& ulpdu, std::size_t most) {
  Verdict verdict = receiver.ulpdu(Octets(ulpdu).first(kFirst), 0, ulpdu.size());
  for (std::size_t at = kFirst; at < ulpdu.size() && verdict == Verdict::go_on;) {
    const MutableOctets room = receiver.destination(ulpdu.size() - at);
    REQUIRE(room.size() <= ulpdu.size() - at);
    if (room.empty()) {
      verdict = receiver.ulpdu(Octets(ulpdu).subspan(at, 1), at, ulpdu.size());
      ++at;
      continue;
    }
    const std::size_t size = std::min(room.size(), most);
    std::copy_n(ulpdu.begin() + static_cast<std::ptrdiff_t>(at), size, room.begin());
    verdict = receiver.placed(size, at, ulpdu.size());
    at += size;
  }
  return verdict;
}

}  // namespace

TEST_CASE_METHOD(Fixture, "receiver: RDMA Write is placed and not delivered (RFC 5040 section 5.1)", "[receiver]") {
  const Bytes data = pattern(100);
  CHECK(give(tagged(kWrite, writable, 0x10000, data)) == Verdict::go_on);
  CHECK(give(tagged(kWrite, writable, 0x10000 + 4096 - 100, data)) == Verdict::go_on);
  CHECK(std::equal(data.begin(), data.end(), memory.begin()));
  CHECK(std::equal(data.begin(), data.end(), memory.end() - 100));
  CHECK(end.received.empty());
  CHECK(end.rx.heard());
  // In pieces, as it arrives with CRC off.
  const Bytes ulpdu = tagged(kWrite, writable, 0x10000 + 1000, pattern(300, 5));
  for (std::size_t at = 0; at < ulpdu.size();) {
    const std::size_t size = std::min<std::size_t>(at == 0 ? 80 : 33, ulpdu.size() - at);
    REQUIRE(end.rx.ulpdu(Octets(ulpdu).subspan(at, size), at, ulpdu.size()) == Verdict::go_on);
    at += size;
  }
  CHECK(Bytes(memory.begin() + 1000, memory.begin() + 1300) == pattern(300, 5));
}

// RFC 5041 section 7.1, RFC 5040 section 7.2: each with layer 1 (DDP), type 1 (tagged).
TEST_CASE_METHOD(Fixture, "receiver: tagged segments refused", "[receiver]") {
  const Bytes before = memory;
  const Bytes data = pattern(16);
  SECTION("STag of nothing") { refused(tagged(kWrite, writable ^ 0x100, 0x10000, data), 1, 1, 0x00); }
  SECTION("wrong key of a real index") { refused(tagged(kWrite, writable ^ 1, 0x10000, data), 1, 1, 0x00); }
  SECTION("STag 0") { refused(tagged(kWrite, 0, 0x10000, data), 1, 1, 0x00); }
  SECTION("before its base") { refused(tagged(kWrite, writable, 0xFFFF, data), 1, 1, 0x01); }
  SECTION("past its end") { refused(tagged(kWrite, writable, 0x10000 + 4096 - 15, data), 1, 1, 0x01); }
  SECTION("far away") { refused(tagged(kWrite, writable, 0, data), 1, 1, 0x01); }
  SECTION("of another protection domain") { refused(tagged(kWrite, foreign_stag, 0, data), 1, 1, 0x02); }
  SECTION("TO wrap") { refused(tagged(kWrite, writable, ~std::uint64_t{0} - 8, data), 1, 1, 0x03); }
  SECTION("DDP version 0") { refused(tagged(kWrite, writable, 0x10000, data, 0xC0), 1, 1, 0x04); }
  SECTION("DDP version 2") { refused(tagged(kWrite, writable, 0x10000, data, 0xC2), 1, 1, 0x04); }
  SECTION("no right to write") {
    // RFC 5041 has no code for rights; the STag is invalid for this use.
    refused(tagged(kWrite, readable, 0x20000, data), 1, 1, 0x00);
  }
  SECTION("local only") { refused(tagged(kWrite, local, 0, data), 1, 1, 0x00); }
  SECTION("retired") {
    REQUIRE(end.stags.retire(static_cast<Stag>(writable)));
    refused(tagged(kWrite, writable, 0x10000, data), 1, 1, 0x00);
  }
  CHECK(memory == before);
  CHECK(end.sent.empty());
}

TEST_CASE_METHOD(Fixture, "receiver: a region retired within a segment is written no more (RFC 5040 section 8.1.1)",
                 "[receiver]") {
  const Bytes ulpdu = tagged(kWrite, writable, 0x10000, pattern(300));
  REQUIRE(end.rx.ulpdu(Octets(ulpdu).first(80), 0, ulpdu.size()) == Verdict::go_on);
  const Bytes before = memory;
  REQUIRE(end.stags.retire(static_cast<Stag>(writable)));
  CHECK(end.rx.ulpdu(Octets(ulpdu).subspan(80), 80, ulpdu.size()) == Verdict::stop);
  CHECK(memory == before);
  REQUIRE(end.rx.error());
  CHECK(end.rx.error()->layer == rdmap::Layer::ddp);
  CHECK(end.rx.error()->type == 1);
  CHECK(end.rx.error()->code == 0x00);
}

TEST_CASE_METHOD(Fixture, "receiver: RDMAP version and opcode (RFC 5040 section 7.2, figure 9)", "[receiver]") {
  const Bytes data = pattern(16);
  SECTION("version 2, tagged") { refused(tagged(0x80, writable, 0x10000, data), 0, 2, 0x05); }
  SECTION("version 3, untagged") { refused(untagged(0xC3, 0, 1, 0, data), 0, 2, 0x05); }
  SECTION("tagged opcodes that are untagged ones or none") {
    const unsigned opcode = GENERATE(1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    refused(tagged(0x40 | opcode, writable, 0x10000, data), 0, 2, 0x06);
  }
  SECTION("opcodes not of queue 0") {
    const unsigned opcode = GENERATE(0, 1, 2, 7, 10, 11, 12, 13, 14, 15);
    end.post(1, {memory_segment(memory)});
    refused(untagged(0x40 | opcode, 0, 1, 0, data), 0, 2, 0x06);
  }
  SECTION("opcodes not of queue 1") {
    const unsigned opcode = GENERATE(0, 2, 3, 4, 5, 6, 7, 8, 9, 11, 14);
    refused(untagged(0x40 | opcode, 1, 1, 0, data), 0, 2, 0x06);
  }
  SECTION("opcodes not of queue 2") {
    const unsigned opcode = GENERATE(0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 14);
    refused(untagged(0x40 | opcode, 2, 1, 0, data), 0, 2, 0x06);
  }
  SECTION("opcodes not of queue 3 (RFC 7306 figure 2)") {
    const unsigned opcode = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14);
    refused(untagged(0x40 | opcode, 3, 1, 0, data), 0, 2, 0x06);
  }
  SECTION("reserved bits of the RDMAP octet are ignored (section 4.1)") {
    CHECK(give(tagged(kWrite | 0x30, writable, 0x10000, data)) == Verdict::go_on);
  }
}

// Layer 1 (DDP), type 2 (untagged).
TEST_CASE_METHOD(Fixture, "receiver: untagged segments refused (RFC 5041 section 7.1)", "[receiver]") {
  const Bytes data = pattern(16);
  end.post(1, {memory_segment(memory)});
  SECTION("queue that is not") {
    const std::uint32_t queue = GENERATE(4, 5, 0x80000000, 0xFFFFFFFF);
    refused(untagged(kSend, queue, 1, 0, data), 1, 2, 0x01);
  }
  SECTION("MSN of a Send out of range") {
    const std::uint32_t msn = GENERATE(0, 2, 3, 0x80000000, 0xFFFFFFFF);
    refused(untagged(kSend, 0, msn, 0, data), 1, 2, 0x03);
  }
  SECTION("MSN twice") {
    REQUIRE(give(untagged(kSend, 0, 1, 0, data)) == Verdict::go_on);
    end.post(2, {memory_segment(memory)});
    refused(untagged(kSend, 0, 1, 0, data), 1, 2, 0x03);
  }
  SECTION("MO of a first segment") { refused(untagged(kSend, 0, 1, 1, data), 1, 2, 0x04); }
  SECTION("MO with a gap") {
    REQUIRE(give(untagged(kSend, 0, 1, 0, data, 0x01)) == Verdict::go_on);
    refused(untagged(kSend, 0, 1, 17, data), 1, 2, 0x04);
  }
  SECTION("MO backwards") {
    REQUIRE(give(untagged(kSend, 0, 1, 0, data, 0x01)) == Verdict::go_on);
    refused(untagged(kSend, 0, 1, 15, data), 1, 2, 0x04);
  }
  SECTION("longer than the receive") {
    refused(untagged(kSend, 0, 1, 0, pattern(4097)), 1, 2, 0x05);
    REQUIRE(end.received.size() == 1);
    CHECK(end.received[0].status == Status::local_length);
  }
  SECTION("longer than the receive in its second segment") {
    REQUIRE(give(untagged(kSend, 0, 1, 0, pattern(4000), 0x01)) == Verdict::go_on);
    refused(untagged(kSend, 0, 1, 4000, pattern(97)), 1, 2, 0x05);
    REQUIRE(end.received.size() == 1);
    CHECK(end.received[0].status == Status::local_length);
  }
  SECTION("DDP version") {
    const unsigned version = GENERATE(0, 2, 3);
    refused(untagged(kSend, 0, 1, 0, data, 0x40 | version), 1, 2, 0x06);
  }
}

TEST_CASE_METHOD(Fixture, "receiver: the Terminate names the first error alone (RFC 5040 section 7.1)", "[receiver]") {
  const Bytes first = tagged(kWrite, writable, 0, pattern(16));
  REQUIRE(give(first) == Verdict::stop);
  REQUIRE(give(untagged(kSend, 9, 1, 0, pattern(16))) == Verdict::stop);
  terminates(first, 1, 1, 0x01, true, false);
}

TEST_CASE_METHOD(Fixture, "receiver: Send with Invalidate (RFC 5040 sections 5.3 and 7.2)", "[receiver]") {
  end.post(1, {memory_segment(memory)});
  SECTION("of a good STag, delivered with the message") {
    const auto stag = static_cast<std::uint32_t>(end.expose(local_only, ddp::kRemoteRead, 0));
    CHECK(give(untagged(kSendInvalidate, 0, 1, 0, pattern(5), 0x01, stag)) == Verdict::go_on);
    CHECK(end.stags.region(static_cast<Stag>(stag)));  // not before the last segment
    CHECK(give(untagged(kSendInvalidate, 0, 1, 5, pattern(5), 0x41, stag)) == Verdict::go_on);
    CHECK_FALSE(end.stags.region(static_cast<Stag>(stag)));
    REQUIRE(end.received.size() == 1);
    CHECK(end.received[0].invalidated);
    CHECK(end.received[0].stag == static_cast<Stag>(stag));
    CHECK(end.received[0].length == 10);
  }
  SECTION("once its payload is placed, before the receive completes (Verbs draft section 8.2.2.1)") {
    const auto stag = static_cast<std::uint32_t>(end.expose(local_only, ddp::kRemoteRead, 0));
    Bytes then;
    end.on_invalidate = [&] {
      CHECK(end.received.empty());
      then.assign(memory.begin(), memory.begin() + 10);
    };
    const Bytes whole = pattern(10);
    CHECK(give(untagged(kSendInvalidate, 0, 1, 0, Octets(whole).first(4), 0x01, stag)) == Verdict::go_on);
    const Bytes last = untagged(kSendInvalidate, 0, 1, 4, Octets(whole).subspan(4), 0x41, stag);
    const bool in_two = GENERATE(false, true);
    const std::size_t first = in_two ? last.size() - 3 : last.size();
    CHECK(end.rx.ulpdu(Octets(last).first(first), 0, last.size()) == Verdict::go_on);
    if (in_two) {
      CHECK(then.empty());
      CHECK(end.rx.ulpdu(Octets(last).subspan(first), first, last.size()) == Verdict::go_on);
    }
    CHECK(then == whole);
    CHECK(end.received.size() == 1);
  }
  SECTION("refused with the headers of its last segment, however it arrives") {
    const Bytes last = untagged(kSendInvalidate, 0, 1, 0, pattern(5), 0x41, 0xDEAD0001);
    CHECK(end.rx.ulpdu(Octets(last).first(20), 0, last.size()) == Verdict::go_on);
    REQUIRE(end.rx.ulpdu(Octets(last).subspan(20), 20, last.size()) == Verdict::stop);
    terminates(last, 0, 1, 0x09, true, false);
    CHECK(end.received.at(0).status != Status::success);
  }
  SECTION("that cannot be: STag cannot be Invalidated") {
    refused(untagged(kSendInvalidate, 0, 1, 0, pattern(5), 0x41, 0xDEAD0001), 0, 1, 0x09);
    REQUIRE(end.received.size() == 1);
    CHECK(end.received[0].status != Status::success);
  }
  SECTION("for the reason that its owner gives (Verbs draft figure 23)") {
    end.invalidate_error = rdmap::ErrorCode::not_associated;
    refused(untagged(kSendInvalidate, 0, 1, 0, pattern(5), 0x41, 0xDEAD0001), 0, 1, 0x03);
  }
  SECTION("the field is ignored in other Sends (section 4.1)") {
    CHECK(give(untagged(kSend, 0, 1, 0, pattern(5), 0x41, readable)) == Verdict::go_on);
    CHECK(end.stags.region(static_cast<Stag>(readable)));
    CHECK_FALSE(end.received.at(0).invalidated);
  }
}

TEST_CASE_METHOD(Fixture, "receiver: a message keeps its opcode", "[receiver]") {
  end.post(1, {memory_segment(memory)});
  REQUIRE(give(untagged(kSend, 0, 1, 0, pattern(5), 0x01)) == Verdict::go_on);
  refused(untagged(0x45, 0, 1, 5, pattern(5)), 0, 2, 0x06);
}

TEST_CASE_METHOD(Fixture, "receiver: a Terminate is one segment, the first of its queue (RFC 5040 sections 5.1, 7.2)",
                 "[receiver]") {
  const Bytes why = Wire().u8(0x11).u8(0x01).u16(0);
  SECTION("another MSN") { refused(untagged(kTerminate, 2, 2, 0, why), 1, 2, 0x03); }
  SECTION("an offset") { refused(untagged(kTerminate, 2, 1, 4, why), 1, 2, 0x04); }
  SECTION("more to come") { refused(untagged(kTerminate, 2, 1, 0, why, 0x01), 1, 2, 0x05); }
}

TEST_CASE_METHOD(Fixture, "receiver: a Terminate ends the stream and is not answered (RFC 5040 section 5.4)",
                 "[receiver]") {
  SECTION("with headers") {
    const Bytes write = tagged(kWrite, 0x55, 0x1000, {});
    CHECK(give(untagged(kTerminate, 2, 1, 0, Wire().u8(0x11).u8(0x01).u16(0xC000).u16(300).add(write).bytes())) ==
          Verdict::stop);
    REQUIRE(end.rx.peer_terminate());
    CHECK(end.rx.peer_terminate()->layer == rdmap::Layer::ddp);
    CHECK(end.rx.peer_terminate()->segment_length == 300);
    CHECK(end.rx.peer_terminate()->ddp_header_size == 14);
  }
  SECTION("cut short") {
    CHECK(give(untagged(kTerminate, 2, 1, 0, Wire().u8(0x11).u8(0x01).u16(0xC000).u16(300).zeros(5).bytes())) ==
          Verdict::stop);
    CHECK(end.rx.peer_terminate());
  }
  SECTION("empty") {
    CHECK(give(untagged(kTerminate, 2, 1, 0, {})) == Verdict::stop);
    CHECK(end.rx.peer_terminate());
  }
  CHECK_FALSE(end.rx.error());
  CHECK(take_all(end).empty());
}

TEST_CASE_METHOD(Fixture, "receiver: ULPDUs too short for their header", "[receiver]") {
  end.post(1, {memory_segment(memory)});
  const Bytes ulpdu = GENERATE_COPY(tagged(kWrite, writable, 0x10000, {}), untagged(kSend, 0, 1, 0, {}));
  for (std::size_t size = 1; size < ulpdu.size(); ++size) {
    Fixture fresh;
    fresh.end.post(1, {memory_segment(memory)});
    CHECK(fresh.give(Bytes(ulpdu.begin(), ulpdu.begin() + static_cast<std::ptrdiff_t>(size))) == Verdict::stop);
    CHECK(fresh.end.rx.error());
  }
}

TEST_CASE_METHOD(Fixture, "receiver: an FPDU of nothing can only be the first (RFC 6581 section 9)", "[receiver]") {
  CHECK_FALSE(end.rx.heard());
  CHECK(give({}) == Verdict::go_on);
  CHECK(end.rx.heard());
  CHECK(give({}) == Verdict::stop);
  CHECK(end.rx.error());
}

TEST_CASE_METHOD(Fixture, "receiver: pauses without a receive and takes the same piece later", "[receiver]") {
  const Bytes ulpdu = untagged(kSend, 0, 1, 0, pattern(200));
  for (int i = 0; i < 3; ++i) CHECK(end.rx.ulpdu(Octets(ulpdu).first(80), 0, ulpdu.size()) == Verdict::pause);
  CHECK(end.received.empty());
  end.post(9, {{memory.data(), 20}, {memory.data() + 20, 0}, {memory.data() + 20, 180}});
  CHECK(end.rx.ulpdu(Octets(ulpdu).first(80), 0, ulpdu.size()) == Verdict::go_on);
  CHECK(end.rx.ulpdu(Octets(ulpdu).subspan(80), 80, ulpdu.size()) == Verdict::go_on);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].length == 200);
  CHECK(Bytes(memory.begin(), memory.begin() + 200) == pattern(200));
}

TEST_CASE_METHOD(Fixture, "receiver: abandon() completes the receive in progress alone", "[receiver]") {
  end.post(1, {memory_segment(memory)});
  end.post(2, {memory_segment(memory)});
  end.rx.abandon(Status::flushed);
  CHECK(end.received.empty());
  REQUIRE(give(untagged(kSend, 0, 1, 0, pattern(5), 0x01)) == Verdict::go_on);
  end.rx.abandon(Status::flushed);
  end.rx.abandon(Status::flushed);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].id == 1);
  CHECK(end.received[0].status == Status::flushed);
}

TEST_CASE("receiver: MSNs count modulo 2^32 from 1 (RFC 5041 section 4.3)", "[receiver]") {
  CHECK(ddp::next(ddp::Msn{0xFFFFFFFF}) == ddp::Msn{0});
  Fixture fixture;
  for (std::uint32_t msn = 1; msn <= 1000; ++msn) {
    fixture.end.post(msn, {});
    REQUIRE(fixture.give(untagged(kSend, 0, msn, 0, {})) == Verdict::go_on);
  }
  CHECK(fixture.end.received.size() == 1000);
}

TEST_CASE_METHOD(StartedEnd, "receiver: memory that is gone ends the stream, not the program", "[receiver]") {
  install_copy_guard();
  constexpr std::size_t kSize = 8192;
  auto* gone = static_cast<std::byte*>(::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(gone != MAP_FAILED);
  SECTION("a write") {
    const auto stag = end.stags.add({gone, 0, kSize, ddp::kLocalWrite | ddp::kRemoteWrite, &end.domain}).value();
    const Bytes ulpdu = tagged(kWrite, static_cast<std::uint32_t>(stag), 0, pattern(100));
    CHECK(end.give(ulpdu) == Verdict::stop);
  }
  SECTION("a receive") {
    end.post(1, {{gone, kSize}});
    const Bytes ulpdu = untagged(kSend, 0, 1, 0, pattern(100));
    CHECK(end.give(ulpdu) == Verdict::stop);
    REQUIRE(end.received.size() == 1);
    CHECK(end.received[0].status == Status::local_protection);
  }
  REQUIRE(end.rx.error());
  // An error localized to the stream, and the header of the segment by which the peer finds its work (RFC 5040 figures
  // 9 and 10).
  CHECK(end.rx.error()->layer == rdmap::Layer::rdma);
  CHECK(end.rx.error()->type == 2);
  CHECK(end.rx.error()->code == 7);
  CHECK(end.rx.error()->has_ddp_header);
  ::munmap(gone, kSize);
}

// ---- A receiver says where the rest of a segment goes, and is told that it stands there ----

TEST_CASE_METHOD(Fixture, "receiver: a Send is filled in over its elements", "[receiver]") {
  const std::size_t most = GENERATE(1, 33, 4096);
  end.post(9, {{memory.data(), 100}, {memory.data() + 200, 0}, {memory.data() + 300, 400}, {memory.data() + 900, 9}});
  const Bytes data = pattern(509);
  REQUIRE(fill(end.rx, untagged(kSend, 0, 1, 0, Octets(data).first(250), 0x01), most) == Verdict::go_on);
  CHECK(end.received.empty());
  REQUIRE(fill(end.rx, untagged(kSend, 0, 1, 250, Octets(data).subspan(250)), most) == Verdict::go_on);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].length == 509);
  Bytes expected(4096);
  std::copy_n(data.begin(), 100, expected.begin());
  std::copy_n(data.begin() + 100, 400, expected.begin() + 300);
  std::copy_n(data.begin() + 500, 9, expected.begin() + 900);
  CHECK(memory == expected);
}

TEST_CASE_METHOD(Fixture, "receiver: a Read Response is filled in, a Send between its segments too", "[receiver]") {
  const std::size_t most = GENERATE(33, 4096);
  Bytes sink(1000);
  end.read(1, {{sink.data(), 400}, {sink.data() + 400, 600}}, Stag{1}, 0);
  take_all(end);
  end.post(9, {memory_segment(memory)});
  const Bytes data = pattern(1000), message = pattern(500, 7);
  REQUIRE(fill(end.rx, tagged(kReadResponse, 0x51000001U, 0x1000, Octets(data).first(300), 0x81), most) ==
          Verdict::go_on);
  REQUIRE(fill(end.rx, untagged(kSend, 0, 1, 0, message), most) == Verdict::go_on);
  CHECK(end.sent.empty());
  REQUIRE(fill(end.rx, tagged(kReadResponse, 0x51000001U, 0x1000 + 300, Octets(data).subspan(300)), most) ==
          Verdict::go_on);
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
  CHECK(sink == data);
  REQUIRE(end.received.size() == 1);
  CHECK(std::equal(message.begin(), message.end(), memory.begin()));
}

TEST_CASE_METHOD(Fixture, "receiver: the last part of a Send with Invalidate, filled in, invalidates", "[receiver]") {
  Bytes inbox(300);
  end.post(9, {memory_segment(inbox)});
  end.on_invalidate = [&] { CHECK(inbox == pattern(300)); };
  REQUIRE(fill(end.rx, untagged(kSendInvalidate, 0, 1, 0, pattern(300), 0x41, writable), 100) == Verdict::go_on);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].invalidated);
  CHECK(end.received[0].stag == static_cast<Stag>(writable));
}

TEST_CASE_METHOD(Fixture, "receiver: there is no room for an RDMA Write, whose octets appear in order", "[receiver]") {
  const Bytes ulpdu = tagged(kWrite, writable, 0x10000, pattern(300));
  REQUIRE(end.rx.ulpdu(Octets(ulpdu).first(kFirst), 0, ulpdu.size()) == Verdict::go_on);
  CHECK(end.rx.destination(ulpdu.size() - kFirst).empty());
}

TEST_CASE_METHOD(Fixture, "receiver: there is no room in a region that is deregistered within a segment",
                 "[receiver]") {
  Bytes inbox(300);
  const Stag stag = end.expose(inbox, ddp::kLocalWrite, 0);
  const std::vector<rdmap::Sge> sges = {
      {stag, 300, 0, end.stags.registered(stag, &end.domain, 0, 300, ddp::kLocalWrite)}};
  end.posted.push_back({9, 300, sges});
  const Bytes ulpdu = untagged(kSend, 0, 1, 0, pattern(300));
  REQUIRE(end.rx.ulpdu(Octets(ulpdu).first(kFirst), 0, ulpdu.size()) == Verdict::go_on);
  CHECK(end.rx.destination(ulpdu.size() - kFirst).size() == ulpdu.size() - kFirst);
  const Bytes before = inbox;
  REQUIRE(end.stags.retire(stag));
  CHECK(end.rx.destination(ulpdu.size() - kFirst).empty());
  CHECK(end.rx.ulpdu(Octets(ulpdu).subspan(kFirst), kFirst, ulpdu.size()) == Verdict::stop);
  CHECK(inbox == before);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].status == Status::local_protection);
}
