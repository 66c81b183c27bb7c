// SPDX-License-Identifier: MIT
// Send with immediate: the opcodes that uiw sends to uiw.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;
using Verdict = mpa::UlpduSink::Verdict;

namespace {

StreamOptions agreed(std::size_t mulpdu = 1440) { return {.mulpdu = mulpdu, .peer = mpa::PeerKind::uiw}; }

Bytes segment(std::uint32_t msn, std::uint32_t word, Octets payload, std::uint32_t offset = 0, bool last = true,
              unsigned control = 0x4F) {
  return Wire().u8(last ? 0x41 : 0x01).u8(control).u32(word).u32(0).u32(msn).u32(offset).add(payload);
}

}  // namespace

TEST_CASE_METHOD(Single, "send_immediate: the octets of messages, in the order of Sends", "[send_immediate]") {
  end.start(agreed(128));
  const Bytes data = pattern(200);
  end.send(1, {});
  end.send_immediate(2, {memory_segment(data)}, 0x01020304, true);
  end.send_immediate(3, {}, 0xFFFFFFFF);
  end.send(4, {}, true, Stag{0x77});
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 5);
  CHECK(out[0] == segment(1, 0, {}, 0, true, 0x43));
  CHECK(out[1] == segment(2, 0x01020304, Octets(data).first(110), 0, false, 0x4E));
  CHECK(out[2] == segment(2, 0x01020304, Octets(data).subspan(110), 110, true, 0x4E));
  CHECK(out[3] == segment(3, 0xFFFFFFFF, {}));
  CHECK(out[4] == segment(4, 0x77, {}, 0, true, 0x46));
  CHECK(end.sent.size() == 4);
}

TEST_CASE_METHOD(Pair, "send_immediate: from end to end, whatever the octets are cut to", "[send_immediate]") {
  const bool crc = GENERATE(false, true);
  const auto seed = static_cast<unsigned>(GENERATE(range(1, 6)));
  Random random(seed);
  StreamOptions options = agreed(GENERATE(128, 1440));
  options.crc = crc;
  start(options, seed);
  const Bytes source = pattern(5000, seed);
  std::vector<Bytes> inboxes(40);
  std::vector<std::size_t> sizes;
  for (std::uint32_t i = 0; i < 40; ++i) {
    sizes.push_back(between(random, 0, 3) == 0 ? 0 : between(random, 1, source.size()));
    const std::size_t first = sizes[i] / 3;
    const std::vector<MemorySegment> pieces = {{source.data(), first}, {source.data() + first, sizes[i] - first}};
    if (i % 4 == 3) {
      a.send(i, pieces, i % 8 == 3);
    } else {
      a.send_immediate(i, pieces, 0x9E3779B9 * i, i % 3 == 0);
    }
    inboxes[i].resize(source.size());
    b.post(i, {memory_segment(inboxes[i])});
    if (between(random, 0, 2) == 0) run();
  }
  run();
  REQUIRE(a.sent.size() == 40);
  REQUIRE(b.received.size() == 40);
  for (std::uint32_t i = 0; i < 40; ++i) {
    CAPTURE(i);
    const Received& got = b.received[i];
    const bool with = i % 4 != 3;
    CHECK(got.id == i);
    CHECK(got.status == Status::success);
    CHECK(got.length == sizes[i]);
    CHECK(got.is_send);
    CHECK_FALSE(got.invalidated);
    CHECK(got.has_immediate == with);
    CHECK(got.solicited == (with ? i % 3 == 0 : i % 8 == 3));
    if (with) CHECK(got.immediate == rdmap::immediate_of_word(0x9E3779B9 * i));
    CHECK(std::equal(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(sizes[i]), inboxes[i].begin()));
  }
}

TEST_CASE_METHOD(Single, "send_immediate: waits for a receive", "[send_immediate]") {
  end.start(agreed());
  REQUIRE(end.give(segment(1, 5, {})) == Verdict::pause);
  end.post(1, {});
  REQUIRE(end.give(segment(1, 5, {})) == Verdict::go_on);
  CHECK(end.received.size() == 1);
}

