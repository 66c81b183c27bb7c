// SPDX-License-Identifier: MIT
// The remote completion rule: Sends, Writes and Immediate Data complete when the peer has answered an RDMA Read behind
// them (RFC 5040 section 5.5), which the transmitter itself sends where the program has none.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/stream_pair.h"

using namespace uiw;
using namespace uiw::test;
using Fill = rdmap::Transmitter::Fill;
using rdmap::Completion;

namespace {

constexpr std::size_t kAll = ~std::size_t{0};

// One end, whose peer is the test.
struct Requester {
  End end;
  Bytes data = pattern(100), sink = Bytes(100), result = Bytes(8);
  std::vector<Bytes> out;  // ULPDUs sent, whole ones
  Bytes stream;
  std::unique_ptr<rdmap::OutgoingBatch> batch = std::make_unique<rdmap::OutgoingBatch>();

  explicit Requester(std::uint32_t ord = 4, std::uint32_t probe_slots = 1, std::uint32_t depth = 64,
                     std::size_t mulpdu = 1440)
      : end(1, depth) {
    StreamOptions options;
    options.crc = false;
    options.mulpdu = mulpdu;
    options.ord = ord;
    options.probe_slots = probe_slots;
    options.completion = Completion::remote;
    end.start(options);
  }
  void post(std::uint64_t id, bool signaled = true) {
    end.send(id, {piece(data)});
    end.queue.at(end.queue.tail() - 1).signaled = signaled;
  }
  // One sendmsg, of which TCP takes so many octets. How many FPDUs it held.
  std::size_t go(std::size_t most = kAll) {
    if (end.tx.fill(*batch) != Fill::ready) return 0;
    const Bytes octets = gather(batch->fpdus.vectors(), most);
    end.tx.sent(*batch, octets.size());
    stream.insert(stream.end(), octets.begin(), octets.end());
    return batch->fpdus.fpdus();
  }
  // Which messages went out since the last time, a letter each: probe, read, and the others.
  std::string sent() {
    std::string text;
    for (const Bytes& ulpdu : ulpdus_of(stream, false)) {
      const auto opcode = std::to_integer<unsigned>(ulpdu[1]) & 15U;
      if (opcode == 1 || opcode == 10) CHECK(big_endian(Octets(ulpdu).subspan(10, 4)) == ++read_msn);
      if (opcode == 1) {
        text += big_endian(Octets(ulpdu).subspan(18 + 12, 4)) == 0 ? 'p' : 'r';
      } else {
        text += opcode == 0 ? 'w' : opcode == 3 ? 's' : opcode == 8 ? 'i' : opcode == 10 ? 'a' : '?';
      }
    }
    stream.clear();
    return text;
  }
  std::string all() {
    while (go() > 0) {
    }
    return sent();
  }
  // The peer answers the oldest request.
  void answer() {
    REQUIRE_FALSE(end.reads->outstanding.empty());
    end.tx.read_complete();
  }
  std::vector<std::uint64_t> good() const {
    std::vector<std::uint64_t> ids;
    for (const Sent& sent : end.sent) {
      if (sent.status == Status::success) ids.push_back(sent.id);
    }
    return ids;
  }
  std::uint64_t read_msn = 0;
};

using Ids = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("completion: work completes when the probe behind it is answered, in one batch with it", "[completion]") {
  Requester it;
  it.post(1);
  it.end.write(2, {piece(it.data)}, Stag{1}, 0);
  it.end.immediate(3, {});
  it.end.write_immediate(4, {piece(it.data)}, Stag{1}, 0, {});
  CHECK(it.go() == 6);
  CHECK(it.sent() == "swiwip");
  CHECK(it.end.sent.empty());
  CHECK_FALSE(it.end.tx.pending());
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3, 4});
  CHECK(it.all().empty());
}

