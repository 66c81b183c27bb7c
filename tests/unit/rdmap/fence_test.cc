// SPDX-License-Identifier: MIT
// Fences: figure 22 of the Verbs draft (section 8.2.2.2), a test for each of its rows. The row is the first work, the
// column the one behind it, which carries the fence. There is no Fast-Register here. Then the ordering of local work
// (section 8.2.2.1).
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;
using Fill = rdmap::Transmitter::Fill;

namespace {

enum class Op { send, write, read, atomic, bind, invalidate };
constexpr Op kAll[] = {Op::send, Op::write, Op::read, Op::atomic, Op::bind, Op::invalidate};

constexpr std::uint64_t kBase = 0x1000;
constexpr std::uint32_t kRights = ddp::kRemoteRead | ddp::kRemoteWrite;

struct Fixture {
  End end{1};
  Bytes memory = pattern(1000), result = Bytes(8), sink = Bytes(100);
  Stag region, bound, unbound;
  std::vector<unsigned> opcodes;  // of what has been sent
  Bytes taken;

  Fixture() {
    end.start({});
    region = end.expose(memory, ddp::kLocalWrite | ddp::kBindWindows, kBase);
    renew();
  }
  void renew() {
    bound = end.stags.add_window(&end.domain, ddp::WindowType::type2).value();
    unbound = end.stags.add_window(&end.domain, ddp::WindowType::type2).value();
    REQUIRE(end.stags.bind(binding(bound), &end.domain, &end) == ddp::WindowError::none);
  }
  ddp::Binding binding(Stag window) const {
    return {window, region, kBase, 1000, kRights, ddp::WindowType::type2, false};
  }
  void post(Op op, std::uint64_t id, bool fence) {
    switch (op) {
      case Op::send:
        end.send(id, {memory_segment(memory)});
        end.queue.at(end.queue.tail() - 1).fence = fence;
        break;
      case Op::write: end.write(id, {memory_segment(memory)}, Stag{1}, 0, fence); break;
      case Op::read:
        end.read(id, {memory_segment(sink)}, Stag{1}, 0);
        end.queue.at(end.queue.tail() - 1).fence = fence;
        break;
      case Op::atomic: end.atomic(id, result, rdmap::AtomicOpcode::fetch_add, {1, 0, 0, 0}, Stag{1}, 0, fence); break;
      case Op::bind: end.bind(id, binding(unbound), fence); break;
      case Op::invalidate: end.local_invalidate(id, bound, fence); break;
    }
  }
  // What TCP takes now; all if not told otherwise.
  void go(std::size_t most = ~std::size_t{0}) {
    auto batch = std::make_unique<rdmap::OutgoingBatch>();
    while (most > 0 && end.tx.fill(*batch) == Fill::ready) {
      const Bytes octets = gather(batch->fpdus.vectors(), most);
      end.tx.sent(*batch, octets.size());
      taken.insert(taken.end(), octets.begin(), octets.end());
      most -= octets.size();
    }
  }
  bool carried(std::uint64_t id) const {
    return std::find(end.carried.begin(), end.carried.end(), id) != end.carried.end();
  }
  // Has the second work, of this kind, begun? It is the second message, or carried out.
  bool begun(Op op, std::size_t messages_before) {
    if (op == Op::bind || op == Op::invalidate) return carried(2);
    return ulpdus_of(taken, true).size() > messages_before;
  }
  bool complete(std::uint64_t id) const {
    return std::find(end.sent.begin(), end.sent.end(), Sent{id, Status::success}) != end.sent.end();
  }
};

bool is_local(Op op) { return op == Op::bind || op == Op::invalidate; }
bool is_answered(Op op) { return op == Op::read || op == Op::atomic; }

// A Send or a Write in front. NA-2 and Not Needed: nothing waits once it is with TCP. Yes, Full: the invalidation waits
// until TCP has taken the last octet, which completes it.
void after_message(Op first) {
  for (const Op second : kAll) {
    for (const bool fence : {false, true}) {
      Fixture it;
      it.post(first, 1, false);
      it.post(second, 2, fence);
      it.go(100);  // a part of the first
      CHECK_FALSE(it.complete(1));
      CHECK_FALSE(it.carried(2));
      it.taken.clear();
      it.go();
      CHECK(it.complete(1));
      if (is_local(second)) {
        CHECK(it.complete(2));
        CHECK(it.end.sent == std::vector<Sent>{{1, Status::success}, {2, Status::success}});
      } else {
        CHECK(it.complete(2) == !is_answered(second));
        CHECK(it.end.queue.size() == (is_answered(second) ? 1 : 0));
        CHECK_FALSE(it.end.tx.pending());  // it is out
      }
    }
  }
}

// Local work in front: it is done before anything behind it begins, fence or not.
void after_local(Op first) {
  for (const Op second : kAll) {
    for (const bool fence : {false, true}) {
      Fixture it;
      it.post(first, 1, false);
      if (first == second) it.renew();
      it.post(second, 2, fence);
      it.go();
      CHECK(it.complete(1));
      CHECK(it.end.carried.front() == 1);
      CHECK(it.begun(second, 0));
      CHECK(it.complete(2) == !is_answered(second));
    }
  }
}

}  // namespace

