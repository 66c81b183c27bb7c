// SPDX-License-Identifier: MIT
#include "rdmap/transmit/placement_tracker.h"

#include <catch2/catch.hpp>

using namespace uiw::rdmap;
using ProbePolicy = PlacementTracker::ProbePolicy;

namespace {

// A send queue, and how much of it TCP has taken.
struct Fixture {
  SendQueue queue{64, 1, 0};
  PlacementTracker tracker{queue};
  Cursor sent;

  explicit Fixture(bool remote = true, bool reports = true) { tracker.start(remote, reports); }

  void post(WorkKind kind, std::uint32_t length = 100, bool signaled = true) {
    REQUIRE(queue.has_room(queue.tail()));
    SendWork& work = queue.at(queue.tail());
    work = {};
    work.kind = kind;
    work.length = length;
    work.signaled = signaled;
    queue.push();
    if (is_answered(kind)) {
      sent.placement.pass_request(++sent.sequence);
      return;
    }
    if (kind == WorkKind::send) sent.send_msn = next(sent.send_msn);
    if (kind == WorkKind::write) ++sent.writes;
    sent.placement.pass_work(length, signaled);
    ++sent.sequence;
  }
  void probe() {
    tracker.push_probe(sent);
    ++sent.placement.probes;
    sent.placement.pass_request(sent.sequence);
  }
  // The entries that are done, as a string of digits.
  std::string done() {
    std::string found;
    for (std::uint64_t i = queue.head(); i < queue.tail(); ++i) {
      if (queue.at(i).done) found += static_cast<char>('0' + i);
    }
    return found;
  }
};

}  // namespace

TEST_CASE("placement tracker: what is unconfirmed, and whether a completion waits for it", "[placement]") {
  Placement placement;
  CHECK_FALSE(placement.unconfirmed);
  SECTION("signaled work") {
    placement.pass_work(100, true);
    CHECK(placement.unconfirmed);
    CHECK(placement.completion_due);
  }
  SECTION("unsignaled work, and signaled local work behind it") {
    placement.pass_work(100, false);
    CHECK(placement.unconfirmed);
    CHECK_FALSE(placement.completion_due);
    placement.pass_local_work(false);
    CHECK_FALSE(placement.completion_due);
    placement.pass_local_work(true);
    CHECK(placement.completion_due);
  }
  SECTION("local work alone is done when it is carried out") {
    placement.pass_local_work(true);
    CHECK_FALSE(placement.completion_due);
  }
  SECTION("a request behind it confirms it") {
    placement.pass_work(100, true);
    placement.pass_request(7);
    CHECK_FALSE(placement.unconfirmed);
    CHECK_FALSE(placement.completion_due);
    CHECK(placement.requested_before == 7);
    CHECK(placement.requested_weight == placement.weight);
  }
}

TEST_CASE("placement tracker: when a probe is wanted, and when policy and stride allow it", "[placement]") {
  struct Row {
    const char* what;
    bool remote, stalled, signaled;
    unsigned probes;  // outstanding, before the work
    ProbePolicy policy;
    std::uint32_t length;  // of the work
    bool wanted, worthwhile;
  };
  constexpr auto at_once = ProbePolicy::at_once, if_none_due = ProbePolicy::if_none_due;
  constexpr auto by_stride = ProbePolicy::by_stride;
  constexpr std::uint32_t kLong = 1024 * 1024;  // a stride, at first
  const Row row = GENERATE(Row{"signaled work", true, false, true, 0, at_once, 100, true, true},
                           Row{"unsignaled work", true, false, false, 0, at_once, 100, false, true},
                           Row{"the local rule", false, false, true, 0, at_once, 100, false, true},
                           Row{"no answer is heard", true, true, true, 0, at_once, 100, false, true},
                           Row{"one is outstanding", true, false, true, 1, at_once, 100, false, false},
                           Row{"one is outstanding, a stride ago", true, false, true, 1, at_once, kLong, false, true},
                           Row{"a completion is due", true, false, true, 0, if_none_due, 100, true, false},
                           Row{"none is due", true, false, false, 0, if_none_due, 100, false, true},
                           Row{"by stride", true, false, true, 0, by_stride, 100, true, false},
                           Row{"by stride, a stride ago", true, false, true, 0, by_stride, kLong, true, true});
  CAPTURE(row.what);
  Fixture it(row.remote);
  it.tracker.set_receive_stalled(row.stalled);
  for (unsigned i = 0; i < row.probes; ++i) it.probe();
  it.tracker.set_probe_policy(row.policy);
  it.post(WorkKind::send, row.length, row.signaled);
  CHECK(it.tracker.probes_outstanding() == row.probes);
  CHECK(it.tracker.wants_probe(it.sent) == row.wanted);
  CHECK(it.tracker.probe_worthwhile(it.sent, it.sent) == row.worthwhile);
  CHECK(it.tracker.done_when_sent() == (!row.remote || row.stalled));
}

TEST_CASE_METHOD(Fixture, "placement tracker: a quarter of the queue is a stride too", "[placement]") {
  tracker.set_probe_policy(ProbePolicy::by_stride);
  for (int i = 0; i < 15; ++i) post(WorkKind::send, 0);
  CHECK_FALSE(tracker.probe_worthwhile(sent, sent));
  post(WorkKind::send, 0);
  CHECK(tracker.probe_worthwhile(sent, sent));
}

