// SPDX-License-Identifier: MIT
// The remote completion rule: Sends, Writes and Immediate Data complete when the peer has answered an RDMA Read behind
// them (RFC 5040 section 5.5), which the transmitter itself sends where the program has none.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/requester.h"

using namespace uiw;
using namespace uiw::test;
using Fill = rdmap::Transmitter::Fill;
using rdmap::Completion;

TEST_CASE_METHOD(Requester, "completion: work completes when the probe behind it is answered, in one batch with it",
                 "[completion]") {
  post(1);
  end.write(2, {memory_segment(data)}, Stag{1}, 0);
  end.immediate(3, {});
  end.write_immediate(4, {memory_segment(data)}, Stag{1}, 0, {});
  CHECK(go() == 6);
  CHECK(sent() == "swiwip");
  CHECK(end.sent.empty());
  CHECK_FALSE(end.tx.pending());
  answer();
  CHECK(good() == Ids{1, 2, 3, 4});
  CHECK(all().empty());
}

TEST_CASE_METHOD(Requester, "completion: one probe at a time, the next covers what was sent meanwhile",
                 "[completion]") {
  post(1);
  CHECK(all() == "sp");
  for (std::uint64_t id = 2; id < 10; ++id) {
    post(id);
    CHECK(all() == "s");
  }
  answer();
  CHECK(good() == Ids{1});
  CHECK(end.tx.pending());
  CHECK(all() == "p");
  post(10);
  CHECK(all() == "s");
  answer();
  CHECK(good().size() == 9);
  CHECK(all() == "p");
  answer();
  CHECK(end.queue.empty());
  CHECK(all().empty());
}

TEST_CASE_METHOD(Requester, "completion: with if_none_due a probe is sent when no other completion is due",
                 "[completion]") {
  using ProbePolicy = rdmap::Transmitter::ProbePolicy;
  end.tx.set_probe_policy(ProbePolicy::if_none_due);
  post(1);
  CHECK(all() == "sp");
  post(2);
  CHECK(all() == "s");
  answer();
  CHECK(good() == Ids{1});
  CHECK(end.tx.wants_probe());
  post(3);
  CHECK(all() == "s");  // 2 is due
  SECTION("until it waits") {
    end.tx.set_probe_policy(ProbePolicy::at_once);
    CHECK(all() == "p");
    CHECK_FALSE(end.tx.wants_probe());
    answer();
    CHECK(end.queue.empty());
  }
  SECTION("or until nothing is due any longer") {
    end.read(4, {memory_segment(sink)}, Stag{1}, 0);
    CHECK(all() == "r");
    answer();
    CHECK(end.queue.empty());
    post(5);
    CHECK(all() == "sp");
  }
  SECTION("nor where it has completions to see before") {
    end.tx.set_probe_policy(ProbePolicy::at_once);
    CHECK(all() == "p");
    answer();
    end.tx.set_probe_policy(ProbePolicy::by_stride);
    post(4);
    CHECK(all() == "s");
    CHECK(end.tx.wants_probe());
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
  it.end.read(100, {memory_segment(it.sink)}, Stag{1}, 0);
  CHECK(it.all() == "r");
  it.answer();
  CHECK(it.end.queue.empty());
}

TEST_CASE("completion: in a short queue a probe covers a quarter of the queue", "[completion]") {
  Requester it(4, rdmap::SharedReads::kMostProbes, 8);
  it.end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  std::string text;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    it.post(id);
    text += it.all();
  }
  CHECK(text == "sspsspsspssp");
}

TEST_CASE_METHOD(Requester, "completion: local work, and work that fails, does not wait for a stride to be over",
                 "[completion]") {
  post(1, false);
  CHECK(all() == "s");
  end.tx.set_probe_policy(rdmap::Transmitter::ProbePolicy::by_stride);
  post(2);
  end.queue.at(end.queue.tail() - 1).status = rdmap::Status::local_protection;
  CHECK(all() == "p");
  answer();
  CHECK(end.sent.back().id == 1);
}