TEST_CASE("fence: figure 22, row Send Type", "[fence]") { after_message(Op::send); }

TEST_CASE("fence: figure 22, row RDMA Write", "[fence]") { after_message(Op::write); }

TEST_CASE("fence: figure 22, row RDMA Read", "[fence]") {
  // Atomic operations count as reads (RFC 7306 section 7).
  const Op first = GENERATE(Op::read, Op::atomic);
  for (const Op second : kAll) {
    for (const bool fence : {false, true}) {
      Fixture it;
      it.post(first, 1, false);
      it.post(second, 2, fence);
      it.go();
      REQUIRE(ulpdus_of(it.taken, true).size() >= 1);
      // Yes, Partial (Send, Write): with the Read Fence. Yes, Full (Invalidate): with the Local Fence. Reads behind
      // reads need none. A bind may have one here (the manual page of ibv_bind_mw): it is the local one.
      CHECK(it.begun(second, 1) == !fence);
      CHECK_FALSE(it.complete(1));
      CHECK_FALSE(it.complete(2));  // in order, whatever is done already
      it.end.tx.read_complete();
      it.go();
      CHECK(it.complete(1));
      CHECK(it.begun(second, 1));
      CHECK(it.complete(2) == !is_answered(second));
    }
  }
}

TEST_CASE("fence: figure 22, row Bind", "[fence]") { after_local(Op::bind); }

TEST_CASE("fence: figure 22, row Invalidate", "[fence]") { after_local(Op::invalidate); }

TEST_CASE_METHOD(Fixture, "fence: all earlier reads, not the last one alone", "[fence]") {
  for (std::uint64_t id = 1; id <= 3; ++id) post(Op::read, id, false);
  const bool local = GENERATE(false, true);
  post(local ? Op::invalidate : Op::write, 4, true);
  post(Op::send, 5, false);
  go();
  CHECK(ulpdus_of(taken, true).size() == 3);
  for (int i = 0; i < 2; ++i) {
    end.tx.read_complete();
    go();
    CHECK(ulpdus_of(taken, true).size() == 3);
    CHECK_FALSE(carried(4));
  }
  end.tx.read_complete();
  go();
  CHECK(end.sent.size() == 5);
  CHECK(end.sent.back() == Sent{5, Status::success});
}

TEST_CASE_METHOD(Fixture, "fence: the Local Fence waits for the Write in front of a read too", "[fence]") {
  post(Op::write, 1, false);
  post(Op::read, 2, false);
  post(Op::write, 3, false);
  post(Op::invalidate, 4, true);
  go();
  CHECK_FALSE(carried(4));
  end.tx.read_complete();
  go();
  CHECK(carried(4));
}

TEST_CASE_METHOD(Fixture, "fence: a fence does not hold responses to the peer", "[fence]") {
  const Stag readable = end.expose(memory, ddp::kRemoteRead, kBase);
  post(Op::read, 1, false);
  post(Op::invalidate, 2, true);
  go();
  taken.clear();
  end.reads->inbound.push({rdmap::ReadRequest{Stag{9}, 0, 10, readable, kBase}});
  go();
  CHECK(ulpdus_of(taken, true).size() == 1);
  CHECK_FALSE(carried(2));
}

TEST_CASE_METHOD(Fixture, "local work: takes effect before the work behind it (Verbs draft 8.2.2.1)", "[fence]") {
  // The effect of each is seen at once: bind, advertise; invalidate, say so.
  end.bind(1, binding(unbound));
  post(Op::send, 2, false);
  end.local_invalidate(3, unbound);
  post(Op::send, 4, false);
  end.bind(5, binding(unbound));
  go();
  CHECK(end.carried == std::vector<std::uint64_t>{1, 3, 5});
  CHECK(end.sent == std::vector<Sent>{{1, Status::success},
                                      {2, Status::success},
                                      {3, Status::success},
                                      {4, Status::success},
                                      {5, Status::success}});
  CHECK(end.stags.region(unbound));
}