TEST_CASE_METHOD(Fixture, "placement tracker: the stride follows from what is under way when the program waits",
                 "[placement]") {
  tracker.set_probe_policy(ProbePolicy::by_stride);
  // Two messages under way: 8128 octets, of which a quarter is the stride.
  post(WorkKind::send, 4000);
  post(WorkKind::send, 4000);
  tracker.note_waiting(sent);
  probe();  // and grows by a quarter with each probe that nobody waits for: 2540
  post(WorkKind::send, 2540 - Placement::kWeightOfWork - 1);
  CHECK_FALSE(tracker.probe_worthwhile(sent, sent));
  post(WorkKind::send, 0);
  CHECK(tracker.probe_worthwhile(sent, sent));
  // With nothing under way it is the shortest.
  tracker.probe_answered();
  for (int i = 0; i < 4; ++i) queue.pop();
  tracker.note_completed(sent);
  tracker.note_waiting(sent);
  sent.placement.pass_request(sent.sequence);
  CHECK_FALSE(tracker.probe_worthwhile(sent, sent));
  post(WorkKind::send, 0);
  CHECK(tracker.probe_worthwhile(sent, sent));
}

TEST_CASE_METHOD(Fixture, "placement tracker: a probe that is sent again keeps its position", "[placement]") {
  post(WorkKind::send);
  const Cursor before = sent;
  CHECK_FALSE(tracker.probe_pushed(before));
  probe();
  post(WorkKind::send);
  CHECK(tracker.probe_pushed(before));
  CHECK(tracker.probe_stands_at(before));
  Cursor earlier;
  CHECK(tracker.probe_pushed(earlier));
  CHECK_FALSE(tracker.probe_stands_at(earlier));
  CHECK_FALSE(tracker.probe_pushed(sent));
}

TEST_CASE_METHOD(Fixture, "placement tracker: the answer to a probe confirms the work before it", "[placement]") {
  post(WorkKind::send);   // 0
  post(WorkKind::read);   // 1
  post(WorkKind::write);  // 2
  probe();
  post(WorkKind::send);  // 3
  probe();
  CHECK(tracker.probe_answered() == 3);
  tracker.placed_before(3, sent);
  CHECK(done() == "02");  // the Read has an answer of its own
  tracker.placed_before(1, sent);
  CHECK(done() == "02");
  CHECK(tracker.probe_answered() == 4);
  CHECK(tracker.probes_outstanding() == 0);
  SECTION("not what TCP has not taken") {
    sent.sequence = 3;
    tracker.placed_before(4, sent);
    CHECK(done() == "02");
  }
  SECTION("all") {
    tracker.placed_before(4, sent);
    CHECK(done() == "023");
  }
}

TEST_CASE("placement tracker: by the local rule an answer confirms nothing but itself", "[placement]") {
  Fixture it(false);
  it.post(WorkKind::send);
  it.tracker.placed_before(1, it.sent);
  CHECK(it.done().empty());
}

TEST_CASE_METHOD(Fixture, "placement tracker: what a peer's report confirms", "[placement]") {
  struct Row {
    const char* what;
    std::uint32_t send_msn, writes;
    std::optional<std::uint64_t> placed;  // before this entry
  };
  const auto none = std::optional<std::uint64_t>();
  // Sent were: a Send, a Write, a Read, a Write, a Send, a Write.
  const Row row = GENERATE_COPY(
      Row{"nothing", 1, 0, none},                                                                                     //
      Row{"a Send", 2, 0, 1},                                                                                         //
      Row{"the Write behind it", 2, 1, 2},                                                                            //
      Row{"a Write behind a Read", 2, 2, 4},                                                                          //
      Row{"a Send behind it", 3, 2, 5},                                                                               //
      Row{"all", 3, 3, 6},                                                                                            //
      Row{"a Write in front of which a Send is missing", 1, 1, none}, Row{"more Sends than there were", 4, 3, none},  //
      Row{"more Writes than there were", 3, 4, none}, Row{"numbers of long ago", 0x80000002, 0, none});
  CAPTURE(row.what);
  for (const WorkKind kind :
       {WorkKind::send, WorkKind::write, WorkKind::read, WorkKind::write, WorkKind::send, WorkKind::write}) {
    post(kind);
  }
  const Progress progress{Msn{row.send_msn}, row.writes};
  CHECK(tracker.take_report(progress, sent) == row.placed);
  CHECK_FALSE(tracker.take_report(progress, sent));  // no news
}

TEST_CASE_METHOD(Fixture, "placement tracker: reports go on behind work that has completed otherwise", "[placement]") {
  for (int i = 0; i < 3; ++i) post(WorkKind::send);
  tracker.note_pop(queue.at(0));
  queue.pop();
  CHECK_FALSE(tracker.take_report({Msn{2}, 0}, sent));
  CHECK(tracker.take_report({Msn{3}, 0}, sent) == 2);
  tracker.note_pop(queue.at(1));  // which the report has passed
  queue.pop();
  CHECK(tracker.take_report({Msn{4}, 0}, sent) == 3);
}

// A peer may send a report that this end has never asked for. Then nobody has followed what has completed, and the
// entries that such a report would be about are not in the queue any more.
TEST_CASE("placement tracker: a report that was not agreed on confirms nothing", "[placement]") {
  Fixture it(false, false);
  for (std::uint64_t i = 0; i < 3 * it.queue.depth(); ++i) {
    it.post(WorkKind::send);
    it.tracker.note_pop(it.queue.at(i));
    it.queue.pop();
  }
  it.post(WorkKind::send);
  CHECK_FALSE(it.tracker.take_report({it.sent.send_msn, 0}, it.sent));
  CHECK(it.done().empty());
}