TEST_CASE("completion: one probe at a time, the next covers what was sent meanwhile", "[completion]") {
  Requester it;
  it.post(1);
  CHECK(it.all() == "sp");
  for (std::uint64_t id = 2; id < 10; ++id) {
    it.post(id);
    CHECK(it.all() == "s");
  }
  it.answer();
  CHECK(it.good() == Ids{1});
  CHECK(it.end.tx.pending());
  CHECK(it.all() == "p");
  it.post(10);
  CHECK(it.all() == "s");
  it.answer();
  CHECK(it.good().size() == 9);
  CHECK(it.all() == "p");
  it.answer();
  CHECK(it.end.queue.empty());
  CHECK(it.all().empty());
}

TEST_CASE("completion: a program that comes back asks where no other completion is due", "[completion]") {
  using ProbePolicy = rdmap::Transmitter::ProbePolicy;
  Requester it;
  it.end.tx.set_probe_policy(ProbePolicy::if_none_due);
  it.post(1);
  CHECK(it.all() == "sp");
  it.post(2);
  CHECK(it.all() == "s");
  it.answer();
  CHECK(it.good() == Ids{1});
  CHECK(it.end.tx.wants_probe());
  it.post(3);
  CHECK(it.all() == "s");  // 2 is due
  SECTION("until it waits") {
    it.end.tx.set_probe_policy(ProbePolicy::at_once);
    CHECK(it.all() == "p");
    CHECK_FALSE(it.end.tx.wants_probe());
    it.answer();
    CHECK(it.end.queue.empty());
  }
  SECTION("or until nothing is due any longer") {
    it.end.read(4, {piece(it.sink)}, Stag{1}, 0);
    CHECK(it.all() == "r");
    it.answer();
    CHECK(it.end.queue.empty());
    it.post(5);
    CHECK(it.all() == "sp");
  }
  SECTION("nor where it has completions to see before") {
    it.end.tx.set_probe_policy(ProbePolicy::at_once);
    CHECK(it.all() == "p");
    it.answer();
    it.end.tx.set_probe_policy(ProbePolicy::by_stride);
    it.post(4);
    CHECK(it.all() == "s");
    CHECK(it.end.tx.wants_probe());
  }
}

TEST_CASE("completion: in a stream of work probes stand a stride apart, a few at a time", "[completion]") {
  using ProbePolicy = rdmap::Transmitter::ProbePolicy;
  // One read at a time, and room for the probes beside it.
  Requester it(1, rdmap::SharedReads::kMostProbes, 256);
  const auto stream = [&](std::uint64_t first, int count) {
    it.end.tx.set_probe_policy(ProbePolicy::by_stride);
    std::string text;
    for (int i = 0; i < count; ++i) {
      it.post(first + static_cast<unsigned>(i));
      text += it.all();
    }
    return text;
  };
  // It begins with a stride that 16 small messages do not make.
  CHECK(stream(1, 16) == std::string(16, 's'));
  // So much was under way when the program had to wait: a quarter of it is the stride, and a little more each time.
  it.end.tx.note_waiting();
  it.end.tx.set_probe_policy(ProbePolicy::at_once);
  CHECK(it.all() == "p");
  CHECK(stream(17, 40) == "sssspssssspssssssspssssssssssssssssssssssss");
  for (int i = 0; i < 4; ++i) it.answer();
  CHECK(it.good().size() == 16 + 4 + 5 + 7);
  CHECK(it.end.tx.wants_probe());
  // What the reads need stays theirs.
  it.end.read(100, {piece(it.sink)}, Stag{1}, 0);
  CHECK(it.all() == "r");
  it.answer();
  CHECK(it.end.queue.empty());
}

TEST_CASE("completion: a short queue is asked about a quarter at a time", "[completion]") {
  Requester it(4, rdmap::SharedReads::kMostProbes, 8);
  it.end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  std::string text;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    it.post(id);
    text += it.all();
  }
  CHECK(text == "sspsspsspssp");
}

