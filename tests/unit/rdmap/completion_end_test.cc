// SPDX-License-Identifier: MIT
// The remote completion rule where work fails or the stream ends: what is known to be placed completes, and what comes
// after it does not.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/requester.h"

using namespace uiw;
using namespace uiw::test;
using Fill = rdmap::Transmitter::Fill;

TEST_CASE_METHOD(Requester, "completion: work in front of work that fails locally completes first", "[completion]") {
  Status status = Status::local_protection;
  post(1);
  post(2, false);
  SECTION("when it is posted") {
    end.prepare(3, WorkKind::write, {}).status = status;
    end.queue.push();
  }
  SECTION("when it is carried out") {
    status = Status::window_bind;
    end.bind(3, {});
  }
  post(4);
  CHECK(all() == "ssp");
  CHECK(end.sent.empty());
  answer();
  REQUIRE(end.tx.fill(*batch) == Fill::local_error);
  end.flush_failed();
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}, {2, Status::success}, {3, status}, {4, Status::flushed}});
}

TEST_CASE_METHOD(Requester, "completion: flush() completes unsignaled work that TCP has taken", "[completion]") {
  post(1, false);
  post(2);
  post(3, false);
  all();
  post(4, false);
  CHECK(end.tx.unfinished());
  SECTION("nobody's fault") {
    end.tx.flush(std::nullopt, Status::flushed);
    CHECK(end.sent ==
          std::vector<Sent>{{1, Status::success}, {2, Status::flushed}, {3, Status::flushed}, {4, Status::flushed}});
  }
  SECTION("the connection is gone") {
    all();
    CHECK_FALSE(end.tx.unfinished());
    end.tx.release_unsignaled();
    CHECK(end.tx.oldest_sent() == 1);
    end.tx.flush(end.tx.oldest_sent(), Status::retry_exceeded);
    CHECK(end.sent ==
          std::vector<Sent>{
              {1, Status::success}, {2, Status::retry_exceeded}, {3, Status::flushed}, {4, Status::flushed}});
  }
  SECTION("unless it is the one that failed") {
    end.tx.flush(0, Status::remote_access);
    CHECK(end.sent.front() == Sent{1, Status::remote_access});
    CHECK(end.sent.size() == 4);
  }
}

TEST_CASE_METHOD(Requester, "completion: a Terminate confirms the work in front of the work that it names",
                 "[completion]") {
  post(100);  // 0
  CHECK(all() == "sp");
  end.write(101, {memory_segment(data)}, Stag{0x10}, 0x1000);                         // 1
  end.read(102, {memory_segment(sink)}, Stag{1}, 0);                                  // 2: read MSN 2, behind the probe
  end.write(103, {memory_segment(data)}, Stag{0x10}, 0x1000);                         // 3: as the one before
  end.atomic(104, result, rdmap::AtomicOpcode::fetch_add, {1, 0, 0, 0}, Stag{1}, 0);  // 4: read MSN 3
  end.immediate(105, {});                                                             // 5: send MSN 2
  post(106);                                                                          // 6: send MSN 3
  all();
  const auto ends = [&](const rdmap::Terminate& terminate, std::uint64_t expected) {
    const auto culprit = end.tx.find_terminated(terminate);
    REQUIRE(culprit == expected);
    end.tx.placed_before(*culprit);
    end.tx.flush(culprit, Status::remote_access);
    REQUIRE(end.sent.size() == 7);
    CHECK(end.sent[expected] == Sent{100 + expected, Status::remote_access});
    for (std::uint64_t i = expected + 1; i < 7; ++i) CHECK(end.sent[i] == Sent{100 + i, Status::flushed});
    return good().size() == expected;
  };
  SECTION("a Send") { CHECK(ends(about_untagged(0, 1), 0)); }
  SECTION("a Write") { CHECK(ends(about_write(0x10, 0x1000), 1)); }
  SECTION("a Read") { CHECK(ends(about_untagged(1, 2), 2)); }
  SECTION("a Write that overlaps another") {
    end.write(107, {memory_segment(data)}, Stag{0x10}, 0x1001);
    all();
    rdmap::Terminate terminate = about_write(0x10, 0x1001);
    terminate.segment_length = 14 + 100;
    CHECK(end.tx.find_terminated(terminate) == 7);
  }
  SECTION("the second Write, since the answer to the Read says that the first was good") {
    answer();
    answer();
    CHECK(ends(about_write(0x10, 0x1063), 3));
  }
  SECTION("an atomic operation behind") {
    answer();
    answer();
    CHECK(ends(about_untagged(1, 3), 4));
  }
  SECTION("Immediate Data, and a Send") {
    const bool last = GENERATE(false, true);
    for (int i = 0; i < 3; ++i) answer();
    CHECK(ends(about_untagged(0, last ? 3 : 2), last ? 6 : 5));
  }
  SECTION("the probe: no work at all") { CHECK(end.tx.find_terminated(about_untagged(1, 1)) == std::nullopt); }
}
