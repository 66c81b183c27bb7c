// SPDX-License-Identifier: MIT
// Progress reports between two ends of uiw: what they say, when one is sent, and what they confirm.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/requester.h"

using namespace uiw;
using namespace uiw::test;
using rdmap::Completion;

TEST_CASE_METHOD(Requester, "completion: a peer without a receive confirms what came before the message that waits",
                 "[completion]") {
  for (std::uint64_t id = 1; id <= 4; ++id) post(id);
  CHECK(all() == "ssssp");
  end.tx.take_report({rdmap::Msn{3}, 0});
  CHECK(good() == Ids{1, 2});
  end.tx.take_report({rdmap::Msn{2}, 0});  // it has said more already
  end.tx.take_report({rdmap::Msn{9}, 0});  // of what was never sent
  end.tx.take_report({rdmap::Msn{0x80000000}, 0});
  end.tx.take_report({rdmap::Msn{5}, 1});
  CHECK(good() == Ids{1, 2});
  post(5);
  CHECK(go(50) == 1);
  end.tx.take_report({rdmap::Msn{5}, 0});  // which is half sent
  CHECK(good() == Ids{1, 2, 3, 4});
  answer();
  CHECK(good() == Ids{1, 2, 3, 4});
  CHECK(all() == "sp");
  answer();
  CHECK(good() == Ids{1, 2, 3, 4, 5});
}

// What a requester has sent is confirmed up to the last Send or Write that the peer has placed.
TEST_CASE_METHOD(Requester, "completion: a peer that leaves confirms Sends and Writes, by their numbers",
                 "[completion]") {
  post(1);
  end.write(2, {memory_segment(data)}, Stag{1}, 0);
  end.write(3, {memory_segment(data)}, Stag{1}, 0);
  post(4);
  end.write(5, {memory_segment(data)}, Stag{1}, 0);
  CHECK(all() == "swwswp");
  SECTION("nothing") {
    end.tx.take_report({rdmap::Msn{1}, 0});
    CHECK(good().empty());
  }
  SECTION("a Write behind a Send") {
    end.tx.take_report({rdmap::Msn{2}, 1});
    CHECK(good() == Ids{1, 2});
  }
  SECTION("a Send behind Writes") {
    end.tx.take_report({rdmap::Msn{3}, 2});
    CHECK(good() == Ids{1, 2, 3, 4});
  }
  SECTION("all") {
    end.tx.take_report({rdmap::Msn{3}, 3});
    CHECK(good() == Ids{1, 2, 3, 4, 5});
  }
  SECTION("more Writes than there were") {
    end.tx.take_report({rdmap::Msn{3}, 4});
    CHECK(good().empty());
  }
}

TEST_CASE_METHOD(Requester, "completion: an RNR report is sent once, with the same octets when it is built again",
                 "[completion]") {
  const std::size_t taken = GENERATE(0U, 1U, 10U, 19U);
  end.tx.report(rdmap::kRnrReport, {rdmap::Msn{7}, 3});
  if (taken > 0) go(taken);
  end.tx.report(rdmap::kRnrReport, {rdmap::Msn{8}, 3});  // the first is not out yet
  while (go() > 0) {
  }
  const auto ulpdus = ulpdus_of(stream, false);
  REQUIRE(ulpdus.size() == 1);
  // An RDMA Write of no octets to an STag of ours.
  CHECK(ulpdus[0] == Wire().u8(0xC1).u8(0x40).u32(0x75697700).u32(3).u32(7).bytes());
  end.tx.report(rdmap::kRnrReport, {rdmap::Msn{8}, 3});
  CHECK(go() == 1);
}

TEST_CASE_METHOD(Pair, "completion: a progress report precedes a message that may be the reply to the peer's work",
                 "[completion]") {
  const bool crc = GENERATE(false, true);
  const bool infiniband = GENERATE(false, true);
  StreamOptions options{.crc = crc,
                        .peer = mpa::PeerKind::uiw,
                        .completion = Completion::remote,
                        .probe_slots = 1,
                        .infiniband = infiniband};
  a.start(options);
  if (!infiniband) options.completion = Completion::local;  // of its own work
  b.start(options);
  seed(GENERATE(1U, 2U, 3U));
  a.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  Bytes data = pattern(100), in(100), in_b(100);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    a.post(id, {memory_segment(in)});
    b.post(id, {memory_segment(in_b)});
    a.send(id, {memory_segment(data)});
  }
  // What confirms work, and the receive of an answer, in the order in which they come.
  std::uint64_t answered = 0;
  for (int i = 0; i < 10'000 && a.received.size() < 3; ++i) {
    step();
    for (; answered < b.received.size(); ++answered) b.send(10 + answered, {memory_segment(data)});
    REQUIRE(a.sent.size() >= a.received.size());
  }
  CHECK(a.received.size() == 3);
  CHECK(a.sent == std::vector<Sent>{{1, Status::success}, {2, Status::success}, {3, Status::success}});
  CHECK_FALSE(a.rx.peer_waits());
}

