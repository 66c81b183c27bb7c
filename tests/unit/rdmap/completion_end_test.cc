// SPDX-License-Identifier: MIT
// The remote completion rule where work fails or the stream ends: what is known to be placed completes, and what comes
// after it does not.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/requester.h"

using namespace uiw;
using namespace uiw::test;
using Fill = rdmap::Transmitter::Fill;

TEST_CASE("completion: work in front of work that fails locally completes first", "[completion]") {
  Requester it;
  Status status = Status::local_protection;
  it.post(1);
  it.post(2, false);
  SECTION("when it is posted") {
    it.end.prepare(3, WorkKind::write, {}).status = status;
    it.end.queue.push();
  }
  SECTION("when it is carried out") {
    status = Status::window_bind;
    it.end.bind(3, {});
  }
  it.post(4);
  CHECK(it.all() == "ssp");
  CHECK(it.end.sent.empty());
  it.answer();
  REQUIRE(it.end.tx.fill(*it.batch) == Fill::local_error);
  it.end.flush_failed();
  CHECK(it.end.sent ==
        std::vector<Sent>{{1, Status::success}, {2, Status::success}, {3, status}, {4, Status::flushed}});
}

TEST_CASE("completion: flush() completes unsignaled work that TCP has taken", "[completion]") {
  Requester it;
  it.post(1, false);
  it.post(2);
  it.post(3, false);
  it.all();
  it.post(4, false);
  CHECK(it.end.tx.unfinished());
  SECTION("nobody's fault") {
    it.end.tx.flush(std::nullopt, Status::flushed);
    CHECK(it.end.sent ==
          std::vector<Sent>{{1, Status::success}, {2, Status::flushed}, {3, Status::flushed}, {4, Status::flushed}});
  }
  SECTION("the connection is gone") {
    it.all();
    CHECK_FALSE(it.end.tx.unfinished());
    it.end.tx.release_unsignaled();
    CHECK(it.end.tx.oldest_sent() == 1);
    it.end.tx.flush(it.end.tx.oldest_sent(), Status::retry_exceeded);
    CHECK(it.end.sent ==
          std::vector<Sent>{
              {1, Status::success}, {2, Status::retry_exceeded}, {3, Status::flushed}, {4, Status::flushed}});
  }
  SECTION("unless it is the one that failed") {
    it.end.tx.flush(0, Status::remote_access);
    CHECK(it.end.sent.front() == Sent{1, Status::remote_access});
    CHECK(it.end.sent.size() == 4);
  }
}

TEST_CASE("completion: a Terminate confirms the work in front of the work that it names", "[completion]") {
  Requester it;
  it.post(100);  // 0
  CHECK(it.all() == "sp");
  it.end.write(101, {memory_segment(it.data)}, Stag{0x10}, 0x1000);  // 1
  it.end.read(102, {memory_segment(it.sink)}, Stag{1}, 0);           // 2: read MSN 2, behind the probe
  it.end.write(103, {memory_segment(it.data)}, Stag{0x10}, 0x1000);  // 3: as the one before
  it.end.atomic(104, it.result, rdmap::AtomicOpcode::fetch_add, {1, 0, 0, 0}, Stag{1}, 0);  // 4: read MSN 3
  it.end.immediate(105, {});                                                                // 5: send MSN 2
  it.post(106);                                                                             // 6: send MSN 3
  it.all();
  const auto ends = [&](const rdmap::Terminate& terminate, std::uint64_t expected) {
    const auto culprit = it.end.tx.find_terminated(terminate);
    REQUIRE(culprit == expected);
    it.end.tx.placed_before(*culprit);
    it.end.tx.flush(culprit, Status::remote_access);
    REQUIRE(it.end.sent.size() == 7);
    CHECK(it.end.sent[expected] == Sent{100 + expected, Status::remote_access});
    for (std::uint64_t i = expected + 1; i < 7; ++i) CHECK(it.end.sent[i] == Sent{100 + i, Status::flushed});
    return it.good().size() == expected;
  };
  SECTION("a Send") { CHECK(ends(about_untagged(0, 1), 0)); }
  SECTION("a Write") { CHECK(ends(about_write(0x10, 0x1000), 1)); }
  SECTION("a Read") { CHECK(ends(about_untagged(1, 2), 2)); }
  SECTION("a Write that overlaps another") {
    it.end.write(107, {memory_segment(it.data)}, Stag{0x10}, 0x1001);
    it.all();
    rdmap::Terminate terminate = about_write(0x10, 0x1001);
    terminate.segment_length = 14 + 100;
    CHECK(it.end.tx.find_terminated(terminate) == 7);
  }
  SECTION("the second Write, since the answer to the Read says that the first was good") {
    it.answer();
    it.answer();
    CHECK(ends(about_write(0x10, 0x1063), 3));
  }
  SECTION("an atomic operation behind") {
    it.answer();
    it.answer();
    CHECK(ends(about_untagged(1, 3), 4));
  }
  SECTION("Immediate Data, and a Send") {
    const bool last = GENERATE(false, true);
    for (int i = 0; i < 3; ++i) it.answer();
    CHECK(ends(about_untagged(0, last ? 3 : 2), last ? 6 : 5));
  }
  SECTION("the probe: no work at all") { CHECK(it.end.tx.find_terminated(about_untagged(1, 1)) == std::nullopt); }
}