TEST_CASE_METHOD(Single, "send_immediate: of no octets it is no ready-to-receive message", "[send_immediate]") {
  StreamOptions options = agreed();
  options.hold = true;
  options.rtr = mpa::ReadyToReceive::fulpdu;
  end.start(options);
  end.post(1, {});
  REQUIRE(end.give(segment(1, 5, {})) == Verdict::go_on);
  CHECK(end.received.size() == 1);
}

TEST_CASE_METHOD(StartedEnd, "send_immediate: without agreement the opcode is unexpected (RFC 5040 section 7.2)",
                 "[send_immediate]") {
  end.post(1, {});
  REQUIRE(end.give(segment(1, 5, {})) == Verdict::stop);
  REQUIRE(end.rx.error());
  CHECK(end.rx.error()->layer == rdmap::Layer::rdma);
  CHECK(end.rx.error()->type == static_cast<std::uint8_t>(rdmap::ErrorType::remote_operation));
  CHECK(end.rx.error()->code == static_cast<std::uint8_t>(rdmap::ErrorCode::unexpected_opcode));
  CHECK(end.received.empty());
}

TEST_CASE_METHOD(Single, "send_immediate: what is refused", "[send_immediate]") {
  end.start(agreed());
  Bytes memory(64);
  end.post(1, {memory_segment(memory)});
  const Bytes payload = pattern(8);
  Bytes bad;
  SECTION("another MSN") { bad = segment(2, 5, payload); }
  SECTION("longer than the receive") { bad = segment(1, 5, pattern(65)); }
  SECTION("on the Read Request queue") {
    bad = segment(1, 5, payload);
    bad[9] = std::byte{1};
  }
  SECTION("tagged") { bad = Wire().u8(0xC1).u8(0x4F).u32(1).u64(0).bytes(); }
  SECTION("solicited by its second segment alone") {
    REQUIRE(end.give(segment(1, 5, payload, 0, false)) == Verdict::go_on);
    bad = segment(1, 5, payload, 8, true, 0x4E);
  }
  SECTION("behind the first segment of a Send") {
    REQUIRE(end.give(segment(1, 0, payload, 0, false, 0x43)) == Verdict::go_on);
    bad = segment(1, 5, payload, 8);
  }
  REQUIRE(end.give(bad) == Verdict::stop);
  CHECK(end.rx.error());
}

TEST_CASE_METHOD(Single, "send_immediate: work posted before the agreement fails in its turn", "[send_immediate]") {
  end.send(1, {});
  end.send_immediate(2, {}, 5);
  end.send(3, {});
  end.start({});
  auto batch = std::make_unique<rdmap::OutgoingBatch>();
  REQUIRE(end.tx.fill(*batch) == rdmap::Transmitter::Fill::ready);
  CHECK(ulpdus_of(gather(batch->fpdus.vectors()), true).size() == 1);
  end.tx.sent(*batch, batch->fpdus.bytes());
  REQUIRE(end.tx.fill(*batch) == rdmap::Transmitter::Fill::local_error);
  CHECK(end.tx.failure()->status == Status::local_operation);
  end.flush_failed();
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}, {2, Status::local_operation}, {3, Status::flushed}});
}

TEST_CASE_METHOD(Single, "send_immediate: a Terminate finds its work", "[send_immediate]") {
  end.start(agreed());
  end.send_immediate(1, {}, 5);
  end.send_immediate(2, {}, 6);
  auto batch = std::make_unique<rdmap::OutgoingBatch>();
  REQUIRE(end.tx.fill(*batch) == rdmap::Transmitter::Fill::ready);
  rdmap::Terminate terminate;
  terminate.has_ddp_header = true;
  terminate.ddp_header_size = ddp::kUntaggedHeaderSize;
  end.tx.sent(*batch, mpa::fpdu_size(ddp::kUntaggedHeaderSize));  // the first
  const Bytes header = segment(2, 6, {});
  std::copy(header.begin(), header.end(), terminate.ddp_header.begin());
  CHECK(end.tx.find_terminated(terminate) == std::optional<std::uint64_t>(1));
}
