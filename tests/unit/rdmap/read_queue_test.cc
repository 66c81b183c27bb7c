// SPDX-License-Identifier: MIT
#include "rdmap/read_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace uiw::rdmap;

namespace {

void post(SendQueue& queue, WorkKind kind) {
  const std::uint64_t sequence = queue.tail();
  REQUIRE(queue.has_room(sequence));
  queue.at(sequence) = {};
  queue.at(sequence).kind = kind;
  queue.push();
}

}  // namespace

// A Read has room up to the ORD, and a probe where no slot is left that a Read may need.
TEST_CASE("read queue: room for Reads and for probes", "[read_queue]") {
  struct Row {
    std::uint32_t ord, agreed, reads, probes;
    bool read, probe;
    bool ready_to_receive = false;  // a Read as ready-to-receive message has not been answered
  };
  const Row row = GENERATE(Row{2, 2, 0, 0, true, true},    // no slots for probes alone: one takes a Read's
                           Row{2, 2, 1, 0, true, true},    //
                           Row{2, 2, 2, 0, false, false},  // and has none where all are taken
                           Row{2, 2, 0, 1, true, false},   // a second one does not
                           Row{2, 2, 1, 1, false, false},  // Reads wait for a probe's slot
                           Row{2, 6, 0, 0, true, true},    // four slots beyond the Reads'
                           Row{2, 6, 1, 3, true, true},    //
                           Row{2, 6, 2, 3, false, true},   //
                           Row{2, 6, 0, 4, true, false},   // the most probes
                           Row{2, 4, 0, 2, true, false},   // two slots beyond
                           Row{2, 4, 1, 1, true, true},    //
                           Row{2, 4, 2, 0, false, true},   // ORD
                           Row{0, 4, 0, 0, true, true},    // no depth: a Read is let through, and fails
                           Row{0, 0, 0, 0, true, false},   // the peer takes no Reads
                           // The ready-to-receive message takes one of the agreed places (RFC 5040 section 6.1).
                           Row{1, 1, 0, 0, false, false, true},  //
                           Row{2, 2, 0, 0, true, true, true},    //
                           Row{2, 2, 1, 0, false, false, true},  //
                           Row{2, 6, 1, 2, true, true, true},    //
                           Row{2, 6, 1, 3, true, false, true},   //
                           Row{2, 6, 2, 0, false, true, true},   //
                           Row{0, 0, 0, 0, false, false, true});
  CAPTURE(row.ord, row.agreed, row.reads, row.probes);
  SharedReads shared(row.agreed, 0);
  SendQueue sends(8, 1, 0);
  ReadQueue reads;
  reads.start(shared, row.ord, 0);
  CHECK(reads.agreed() == row.agreed);
  if (row.ready_to_receive) reads.push_ready_to_receive();
  for (std::uint32_t i = 0; i < row.reads; ++i) {
    post(sends, WorkKind::read);
    reads.push(sends, i, Msn{i + 1});
  }
  for (std::uint32_t i = 0; i < row.probes; ++i) reads.push_probe();
  CHECK(reads.outstanding() == row.reads);
  CHECK(shared.outstanding.size() == row.reads + row.probes + (row.ready_to_receive ? 1 : 0));
  CHECK(reads.has_room(row.probes) == row.read);
  CHECK(reads.has_room_for_probe(row.probes) == row.probe);
  // Its answer frees the place.
  if (!row.ready_to_receive) return;
  CHECK(reads.pop() == SharedReads::kReadyToReceive);
  CHECK(reads.outstanding() == row.reads);
  CHECK(reads.has_room(row.probes) == (row.reads < std::max(row.ord, 1U)));
}

TEST_CASE("read queue: each Read and atomic operation is pushed once, however often it is built", "[read_queue]") {
  SharedReads shared(4, 0);
  SendQueue sends(8, 1, 0);
  ReadQueue reads;
  reads.start(shared, 4, 0);
  for (const WorkKind kind : {WorkKind::write, WorkKind::read, WorkKind::send, WorkKind::atomic, WorkKind::send}) {
    post(sends, kind);
  }
  CHECK_FALSE(reads.is_followed(0));
  reads.push(sends, 1, Msn{1});
  reads.push(sends, 1, Msn{9});
  CHECK(sends.at(1).request_msn == Msn{1});
  CHECK(reads.is_followed(0));
  CHECK(reads.is_followed(1));
  CHECK_FALSE(reads.is_followed(2));
  reads.push(sends, 3, Msn{2});
  CHECK(reads.is_followed(2));
  CHECK(reads.is_followed(3));
  CHECK_FALSE(reads.is_followed(4));
  CHECK(reads.outstanding() == 2);
  REQUIRE(shared.outstanding.size() == 2);
  CHECK_FALSE(shared.outstanding.at(0).atomic);
  CHECK(shared.outstanding.at(1).atomic);
}

TEST_CASE("read queue: answers come in the order of the requests", "[read_queue]") {
  SharedReads shared(4, 0);
  SendQueue sends(8, 1, 0);
  ReadQueue reads;
  reads.start(shared, 2, 0);
  post(sends, WorkKind::read);
  reads.push_ready_to_receive();
  reads.push_ready_to_receive();  // built again
  reads.push(sends, 0, Msn{2});
  reads.push_probe();
  CHECK(reads.outstanding() == 1);
  CHECK(reads.pop() == SharedReads::kReadyToReceive);
  CHECK(reads.outstanding() == 1);
  CHECK(reads.pop() == 0);
  CHECK(reads.outstanding() == 0);
  CHECK(reads.pop() == SharedReads::kProbe);
  CHECK(shared.outstanding.empty());
}

TEST_CASE("read queue: ORD can be lowered, and raised to what was agreed on (Verbs draft 6.5)", "[read_queue]") {
  SharedReads shared(8, 0);
  SendQueue sends(8, 1, 0);
  ReadQueue reads;
  reads.start(shared, 4, 0);
  CHECK(reads.limit_ord(2) == 2);
  post(sends, WorkKind::read);
  post(sends, WorkKind::read);
  reads.push(sends, 0, Msn{1});
  reads.push(sends, 1, Msn{2});
  CHECK_FALSE(reads.has_room(0));
  CHECK(reads.limit_ord(9) == 4);
  CHECK(reads.has_room(0));
  CHECK(reads.limit_ord(1) == 1);  // those that are outstanding stay
  CHECK(reads.outstanding() == 2);
}

TEST_CASE("read queue: which of the peer's requests are answered", "[read_queue]") {
  SharedReads shared(0, 2);
  CHECK_FALSE(shared.answers_unsent());
  shared.inbound.push({ReadRequest{}, {}});
  CHECK(shared.answers_unsent());
  CHECK(SharedReads::is_probe(shared.inbound.at(0)));
  shared.inbound.push({ReadRequest{Stag{1}, 0, 1, Stag{2}, 0}, {}});
  CHECK_FALSE(SharedReads::is_probe(shared.inbound.at(1)));
  shared.note_answering(2);
  CHECK_FALSE(shared.answers_unsent());
  shared.note_answering(1);  // a batch that was taken back is built again
  CHECK_FALSE(shared.answers_unsent());
}