TEST_CASE("completion: local work, and work that fails, does not wait for a stride to be over", "[completion]") {
  Requester it;
  it.post(1, false);
  CHECK(it.all() == "s");
  it.end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  it.post(2);
  it.end.queue.at(it.end.queue.tail() - 1).status = rdmap::Status::local_protection;
  CHECK(it.all() == "p");
  it.answer();
  CHECK(it.end.sent.back().id == 1);
}

TEST_CASE("completion: no probe overtakes a Read that TCP did not take", "[completion]") {
  Requester it(4, 1, 64, 60000);
  Bytes large(200 * 1024), readable(400 * 1024);
  it.post(1);
  it.end.write(2, {piece(large)}, Stag{1}, 0);
  it.end.read(3, {piece(it.sink)}, Stag{1}, 0);
  CHECK(it.go(0) > 2);
  REQUIRE(it.end.reads->outstanding.size() == 1);
  // The peer's Read takes so much of the next batch that the Write does not fit.
  it.end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::at_once);
  const Stag exposed = it.end.expose(readable, ddp::kRemoteRead, 0x1000);
  it.end.reads->inbound.push({rdmap::ReadRequest{Stag{9}, 0, 400 * 1024, exposed, 0x1000}});
  while (it.go() > 0) {
  }
  CHECK(it.end.reads->outstanding.size() == 1);
  CHECK(it.end.reads->outstanding.front().sequence == 2);
}

TEST_CASE("completion: that the peer's work is placed is said before anything else", "[completion]") {
  Requester it;
  it.post(1);
  CHECK(it.all() == "sp");
  it.end.reads->inbound.push({rdmap::ReadRequest{}});
  it.post(2);
  CHECK(it.go() == 2);
  const auto ulpdus = ulpdus_of(it.stream, false);
  REQUIRE(ulpdus.size() == 2);
  CHECK((std::to_integer<unsigned>(ulpdus[0][1]) & 15U) == 2);  // RDMA Read Response
  CHECK((std::to_integer<unsigned>(ulpdus[1][1]) & 15U) == 3);
}

TEST_CASE("completion: unsignaled work asks for no probe", "[completion]") {
  Requester it(4, 1, 8);
  SECTION("and is confirmed by that of signaled work behind it") {
    for (std::uint64_t id = 0; id < 7; ++id) it.post(id, false);
    CHECK(it.all() == "sssssss");
    CHECK_FALSE(it.end.tx.pending());
    CHECK(it.end.sent.empty());
    it.post(7);
    CHECK(it.all() == "sp");
    it.answer();
    CHECK(it.good().size() == 8);
  }
  SECTION("nor when the queue is full of it: a slot counts for more than an error that might come") {
    for (std::uint64_t id = 0; id < 8; ++id) it.post(id, false);
    CHECK(it.all() == "ssssssss");
    REQUIRE(it.end.queue.full());
    it.end.tx.release_unsignaled();
    CHECK(it.end.queue.empty());
    it.post(8);
    CHECK(it.all() == "sp");
    it.post(9, false);
    it.all();
    it.end.tx.release_unsignaled();
    CHECK(it.end.queue.size() == 2);
    it.answer();
    it.end.tx.release_unsignaled();
    CHECK(it.end.queue.empty());
    CHECK(it.all().empty());
  }
  SECTION("what is not with TCP is not let go of") {
    it.post(0, false);
    it.go(50);
    it.end.tx.release_unsignaled();
    CHECK(it.end.queue.size() == 1);
  }
}

TEST_CASE("completion: a read or an atomic operation behind the work is as good as a probe", "[completion]") {
  const bool atomic = GENERATE(false, true);
  Requester it;
  it.post(1);
  it.post(2);
  if (atomic) {
    it.end.atomic(3, it.result, rdmap::AtomicOpcode::fetch_add, {1, 0, 0, 0}, Stag{1}, 0);
  } else {
    it.end.read(3, {piece(it.sink)}, Stag{1}, 0);
  }
  it.post(4, false);
  CHECK(it.all() == (atomic ? "ssas" : "ssrs"));
  CHECK(it.end.sent.empty());
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3});
  it.post(5);
  CHECK(it.all() == "sp");
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3, 4, 5});
}