TEST_CASE("completion: no probe overtakes a Read that TCP did not take", "[completion]") {
  Requester it(4, 1, 64, 60000);
  Bytes large(200 * 1024), readable(400 * 1024);
  it.post(1);
  it.end.write(2, {memory_segment(large)}, Stag{1}, 0);
  it.end.read(3, {memory_segment(it.sink)}, Stag{1}, 0);
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

TEST_CASE_METHOD(Requester, "completion: the answer to a probe is sent before anything else", "[completion]") {
  post(1);
  CHECK(all() == "sp");
  end.reads->inbound.push({rdmap::ReadRequest{}});
  post(2);
  CHECK(go() == 2);
  const auto ulpdus = ulpdus_of(stream, false);
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

TEST_CASE_METHOD(Requester, "completion: a read or an atomic operation behind the work is as good as a probe",
                 "[completion]") {
  const bool atomic = GENERATE(false, true);
  post(1);
  post(2);
  if (atomic) {
    end.atomic(3, result, rdmap::AtomicOpcode::fetch_add, {1, 0, 0, 0}, Stag{1}, 0);
  } else {
    end.read(3, {memory_segment(sink)}, Stag{1}, 0);
  }
  post(4, false);
  CHECK(all() == (atomic ? "ssas" : "ssrs"));
  CHECK(end.sent.empty());
  answer();
  CHECK(good() == Ids{1, 2, 3});
  post(5);
  CHECK(all() == "sp");
  answer();
  CHECK(good() == Ids{1, 2, 3, 4, 5});
}

TEST_CASE("completion: probes and the reads that are outstanding at a time (RFC 5040 section 6.1)", "[completion]") {
  SECTION("a probe has its own slot") {
    Requester it(1, 1);
    it.end.read(1, {memory_segment(it.sink)}, Stag{1}, 0);
    it.post(2);
    it.end.read(3, {memory_segment(it.sink)}, Stag{1}, 0);
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
    it.end.read(1, {memory_segment(it.sink)}, Stag{1}, 0);
    it.post(2);
    CHECK(it.all() == "rs");
    it.answer();
    CHECK(it.all() == "p");
    it.end.read(3, {memory_segment(it.sink)}, Stag{1}, 0);
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
    it.end.read(2, {memory_segment(it.sink)}, Stag{1}, 0);
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
    it.end.read(2, {memory_segment(it.sink)}, Stag{1}, 0);
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
  for (std::uint64_t id = 0; id < 4; ++id) it.end.write(id, {memory_segment(large)}, Stag{1}, 0);
  it.go();
  while (it.end.sent.empty()) {
    REQUIRE(it.go() > 0);
    if (!it.end.reads->outstanding.empty()) it.answer();
  }
  CHECK(it.end.queue.size() == 3);  // and not all of them were sent before the first completes
  CHECK(it.end.tx.pending());
}

TEST_CASE_METHOD(Requester,
                 "completion: network fences wait for reads alone, local ones for all (Verbs draft section 8.2.2.2)",
                 "[completion]") {
  const Stag window = end.stags.add_window(&end.domain, ddp::WindowType::type2).value();
  const Stag region = end.expose(sink, ddp::kLocalWrite | ddp::kBindWindows, 0x1000);
  const ddp::Binding binding{window, region, 0x1000, 10, ddp::kRemoteRead, ddp::WindowType::type2, false};
  SECTION("a Send with a fence behind a Send") {
    post(1);
    post(2);
    end.queue.at(1).fence = true;
    CHECK(all() == "ssp");
  }
  SECTION("a probe does not count as a read") {
    post(1);
    CHECK(all() == "sp");
    post(2);
    end.queue.at(1).fence = true;
    CHECK(all() == "s");
  }
  SECTION("local work without a fence is done when all is with TCP, and completes in its turn") {
    const bool signaled = GENERATE(false, true);
    post(1, signaled);
    end.bind(2, binding);
    all();
    CHECK(end.carried == Ids{2});
    CHECK(end.sent.empty());
    answer();
    CHECK(good() == Ids{1, 2});
  }
  SECTION("alone it needs no probe") {
    end.bind(2, binding);
    CHECK(all().empty());
    CHECK(good() == Ids{2});
  }
  SECTION("with a fence it waits for unsignaled work too") {
    post(1, false);
    end.bind(2, binding, true);
    CHECK(all() == "sp");
    CHECK(end.carried.empty());
    answer();
    CHECK(all().empty());
    CHECK(good() == Ids{1, 2});
  }
}

TEST_CASE_METHOD(Requester, "completion: while no answer can be received the local rule applies", "[completion]") {
  post(1);
  all();
  post(2);
  go(50);
  end.tx.set_receive_stalled(true);
  CHECK(good() == Ids{1});
  post(3);
  CHECK(all() == "ss");
  CHECK(good() == Ids{1, 2, 3});
  post(4);
  end.tx.set_receive_stalled(false);
  CHECK(all() == "s");
  answer();
  CHECK(good() == Ids{1, 2, 3});
  CHECK(all() == "p");
  answer();
  CHECK(good() == Ids{1, 2, 3, 4});
}

TEST_CASE_METHOD(Requester, "completion: an answer to what was not sent confirms nothing", "[completion]") {
  post(1);
  CHECK(go(50) == 2);
  answer();
  CHECK(end.sent.empty());
  CHECK(all() == "sp");
  CHECK(end.sent.empty());
}

TEST_CASE_METHOD(Requester, "completion: where the byte stream tells what is placed, no probe and no report is sent",
                 "[completion]") {
  const std::size_t size = mpa::fpdu_size(ddp::kUntaggedHeaderSize + data.size());
  end.tx.follow_position();
  end.tx.enable_reports();
  CHECK(end.tx.awaited_position() == rdmap::PlacementTracker::kNowhere);
  for (std::uint64_t id = 1; id < 4; ++id) post(id, id != 3);
  CHECK(all() == "sss");
  CHECK_FALSE(end.tx.pending());
  CHECK(end.tx.awaited_position() == size);
  end.tx.placed_up_to(size - 1);
  CHECK(end.sent.empty());
  end.tx.placed_up_to(2 * size);
  CHECK(good() == Ids{1, 2});
  CHECK(end.tx.awaited_position() == 3 * size);
  end.tx.placed_up_to(3 * size);
  CHECK(good() == Ids{1, 2, 3});
  CHECK(end.tx.awaited_position() == rdmap::PlacementTracker::kNowhere);
  // Of the next two the stream has accepted one and a part.
  post(4);
  post(5);
  go(size + 10);
  end.tx.placed_up_to(~std::uint64_t{0});  // more than was sent, as only a hostile peer says
  CHECK(good() == Ids{1, 2, 3, 4});
  all();
  CHECK(end.tx.awaited_position() == 5 * size);
  end.tx.placed_up_to(5 * size);
  CHECK(good() == Ids{1, 2, 3, 4, 5});
}

TEST_CASE_METHOD(Requester, "completion: a position passes a Read, which completes when it is answered",
                 "[completion]") {
  end.tx.follow_position();
  end.read(1, {memory_segment(sink)}, Stag{1}, 0);
  post(2);
  CHECK(all() == "rs");
  end.tx.placed_up_to(end.tx.awaited_position());
  CHECK(end.sent.empty());
  CHECK(end.tx.awaited_position() == rdmap::PlacementTracker::kNowhere);
  answer();
  CHECK(good() == Ids{1, 2});
}
