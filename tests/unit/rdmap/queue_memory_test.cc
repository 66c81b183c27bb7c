// SPDX-License-Identifier: MIT
// Queues and rings take memory for what is in them, and go on where they can have no more of it.
#include "rdmap/queue_memory.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <new>

#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {
thread_local bool no_memory = false;
thread_local unsigned allocations = 0;

struct NoMemory {
  NoMemory() { no_memory = true; }
  ~NoMemory() { no_memory = false; }
};
}  // namespace

// The operator by which blocks of entries are allocated.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  if (no_memory) return nullptr;
  ++allocations;
  try {
    return ::operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

namespace {

// One entry at a time, or as many as fit.
template <typename Push, typename Pop>
unsigned allocations_of(unsigned entries, unsigned at_a_time, Push push, Pop pop) {
  const unsigned before = allocations;
  for (unsigned i = 0; i < entries; i += at_a_time) {
    for (unsigned j = 0; j < at_a_time; ++j) push();
    for (unsigned j = 0; j < at_a_time; ++j) pop();
  }
  return allocations - before;
}

}  // namespace

TEST_CASE("queue memory: a queue takes memory for what was in it at a time", "[queue_memory]") {
  const std::uint32_t depth = GENERATE(1, 2, 5, 16, 100, 128, 300, 4096);
  rdmap::SendQueue send(depth, 1, 0);
  const auto push_send = [&] {
    REQUIRE(send.has_room(send.tail()));
    send.at(send.tail()) = {};
    send.push();
  };
  rdmap::ReceiveQueue receive(depth, 1);
  const auto push_receive = [&] {
    REQUIRE(receive.has_room());
    receive.slot() = {};
    receive.push();
  };
  rdmap::SpscRing<int> ring(depth);
  const auto each = [&](unsigned at_a_time) {
    const unsigned entries = 3 * depth / at_a_time * at_a_time;
    return std::array{allocations_of(entries, at_a_time, push_send, [&] { send.pop(); }),
                      allocations_of(entries, at_a_time, push_receive, [&] { receive.pop(); }),
                      allocations_of(
                          entries, at_a_time, [&] { REQUIRE(ring.push(1)); }, [&] { ring.pop(); })};
  };
  // Few: the first block is there.
  for (const unsigned made : each(1)) CHECK(made == 0);
  // All of it, wherever it begins; and never more.
  push_send(), push_receive(), ring.push(1);
  send.pop(), receive.pop(), ring.pop();
  for (const unsigned made : each(depth)) CHECK(made <= depth / rdmap::QueueMemory::kEntries + 1);
  for (const unsigned made : each(depth)) CHECK(made == 0);
  for (const unsigned made : each(1)) CHECK(made == 0);
}

TEST_CASE("queue memory: operands are where few of the entries have some, and far apart", "[queue_memory]") {
  rdmap::SendQueue queue(128, 1, 0);
  for (const unsigned gap : {1U, 3U, 8U, 100U, 1000U, 100'000U}) {
    for (unsigned i = 0; i < 20; ++i) {
      for (unsigned j = 0; j < gap; ++j) {
        REQUIRE(queue.has_room(queue.tail()));
        queue.push();
        queue.pop();
      }
      const std::uint64_t first = queue.tail();
      for (std::uint64_t j = 0; j < 128; j += 1 + i) {
        REQUIRE((queue.has_room(first + j) && queue.has_operand_room(first + j)));
        queue.operands(first + j) = {first + j, 1, 2, 3};
      }
      bool good = true;
      for (std::uint64_t j = 0; j < 128; j += 1 + i) good = good && queue.operands(first + j).data == first + j;
      REQUIRE(good);
    }
  }
}

TEST_CASE("queue memory: a batch that is given up leaves the queue as it was", "[queue_memory]") {
  rdmap::SendQueue queue(128, 1, 0);
  for (unsigned round = 0; round < 50; ++round) {
    const std::uint64_t tail = queue.tail();
    for (std::uint64_t i = tail; i < tail + 100; ++i) {
      REQUIRE(queue.has_room(i));
      queue.at(i).id = ~i;
    }
    // And shorter ones are posted in its place.
    bool good = true;
    for (std::uint64_t i = tail; i < tail + 13; ++i) {
      REQUIRE(queue.has_room(i));
      queue.at(i).id = i;
      queue.push();
    }
    for (; !queue.empty(); queue.pop()) good = good && queue.at(queue.head()).id == queue.head();
    REQUIRE(good);
  }
}

TEST_CASE("queue memory: without memory a queue is shorter, and never stuck", "[queue_memory]") {
  const NoMemory none;
  CHECK_THROWS_AS(rdmap::SpscRing<int>(8), std::bad_alloc);
  CHECK_THROWS_AS(rdmap::SendQueue(8, 1, 0), std::bad_alloc);
  CHECK_THROWS_AS(rdmap::ReceiveQueue(8, 1), std::bad_alloc);
  no_memory = false;
  rdmap::SpscRing<int> ring(100);
  no_memory = true;
  int pushed = 0, popped = 0;
  for (int round = 0; round < 20; ++round) {
    unsigned count = 0;
    while (ring.push(pushed)) ++pushed, ++count;
    CHECK((count > 0 && count < 100));
    for (; !ring.empty(); ring.pop()) CHECK(ring.front() == popped++);
  }
  no_memory = false;
  for (unsigned i = 0; i < 100; ++i) CHECK(ring.push(pushed++));
  CHECK_FALSE(ring.push(0));
}

namespace {

// What `from` has to send now arrives. False if that is nothing.
bool move(End& from, End& to) {
  const Bytes octets = take_all(from);
  if (octets.empty()) return false;
  const auto outcome = to.deframer.receive(octets, to.rx);
  CHECK(outcome.consumed == octets.size());
  to.on_result(outcome.result);
  return true;
}

}  // namespace

TEST_CASE("queue memory: Reads for which there is no memory wait for the answers of others", "[queue_memory]") {
  const bool remote = GENERATE(false, true);
  CAPTURE(remote);
  End a(11), b(12);
  StreamOptions options;
  options.ord = options.ird = 32;
  options.probe_slots = remote ? rdmap::SharedReads::kMostProbes : 0;
  if (remote) options.completion = rdmap::Completion::remote;
  a.start(options);
  options.ird += options.probe_slots;
  b.start(options);
  Bytes source = pattern(3000);
  const Stag readable = b.expose(source, ddp::kRemoteRead, 0);
  Bytes written(100);
  const Stag writable = b.expose(written, ddp::kLocalWrite | ddp::kRemoteWrite, 0);
  std::vector<Bytes> sinks(40, Bytes(3000));
  for (std::uint64_t i = 0; i < sinks.size(); ++i) {
    if (i % 3 == 0) a.write(100 + i, {{source.data(), 100}}, writable, 0);
    a.read(i, {memory_segment(sinks[i])}, readable, 0);
  }
  const std::size_t posted = a.queue.size();
  std::uint32_t most = 0;
  for (bool moved = true; moved;) {
    {
      const NoMemory none;
      moved = move(a, b);
    }
    most = std::max(most, a.reads->outstanding.size());
    moved = move(b, a) || moved;
  }
  CHECK(a.sent.size() == posted);
  CHECK(std::all_of(a.sent.begin(), a.sent.end(), [](const Sent& sent) { return sent.status == Status::success; }));
  CHECK(std::all_of(sinks.begin(), sinks.end(), [&](const Bytes& sink) { return sink == source; }));
  CHECK((most > 0 && most < options.ord));
}

TEST_CASE("queue memory: requests of the peer for which there is no memory end the stream", "[queue_memory]") {
  End a(11), b(12);
  a.start({.crc = false, .ord = 32, .ird = 32});
  b.start({.crc = false, .ord = 32, .ird = 32});
  Bytes source = pattern(100);
  const Stag stag = b.expose(source, ddp::kRemoteRead, 0);
  std::vector<Bytes> sinks(20, Bytes(100));
  for (std::uint64_t i = 0; i < sinks.size(); ++i) a.read(i, {memory_segment(sinks[i])}, stag, 0);
  const Bytes requests = take_all(a);
  {
    const NoMemory none;
    b.on_result(b.deframer.receive(requests, b.rx).result);
  }
  REQUIRE(b.stopped);
  REQUIRE(b.rx.error());
  CHECK(b.rx.error()->type == static_cast<std::uint8_t>(rdmap::ErrorType::remote_operation));
  CHECK(b.rx.error()->code == static_cast<std::uint8_t>(rdmap::ErrorCode::catastrophic_stream));
  CHECK(b.rx.error()->has_ddp_header);
}

TEST_CASE("queue memory: an FPDU that outlives its work ends as it began", "[queue_memory]") {
  const bool crc = GENERATE(false, true);
  End a(11);
  a.start({.crc = crc, .ord = 0, .ird = 0});
  const Bytes message = pattern(500);
  for (std::uint64_t i = 0; i < 20; ++i) a.send(i, {memory_segment(message)});
  const auto batch = std::make_unique<rdmap::OutgoingBatch>();
  REQUIRE(a.tx.fill(*batch) == rdmap::Transmitter::Fill::ready);
  const std::size_t part = 3 * batch->fpdus.fpdu_bytes(0) + 100;
  const Bytes all = gather(batch->fpdus.vectors());
  Bytes out(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(part));
  a.tx.sent(*batch, part);
  a.tx.flush(std::nullopt, Status::flushed);
  CHECK(a.sent.size() == 20);
  // The memory of its entry serves another one.
  for (std::uint64_t i = 20; i < 40; ++i) {
    REQUIRE(a.queue.has_room(a.queue.tail()));
    a.queue.at(a.queue.tail()) = {};
    a.queue.push();
    a.queue.pop();
  }
  const Bytes rest = take_all(a);
  out.insert(out.end(), rest.begin(), rest.end());
  CHECK(out.size() == 4 * std::size_t{batch->fpdus.fpdu_bytes(0)});
  CHECK(ulpdus_of(out, crc).size() == 4);
}