TEST_CASE("completion: probes and the reads that are outstanding at a time (RFC 5040 section 6.1)", "[completion]") {
  SECTION("a probe has its own slot") {
    Requester it(1, 1);
    it.end.read(1, {piece(it.sink)}, Stag{1}, 0);
    it.post(2);
    it.end.read(3, {piece(it.sink)}, Stag{1}, 0);
    CHECK(it.all() == "rsp");
    it.answer();
    CHECK(it.all() == "r");
    it.answer();
    CHECK(it.good() == Ids{1, 2});
    it.answer();
    CHECK(it.good() == Ids{1, 2, 3});
    CHECK(it.end.tx.limit_ord(9) == 1);
  }
  SECTION("or takes its turn") {
    Requester it(1, 0);
    it.end.read(1, {piece(it.sink)}, Stag{1}, 0);
    it.post(2);
    CHECK(it.all() == "rs");
    it.answer();
    CHECK(it.all() == "p");
    it.end.read(3, {piece(it.sink)}, Stag{1}, 0);
    CHECK(it.all().empty());
    it.answer();
    CHECK(it.good() == Ids{1, 2});
    CHECK(it.all() == "r");
    CHECK(it.end.tx.limit_ord(9) == 1);
  }
  SECTION("a peer that takes none: the local rule") {
    Requester it(0, 0);
    CHECK(it.end.tx.completion() == Completion::local);
    it.post(1);
    CHECK(it.all() == "s");
    CHECK(it.good() == Ids{1});
  }
  SECTION("a peer that takes one, and the program none") {
    Requester it(0, 1);
    it.post(1);
    CHECK(it.all() == "sp");
    it.end.read(2, {piece(it.sink)}, Stag{1}, 0);
    it.answer();
    CHECK(it.end.tx.fill(*it.batch) == Fill::local_error);
  }
}

TEST_CASE("completion: a probe that TCP did not take keeps its place", "[completion]") {
  for (std::size_t most = 0; most < 400; most += 7) {
    Requester it;
    it.post(1);
    CHECK(it.go(most) == 2);
    // It is in front of this in what the receiver expects.
    it.end.read(2, {piece(it.sink)}, Stag{1}, 0);
    it.post(3);
    CHECK(it.all() == "sprs");
    it.answer();
    CHECK(it.good() == Ids{1});
    CHECK(it.all() == "p");
    it.answer();
    CHECK(it.good() == Ids{1, 2});
    it.answer();
    CHECK(it.good() == Ids{1, 2, 3});
  }
}