TEST_CASE("completion: progress is reported once, and only in front of a message that takes a receive",
          "[completion]") {
  Requester it(4, 1, 64, 1440);
  End& end = it.end;
  end.start({.crc = false, .infiniband = true});
  const auto reports = [&] {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;  // STag, tagged offset
    while (it.go() > 0) {
    }
    for (const Bytes& ulpdu : ulpdus_of(it.stream, false)) {
      const std::uint64_t stag = big_endian(Octets(ulpdu).subspan(2, 4));
      if (ulpdu[1] == std::byte{0x40} && stag >> 8 == 0x756977) {
        found.emplace_back(stag & 0xFF, big_endian(Octets(ulpdu).subspan(6, 8)));
      }
    }
    it.stream.clear();
    return found;
  };
  using Reports = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  it.post(1);
  CHECK(reports().empty());
  end.reads->progress = 3;  // two Sends
  end.write(2, {memory_segment(it.data)}, Stag{1}, 0);
  CHECK(reports().empty());
  it.post(3);
  it.post(4);
  CHECK(reports() == Reports{{1, 3}});
  end.reads->progress = std::uint64_t{5} << 32 | 3;  // and five Writes
  it.post(5);
  CHECK(reports() == Reports{{1, std::uint64_t{5} << 32 | 3}});
  // An answer says so too.
  end.reads->progress = std::uint64_t{5} << 32 | 4;
  end.reads->inbound.push({rdmap::ReadRequest{}, {rdmap::Msn{4}, 5}});
  it.post(6);
  CHECK(reports().empty());
  // With what is due anyway, in order.
  end.reads->progress = std::uint64_t{5} << 32 | 6;
  end.tx.report(rdmap::kRnrReport, {rdmap::Msn{5}, 5});
  it.post(7);
  CHECK(reports() == Reports{{0, std::uint64_t{5} << 32 | 5}, {1, std::uint64_t{5} << 32 | 6}});
}

TEST_CASE_METHOD(Requester, "completion: no report comes between a Write and its Immediate Data (RFC 7306 section 6)",
                 "[completion]") {
  const StreamOptions options{.crc = false, .infiniband = true};
  end.start(options);
  end.write_immediate(1, {memory_segment(data)}, Stag{1}, 0, {});
  REQUIRE(go(2 + 14 + 100 + 4) == 2);  // TCP takes the Write
  end.reads->progress = 3;             // and two Sends of the peer come
  post(2);
  while (go() > 0) {
  }
  std::vector<unsigned> controls;
  for (const Bytes& ulpdu : ulpdus_of(stream, false)) controls.push_back(std::to_integer<unsigned>(ulpdu[1]));
  CHECK(controls == std::vector<unsigned>{0x40, 0x48, 0x40, 0x43});
}

TEST_CASE("completion: repeated reports of the same progress take constant time", "[completion]") {
  // Were each of them to walk over the queue, this would take until the time of the test is over.
  constexpr std::uint32_t kDepth = 32768, kTimes = 1'000'000;
  Requester it(4, 1, kDepth);
  it.end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  for (std::uint64_t id = 0; id < kDepth; ++id) it.post(id);
  while (it.go() > 0) {
  }
  unsigned news = 0;
  for (std::uint32_t i = 0; i < kTimes; ++i) news += it.end.tx.take_report({rdmap::Msn{2}, 0}) ? 1 : 0;
  CHECK(news == 1);
  // One more each time.
  for (std::uint32_t i = 3; i <= kDepth; ++i) news += it.end.tx.take_report({static_cast<rdmap::Msn>(i), 0}) ? 1 : 0;
  CHECK(news == kDepth - 1);
  CHECK(it.end.sent.size() == kDepth - 1);
}

TEST_CASE("completion: an end with the remote rule requests progress reports from a peer that supports them",
          "[completion]") {
  const bool remote = GENERATE(true, false), reports = GENERATE(true, false);
  Requester it(4, 1, 64, 1440);
  End& end = it.end;
  end.start({.crc = false,
             .peer = reports ? mpa::PeerKind::uiw : mpa::PeerKind::other,
             .completion = remote ? Completion::remote : Completion::local});
  it.post(1);
  while (it.go() > 0) {
  }
  const std::vector<Bytes> sent = ulpdus_of(it.stream, false);
  REQUIRE(sent.size() >= 1);
  // In front of its first message; an RDMA Write of no octets.
  const bool asked = sent[0] == Wire().u8(0xC1).u8(0x40).u32(0x75697702).u64(std::uint64_t{1}).bytes();
  CHECK(asked == (remote && reports));

  // It acknowledges itself only once it is asked.
  it.stream.clear();
  end.reads->progress = 3;
  const auto acknowledged = [&](std::uint64_t id) {
    it.post(id);
    while (it.go() > 0) {
    }
    bool found = false;
    for (const Bytes& ulpdu : ulpdus_of(it.stream, false))
      found |= ulpdu == Wire().u8(0xC1).u8(0x40).u32(0x75697701).u64(3).bytes();
    it.stream.clear();
    return found;
  };
  CHECK_FALSE(acknowledged(2));
  const Bytes asking = Wire().u8(0xC1).u8(0x40).u32(0x75697702).u64(1).bytes();
  CHECK(end.give(asking) == mpa::UlpduSink::Verdict::go_on);
  CHECK(acknowledged(3) == reports);
}

TEST_CASE_METHOD(Single, "completion: an RNR report counts if the peer is uiw", "[completion]") {
  const bool uiw = GENERATE(true, false);
  end.start({.peer = uiw ? mpa::PeerKind::uiw : mpa::PeerKind::other});
  const auto give = [&](const Bytes& ulpdu) { CHECK(end.give(ulpdu) == mpa::UlpduSink::Verdict::go_on); };
  give(Wire().u8(0xC1).u8(0x40).u32(0).u64(7).bytes());  // a Write of nothing
  CHECK(end.reports == 0);
  give(Wire().u8(0xC1).u8(0x40).u32(0x75697700).u64(7).bytes());
  CHECK(end.reports == (uiw ? 1 : 0));
  CHECK(end.rx.peer_waits() == uiw);
  give(Wire().u8(0xC1).u8(0x40).u32(0x75697701).u64(8).bytes());  // that something was placed, and no more
  CHECK(end.reports == (uiw ? 2 : 0));
}