TEST_CASE_METHOD(Fixture, "local work: once, however often TCP takes nothing", "[fence]") {
  end.bind(1, binding(unbound));
  post(Op::send, 2, false);
  auto batch = std::make_unique<rdmap::OutgoingBatch>();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    end.tx.sent(*batch, 0);
  }
  CHECK(end.carried == std::vector<std::uint64_t>{1});
  go();
  CHECK(end.carried == std::vector<std::uint64_t>{1});
  CHECK(end.sent.size() == 2);
}

TEST_CASE_METHOD(Single, "local work: does not wait for the peer's first FPDU, what is sent does", "[fence]") {
  end.start({.hold = true});
  Bytes memory(100);
  const Stag region = end.expose(memory, ddp::kLocalWrite | ddp::kBindWindows, kBase);
  const Stag window = end.stags.add_window(&end.domain, ddp::WindowType::type2).value();
  end.bind(1, {window, region, kBase, 100, kRights, ddp::WindowType::type2, false});
  end.send(2, {memory_segment(memory)});
  CHECK(take_all(end).empty());
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
  end.tx.release_hold();
  CHECK_FALSE(take_all(end).empty());
}

TEST_CASE_METHOD(Fixture, "local work: an invalidation sends nothing (Verbs draft section 8.1.2.3)", "[fence]") {
  post(Op::invalidate, 1, false);
  CHECK(take_all(end).empty());
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
  CHECK_FALSE(end.stags.region(bound));
  // Nor beside work that does.
  renew();
  post(Op::send, 2, false);
  post(Op::invalidate, 3, false);
  post(Op::send, 4, false);
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 2);
  for (const Bytes& ulpdu : out) CHECK((ulpdu[1] & std::byte{0x0F}) == std::byte{3});
  CHECK(end.sent ==
        std::vector<Sent>{{1, Status::success}, {2, Status::success}, {3, Status::success}, {4, Status::success}});
}

TEST_CASE_METHOD(Fixture, "local work: a failure ends the stream, in its turn (Verbs draft figure 23)", "[fence]") {
  post(Op::send, 1, false);
  const bool bind = GENERATE(false, true);
  if (bind) {
    end.bind(2, binding(bound));  // bound already
  } else {
    end.local_invalidate(2, region);
  }
  post(Op::send, 3, false);
  auto batch = std::make_unique<rdmap::OutgoingBatch>();
  REQUIRE(end.tx.fill(*batch) == Fill::ready);
  end.tx.sent(*batch, batch->fpdus.bytes());
  REQUIRE(end.tx.fill(*batch) == Fill::local_error);
  CHECK(end.tx.failure()->sequence == 1);
  end.flush_failed();
  CHECK(end.sent == std::vector<Sent>{{1, Status::success},
                                      {2, bind ? Status::window_bind : Status::local_protection},
                                      {3, Status::flushed}});
  go();
  const auto out = ulpdus_of(taken, true);
  REQUIRE(out.size() == 1);
  CHECK((out[0][1] & std::byte{0x0F}) == std::byte{7});
  CHECK(big_endian(Octets(out[0]).subspan(18, 2)) == 0x0000);  // Local Catastrophic Error
}

TEST_CASE_METHOD(Fixture, "local work: flushed with the rest, and not carried out", "[fence]") {
  post(Op::read, 1, false);
  post(Op::invalidate, 2, true);
  go();
  end.tx.flush(std::nullopt, Status::flushed);
  CHECK(end.carried.empty());
  CHECK(end.sent == std::vector<Sent>{{1, Status::flushed}, {2, Status::flushed}});
}

TEST_CASE_METHOD(Pair, "windows: two ends, through a window, and invalidated by the peer", "[fence]") {
  const bool crc = GENERATE(false, true);
  start({.crc = crc}, 5);
  Bytes target(5000), source = pattern(5000), sink(5000), inbox(10);
  const Stag region = b.expose(target, ddp::kLocalWrite | ddp::kBindWindows, 0x8000);
  const Stag window = b.stags.add_window(&b.domain, ddp::WindowType::type2).value();
  b.bind(1, {window, region, 0x8000, 5000, kRights, ddp::WindowType::type2, false});
  b.post(1, {memory_segment(inbox)});
  run();
  a.write(1, {memory_segment(source)}, window, 0x8000);
  a.read(2, {memory_segment(sink)}, window, 0x8000);
  run();
  CHECK(target == source);
  CHECK(sink == source);
  a.send(3, {}, false, window);
  run();
  REQUIRE(b.received.size() == 1);
  CHECK(b.received[0].invalidated);
  CHECK(b.received[0].stag == window);
  a.write(4, {memory_segment(source)}, window, 0x8000);
  run();
  CHECK(b.stopped);
  REQUIRE(b.rx.error());
  CHECK(b.rx.error()->code == 0);  // Invalid STag
}