TEST_CASE("completion: long messages do not keep a probe from its place", "[completion]") {
  Requester it(4, 1, 64, 65535);
  const Bytes large = pattern(700'000);
  for (std::uint64_t id = 0; id < 4; ++id) it.end.write(id, {piece(large)}, Stag{1}, 0);
  it.go();
  while (it.end.sent.empty()) {
    REQUIRE(it.go() > 0);
    if (!it.end.reads->outstanding.empty()) it.answer();
  }
  CHECK(it.end.queue.size() == 3);  // and not all of them were sent before the first completes
  CHECK(it.end.tx.pending());
}

TEST_CASE("completion: network fences wait for reads alone, local ones for all (Verbs draft section 8.2.2.2)",
          "[completion]") {
  Requester it;
  const Stag window = it.end.stags.add_window(&it.end.domain, ddp::WindowType::type2).value();
  const Stag region = it.end.expose(it.sink, ddp::kLocalWrite | ddp::kBindWindows, 0x1000);
  const ddp::Binding binding{window, region, 0x1000, 10, ddp::kRemoteRead, ddp::WindowType::type2, false};
  SECTION("a Send with a fence behind a Send") {
    it.post(1);
    it.post(2);
    it.end.queue.at(1).fence = true;
    CHECK(it.all() == "ssp");
  }
  SECTION("a probe does not count as a read") {
    it.post(1);
    CHECK(it.all() == "sp");
    it.post(2);
    it.end.queue.at(1).fence = true;
    CHECK(it.all() == "s");
  }
  SECTION("local work without a fence is done when all is with TCP, and completes in its turn") {
    const bool signaled = GENERATE(false, true);
    it.post(1, signaled);
    it.end.bind(2, binding);
    it.all();
    CHECK(it.end.carried == Ids{2});
    CHECK(it.end.sent.empty());
    it.answer();
    CHECK(it.good() == Ids{1, 2});
  }
  SECTION("alone it needs no probe") {
    it.end.bind(2, binding);
    CHECK(it.all().empty());
    CHECK(it.good() == Ids{2});
  }
  SECTION("with a fence it waits for unsignaled work too") {
    it.post(1, false);
    it.end.bind(2, binding, true);
    CHECK(it.all() == "sp");
    CHECK(it.end.carried.empty());
    it.answer();
    CHECK(it.all().empty());
    CHECK(it.good() == Ids{1, 2});
  }
}

TEST_CASE("completion: what stands before work that fails here completes first", "[completion]") {
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
  CHECK(it.end.sent == std::vector<Sent>{{1, Status::success},
                                         {2, Status::success},
                                         {3, status},
                                         {4, Status::flushed}});
}

TEST_CASE("completion: flush() lets go of unsignaled work that is with TCP", "[completion]") {
  Requester it;
  it.post(1, false);
  it.post(2);
  it.post(3, false);
  it.all();
  it.post(4, false);
  CHECK(it.end.tx.unfinished());
  SECTION("nobody's fault") {
    it.end.tx.flush(std::nullopt, Status::flushed);
    CHECK(it.end.sent == std::vector<Sent>{{1, Status::success},
                                           {2, Status::flushed},
                                           {3, Status::flushed},
                                           {4, Status::flushed}});
  }
  SECTION("the connection is gone") {
    it.all();
    CHECK_FALSE(it.end.tx.unfinished());
    it.end.tx.release_unsignaled();
    CHECK(it.end.tx.oldest_sent() == 1);
    it.end.tx.flush(it.end.tx.oldest_sent(), Status::retry_exceeded);
    CHECK(it.end.sent == std::vector<Sent>{{1, Status::success},
                                           {2, Status::retry_exceeded},
                                           {3, Status::flushed},
                                           {4, Status::flushed}});
  }
  SECTION("unless it is the one that failed") {
    it.end.tx.flush(0, Status::remote_access);
    CHECK(it.end.sent.front() == Sent{1, Status::remote_access});
    CHECK(it.end.sent.size() == 4);
  }
}

TEST_CASE("completion: a Terminate confirms what stands before the work it is about", "[completion]") {
  Requester it;
  it.post(100);                                                        // 0
  CHECK(it.all() == "sp");
  it.end.write(101, {piece(it.data)}, Stag{0x10}, 0x1000);             // 1
  it.end.read(102, {piece(it.sink)}, Stag{1}, 0);                      // 2: read MSN 2, behind the probe
  it.end.write(103, {piece(it.data)}, Stag{0x10}, 0x1000);             // 3: as the one before
  it.end.atomic(104, it.result, rdmap::AtomicOpcode::fetch_add, {1, 0, 0, 0}, Stag{1}, 0);  // 4: read MSN 3
  it.end.immediate(105, {});                                           // 5: send MSN 2
  it.post(106);                                                        // 6: send MSN 3
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
  SECTION("a Send") {
    CHECK(ends(about_untagged(0, 1), 0));
  }
  SECTION("a Write") {
    CHECK(ends(about_write(0x10, 0x1000), 1));
  }
  SECTION("a Read") {
    CHECK(ends(about_untagged(1, 2), 2));
  }
  SECTION("a Write that overlaps another") {
    it.end.write(107, {piece(it.data)}, Stag{0x10}, 0x1001);
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
  SECTION("the probe: no work at all") {
    CHECK(it.end.tx.find_terminated(about_untagged(1, 1)) == std::nullopt);
  }
}

TEST_CASE("completion: where no answer can be heard the local rule holds meanwhile", "[completion]") {
  Requester it;
  it.post(1);
  it.all();
  it.post(2);
  it.go(50);
  it.end.tx.set_receive_stalled(true);
  CHECK(it.good() == Ids{1});
  it.post(3);
  CHECK(it.all() == "ss");
  CHECK(it.good() == Ids{1, 2, 3});
  it.post(4);
  it.end.tx.set_receive_stalled(false);
  CHECK(it.all() == "s");
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3});
  CHECK(it.all() == "p");
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3, 4});
}

