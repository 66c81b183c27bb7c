// SPDX-License-Identifier: MIT
// How an XRC_SEND queue pair names the shared receive queue of its peer, and what the peer then allows and refuses.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/receiver_fixture.h"
#include "tests/unit/rdmap/requester.h"

using namespace uiw;
using namespace uiw::test;
using Verdict = mpa::UlpduSink::Verdict;

namespace {

Bytes naming(std::uint64_t number) { return Wire().u8(0xC1).u8(0x40).u32(0x75697703).u64(number).bytes(); }

// The queue 5 is of the domain in which most of the memory is, the queue 6 of the other one.
struct Target : ReceiverFixture {
  Target() {
    end.xrc_target = true;
    end.queues = {{5, &end.domain}, {6, &other_domain}};
    end.start({.ord = 2, .ird = 4, .infiniband = true});
  }
  Bytes data = pattern(20);
  Bytes send(std::uint32_t msn) const { return untagged(kSend, 0, msn, 0, data); }
  Bytes write(std::uint32_t stag, std::uint64_t offset) const { return tagged(kWrite, stag, offset, data); }
};

}  // namespace

TEST_CASE_METHOD(Requester, "shared queue: the name is an RDMA Write of no octets, and completes unseen", "[xrc]") {
  end.start({.crc = false, .completion = rdmap::Completion::remote, .probe_slots = 1, .infiniband = true});
  auto& choice = end.prepare(0, rdmap::WorkKind::choice, {});
  choice.signaled = false;
  choice.remote_offset = 0x123456;
  end.queue.push();
  post(1);
  while (go() > 0) {
  }
  const auto ulpdus = ulpdus_of(stream, false);
  REQUIRE(ulpdus.size() == 3);  // the Send and a probe follow
  CHECK(ulpdus[0] == naming(0x123456));
  // It does not count as a Write, of which the peer would report that it was placed.
  end.tx.take_report({rdmap::Msn{2}, 0});
  CHECK(end.sent == std::vector<Sent>{{0, Status::success}, {1, Status::success}});
}

TEST_CASE_METHOD(Requester, "shared queue: the request behind a name fails, and not the name", "[xrc]") {
  end.prepare(0, rdmap::WorkKind::choice, {}).signaled = false;
  end.queue.push();
  post(1);
  post(2);
  end.tx.flush(end.queue.head(), Status::retry_exceeded);
  CHECK(end.sent == std::vector<Sent>{{0, Status::flushed}, {1, Status::retry_exceeded}, {2, Status::flushed}});
}

TEST_CASE_METHOD(Requester, "shared queue: to a peer that is not uiw the request behind a name fails", "[xrc]") {
  end.prepare(0, rdmap::WorkKind::choice, {}).signaled = false;
  end.queue.push();
  post(1);
  REQUIRE(end.tx.fill(*batch) == rdmap::Transmitter::Fill::local_error);
  end.flush_failed();
  CHECK(end.sent == std::vector<Sent>{{0, Status::flushed}, {1, Status::local_operation}});
}

TEST_CASE_METHOD(Target, "shared queue: without a name nothing is received, and no memory accessed", "[xrc]") {
  SECTION("a Send") { refused(send(1), 1, 2, 1); }
  SECTION("a Write") { refused(write(writable, 0x10000), 1, 2, 1); }
  SECTION("a Read") { refused(read_request(1, 20, readable, 0x20000), 1, 2, 1, true, true); }
}

TEST_CASE_METHOD(Target, "shared queue: access is checked with the domain of the queue that is named", "[xrc]") {
  REQUIRE(give(naming(5)) == Verdict::go_on);
  CHECK(give(write(writable, 0x10000)) == Verdict::go_on);
  CHECK(give(read_request(1, 20, readable, 0x20000)) == Verdict::go_on);
  REQUIRE(give(naming(6)) == Verdict::go_on);
  CHECK(give(write(foreign_stag, 0)) == Verdict::go_on);
  refused(write(writable, 0x10000), 1, 1, 2);
}

TEST_CASE_METHOD(Target, "shared queue: a message for a queue that is not there is refused", "[xrc]") {
  Bytes inbox(64);
  end.post(1, {memory_segment(inbox)});
  REQUIRE(give(naming(5)) == Verdict::go_on);
  REQUIRE(give(send(1)) == Verdict::go_on);
  REQUIRE(end.received.size() == 1);
  SECTION("that never was") { REQUIRE(give(naming(7)) == Verdict::go_on); }
  SECTION("that has ended") { end.rx.leave_queue(); }
  SECTION("by a number of more than 32 bits") { REQUIRE(give(naming(0x1'00000005)) == Verdict::go_on); }
  refused(send(2), 1, 2, 1);
}

TEST_CASE_METHOD(Target, "shared queue: a name in the middle of a message is ignored", "[xrc]") {
  Bytes inbox(64);
  end.post(1, {memory_segment(inbox)});
  REQUIRE(give(naming(5)) == Verdict::go_on);
  REQUIRE(give(untagged(kSend, 0, 1, 0, data, 0x01)) == Verdict::go_on);
  REQUIRE(give(naming(7)) == Verdict::go_on);
  REQUIRE(give(untagged(kSend, 0, 1, 20, data)) == Verdict::go_on);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].length == 40);
}

TEST_CASE_METHOD(ReceiverFixture, "shared queue: to other queue pairs than XRC_RECV the name means nothing", "[xrc]") {
  end.start({.ord = 2, .ird = 2, .infiniband = true});
  REQUIRE(give(naming(7)) == Verdict::go_on);
  CHECK(give(tagged(kWrite, writable, 0x10000, pattern(20))) == Verdict::go_on);
  CHECK(end.chosen.empty());
}