TEST_CASE("completion: an answer to what was not sent confirms nothing", "[completion]") {
  Requester it;
  it.post(1);
  CHECK(it.go(50) == 2);
  it.answer();
  CHECK(it.end.sent.empty());
  CHECK(it.all() == "sp");
  CHECK(it.end.sent.empty());
}

TEST_CASE("completion: a peer without a receive confirms what came before the message that waits", "[completion]") {
  Requester it;
  for (std::uint64_t id = 1; id <= 4; ++id) it.post(id);
  CHECK(it.all() == "ssssp");
  it.end.tx.peer_dealt_with({rdmap::Msn{3}, 0});
  CHECK(it.good() == Ids{1, 2});
  it.end.tx.peer_dealt_with({rdmap::Msn{2}, 0});  // it has said more already
  it.end.tx.peer_dealt_with({rdmap::Msn{9}, 0});  // of what was never sent
  it.end.tx.peer_dealt_with({rdmap::Msn{0x80000000}, 0});
  it.end.tx.peer_dealt_with({rdmap::Msn{5}, 1});
  CHECK(it.good() == Ids{1, 2});
  it.post(5);
  CHECK(it.go(50) == 1);
  it.end.tx.peer_dealt_with({rdmap::Msn{5}, 0});  // which is half sent
  CHECK(it.good() == Ids{1, 2, 3, 4});
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3, 4});
  CHECK(it.all() == "sp");
  it.answer();
  CHECK(it.good() == Ids{1, 2, 3, 4, 5});
}

// What a requester has sent is confirmed up to the last Send or Write that the peer has dealt with.
TEST_CASE("completion: a peer that leaves confirms Sends and Writes, by their numbers", "[completion]") {
  Requester it;
  it.post(1);
  it.end.write(2, {piece(it.data)}, Stag{1}, 0);
  it.end.write(3, {piece(it.data)}, Stag{1}, 0);
  it.post(4);
  it.end.write(5, {piece(it.data)}, Stag{1}, 0);
  CHECK(it.all() == "swwswp");
  SECTION("nothing") {
    it.end.tx.peer_dealt_with({rdmap::Msn{1}, 0});
    CHECK(it.good().empty());
  }
  SECTION("a Write behind a Send") {
    it.end.tx.peer_dealt_with({rdmap::Msn{2}, 1});
    CHECK(it.good() == Ids{1, 2});
  }
  SECTION("a Send behind Writes") {
    it.end.tx.peer_dealt_with({rdmap::Msn{3}, 2});
    CHECK(it.good() == Ids{1, 2, 3, 4});
  }
  SECTION("all") {
    it.end.tx.peer_dealt_with({rdmap::Msn{3}, 3});
    CHECK(it.good() == Ids{1, 2, 3, 4, 5});
  }
  SECTION("more Writes than there were") {
    it.end.tx.peer_dealt_with({rdmap::Msn{3}, 4});
    CHECK(it.good().empty());
  }
}

TEST_CASE("completion: that there is no receive is told once, and octet by octet the same", "[completion]") {
  const std::size_t taken = GENERATE(0U, 1U, 10U, 19U);
  Requester it;
  it.end.tx.tell_not_ready({rdmap::Msn{7}, 3});
  if (taken > 0) it.go(taken);
  it.end.tx.tell_not_ready({rdmap::Msn{8}, 3});  // the first is not out yet
  while (it.go() > 0) {
  }
  const auto ulpdus = ulpdus_of(it.stream, false);
  REQUIRE(ulpdus.size() == 1);
  // An RDMA Write of no octets to STag 0, with the lower reserved bit.
  CHECK(ulpdus[0] == Wire().u8(0xC1).u8(0x50).u32(0).u32(3).u32(7).bytes());
  it.end.tx.tell_not_ready({rdmap::Msn{8}, 3});
  CHECK(it.go() == 1);
}

TEST_CASE("completion: a message that may be an answer stands behind the word that what it answers is placed",
          "[completion]") {
  const bool crc = GENERATE(false, true);
  const bool infiniband = GENERATE(false, true);
  End a(1), b(2);
  StreamOptions options;
  options.crc = crc;
  (infiniband ? options.infiniband : options.notices) = true;
  options.completion = Completion::remote;
  options.probe_slots = 1;
  a.start(options);
  if (!infiniband) options.completion = Completion::local;  // of its own work
  b.start(options);
  Pair pair(a, b, GENERATE(1U, 2U, 3U));
  a.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  Bytes data = pattern(100), in(100), in_b(100);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    a.post(id, {piece(in)});
    b.post(id, {piece(in_b)});
    a.send(id, {piece(data)});
  }
  // What confirms work, and the receive of an answer, in the order in which they come.
  std::uint64_t answered = 0;
  for (int i = 0; i < 10'000 && a.received.size() < 3; ++i) {
    pair.step();
    for (; answered < b.received.size(); ++answered) b.send(10 + answered, {piece(data)});
    REQUIRE(a.sent.size() >= a.received.size());
  }
  CHECK(a.received.size() == 3);
  CHECK(a.sent == std::vector<Sent>{{1, Status::success}, {2, Status::success}, {3, Status::success}});
  CHECK_FALSE(a.rx.peer_waits());
}

TEST_CASE("completion: of what was placed the peer is told once, and only in front of what takes a receive", "[completion]") {
  Requester it(4, 1, 64, 1440);
  End& end = it.end;
  StreamOptions options;
  options.crc = false;
  options.infiniband = true;
  end.start(options);
  const auto told = [&] {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> found;  // STag, tagged offset
    while (it.go() > 0) {
    }
    for (const Bytes& ulpdu : ulpdus_of(it.stream, false)) {
      if (ulpdu[1] == std::byte{0x50}) {
        found.emplace_back(big_endian(Octets(ulpdu).subspan(2, 4)), big_endian(Octets(ulpdu).subspan(6, 8)));
      }
    }
    it.stream.clear();
    return found;
  };
  using Told = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  it.post(1);
  CHECK(told().empty());
  end.reads->dealt_with = 3;  // two Sends
  end.write(2, {piece(it.data)}, Stag{1}, 0);
  CHECK(told().empty());
  it.post(3);
  it.post(4);
  CHECK(told() == Told{{1, 3}});
  end.reads->dealt_with = std::uint64_t{5} << 32 | 3;  // and five Writes
  it.post(5);
  CHECK(told() == Told{{1, std::uint64_t{5} << 32 | 3}});
  // An answer says so too.
  end.reads->dealt_with = std::uint64_t{5} << 32 | 4;
  end.reads->inbound.push({rdmap::ReadRequest{}, {rdmap::Msn{4}, 5}});
  it.post(6);
  CHECK(told().empty());
  // With what is due anyway, in order.
  end.reads->dealt_with = std::uint64_t{5} << 32 | 6;
  end.tx.tell_not_ready({rdmap::Msn{5}, 5});
  it.post(7);
  CHECK(told() == Told{{0, std::uint64_t{5} << 32 | 5}, {1, std::uint64_t{5} << 32 | 6}});
}

TEST_CASE("completion: a peer that says the same again and again is heard in constant time", "[completion]") {
  // Were each of them to walk over the queue, this would take until the time of the test is over.
  constexpr std::uint32_t kDepth = 32768, kTimes = 1'000'000;
  Requester it(4, 1, kDepth);
  it.end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  for (std::uint64_t id = 0; id < kDepth; ++id) it.post(id);
  while (it.go() > 0) {
  }
  unsigned news = 0;
  for (std::uint32_t i = 0; i < kTimes; ++i) news += it.end.tx.peer_dealt_with({rdmap::Msn{2}, 0}) ? 1 : 0;
  CHECK(news == 1);
  // One more each time.
  for (std::uint32_t i = 3; i <= kDepth; ++i) news += it.end.tx.peer_dealt_with({static_cast<rdmap::Msn>(i), 0}) ? 1 : 0;
  CHECK(news == kDepth - 1);
  CHECK(it.end.sent.size() == kDepth - 1);
}

TEST_CASE("completion: an end whose work completes once it is placed asks a peer that knows it to acknowledge", "[completion]") {
  const bool remote = GENERATE(true, false), notices = GENERATE(true, false);
  Requester it(4, 1, 64, 1440);
  End& end = it.end;
  StreamOptions options;
  options.crc = false;
  options.notices = notices;
  options.completion = remote ? Completion::remote : Completion::local;
  end.start(options);
  it.post(1);
  while (it.go() > 0) {
  }
  const std::vector<Bytes> sent = ulpdus_of(it.stream, false);
  REQUIRE(sent.size() >= 1);
  // In front of its first message; an RDMA Write of no octets to STag 2.
  const bool asked = sent[0] == Wire().u8(0xC1).u8(0x50).u32(2).u64(std::uint64_t{1}).bytes();
  CHECK(asked == (remote && notices));

  // It acknowledges itself only once it is asked.
  it.stream.clear();
  end.reads->dealt_with = 3;
  const auto acknowledged = [&](std::uint64_t id) {
    it.post(id);
    while (it.go() > 0) {
    }
    bool found = false;
    for (const Bytes& ulpdu : ulpdus_of(it.stream, false)) found |= ulpdu == Wire().u8(0xC1).u8(0x50).u32(1).u64(3).bytes();
    it.stream.clear();
    return found;
  };
  CHECK_FALSE(acknowledged(2));
  const Bytes asking = Wire().u8(0xC1).u8(0x50).u32(2).u64(1).bytes();
  CHECK(end.rx.ulpdu(asking, 0, asking.size()) == mpa::UlpduSink::Verdict::go_on);
  CHECK(acknowledged(3) == notices);
}

TEST_CASE("completion: only a peer that keeps to InfiniBand's rules is heard when it says that it has no receive",
          "[completion]") {
  const bool infiniband = GENERATE(true, false);
  End end(1);
  StreamOptions options;
  options.infiniband = infiniband;
  end.start(options);
  const auto give = [&](const Bytes& ulpdu) {
    CHECK(end.rx.ulpdu(ulpdu, 0, ulpdu.size()) == mpa::UlpduSink::Verdict::go_on);
  };
  give(Wire().u8(0xC1).u8(0x40).u32(0).u64(7).bytes());  // a Write of nothing
  CHECK(end.notices == 0);
  give(Wire().u8(0xC1).u8(0x50).u32(0).u64(7).bytes());
  CHECK(end.notices == (infiniband ? 1 : 0));
  CHECK(end.rx.peer_waits() == infiniband);
  give(Wire().u8(0xC1).u8(0x50).u32(1).u64(8).bytes());  // that something was placed, and no more
  CHECK(end.notices == (infiniband ? 2 : 0));
}
