// SPDX-License-Identifier: MIT
// Terminate, flush and memory that goes away: what a transmitter does when a stream does not go well.
#include "rdmap/transmit/transmitter.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "base/guarded_copy.h"
#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;
using Fill = rdmap::Transmitter::Fill;

namespace {

std::unique_ptr<rdmap::OutgoingBatch> new_batch() { return std::make_unique<rdmap::OutgoingBatch>(); }

// Fills once and takes `octets` of it.
Bytes take(End& end, std::size_t octets) {
  auto batch = new_batch();
  REQUIRE(end.tx.fill(*batch) == Fill::ready);
  const Bytes out = gather(batch->fpdus.vectors(), octets);
  end.tx.sent(*batch, out.size());
  return out;
}

bool is_terminate(const Bytes& ulpdu) { return ulpdu.size() >= 18 && (ulpdu[1] & std::byte{0x0F}) == std::byte{7}; }

}  // namespace

TEST_CASE_METHOD(Single, "transmitter: sent() says when fill() need not be asked", "[transmitter]") {
  const bool remote = GENERATE(false, true);
  end.start({.completion = remote ? rdmap::Completion::remote : rdmap::Completion::local});
  const Bytes data = pattern(100);
  auto batch = new_batch();
  for (int i = 0; i < 3; ++i) end.send(i, {memory_segment(data)});
  REQUIRE(end.tx.fill(*batch) == Fill::ready);
  SECTION("TCP has taken all") { CHECK(end.tx.sent(*batch, batch->fpdus.bytes()) == !remote); }
  SECTION("TCP has taken a part") { CHECK_FALSE(end.tx.sent(*batch, batch->fpdus.bytes() - 1)); }
  SECTION("something was posted meanwhile") {
    end.send(3, {memory_segment(data)});
    CHECK_FALSE(end.tx.sent(*batch, batch->fpdus.bytes()));
  }
}

TEST_CASE_METHOD(StartedEnd, "transmitter: after a Terminate nothing is sent (RFC 5040 section 5.4)", "[transmitter]") {
  const Bytes data = pattern(5000);
  end.send(1, {memory_segment(data)});
  SECTION("between messages") {
    end.tx.terminate(some_terminate(1));
    end.tx.terminate(some_terminate(2));  // the first one counts
    const auto out = ulpdus_of(take_all(end), true);
    REQUIRE(out.size() == 1);
    REQUIRE(is_terminate(out[0]));
    CHECK(out[0].at(19) == std::byte{1});
  }
  SECTION("in the middle of a message, behind the FPDU in progress") {
    Bytes stream = take(end, 1440 + 100);
    end.tx.terminate(some_terminate());
    const Bytes rest = take_all(end);
    stream.insert(stream.end(), rest.begin(), rest.end());
    const auto out = ulpdus_of(stream, true);
    REQUIRE(out.size() == 3);
    CHECK(is_terminate(out[2]));
  }
  CHECK(end.tx.terminating());
  CHECK(end.tx.terminate_sent());
  end.send(2, {memory_segment(data)});
  CHECK(take_all(end).empty());
  CHECK_FALSE(end.tx.pending());
}

TEST_CASE_METHOD(Single, "transmitter: a Terminate octet by octet", "[transmitter]") {
  const bool crc = GENERATE(false, true);
  end.start({.crc = crc});
  const Bytes data = pattern(100);
  end.send(1, {memory_segment(data)});
  Bytes stream = take(end, 10);
  end.tx.terminate(about_untagged(0, 1));
  while (end.tx.pending()) {
    REQUIRE(stream.size() < 1000);
    CHECK_FALSE(end.tx.terminate_sent());
    const Bytes more = take(end, 1);
    stream.insert(stream.end(), more.begin(), more.end());
  }
  const auto out = ulpdus_of(stream, crc);
  REQUIRE(out.size() == 2);
  CHECK(is_terminate(out[1]));
}

TEST_CASE_METHOD(Pair, "transmitter: a region retired in the middle of a read response (RFC 5040 section 4.8)",
                 "[transmitter]") {
  const bool crc = GENERATE(false, true);
  start({.crc = crc, .mulpdu = 1014});
  Bytes source = pattern(5000), sink(5000);
  const Stag stag = b.expose(source, ddp::kRemoteRead, 0x9000);
  a.read(1, {memory_segment(sink)}, stag, 0x9000);
  const auto request = ulpdus_of(take_all(a), crc);
  b.give(request[0]);
  SECTION("between two segments: the request comes back, moved on") {
    Bytes stream = take(b, 2 * mpa::fpdu_size(1014));
    b.stags.retire(stag);
    const Bytes rest = take_all(b);
    stream.insert(stream.end(), rest.begin(), rest.end());
    const auto out = ulpdus_of(stream, crc);
    REQUIRE(out.size() == 3);
    REQUIRE(is_terminate(out[2]));
    const Octets terminate = Octets(out[2]).subspan(18);
    REQUIRE(terminate.size() == 4 + 2 + 18 + 28);
    CHECK(big_endian(terminate.first(2)) == 0x0100);  // RDMA, remote protection, invalid STag
    CHECK(big_endian(terminate.subspan(2, 2)) == 0xE000);
    CHECK(big_endian(terminate.subspan(4, 2)) == request[0].size());
    CHECK(Bytes(terminate.begin() + 6, terminate.begin() + 24) == Bytes(request[0].begin(), request[0].begin() + 18));
    const Octets moved_on = terminate.subspan(24);
    CHECK(big_endian(moved_on.first(4)) == 0x51000001);
    CHECK(big_endian(moved_on.subspan(4, 8)) == 0x1000 + 2000);
    CHECK(big_endian(moved_on.subspan(12, 4)) == 3000);
    CHECK(big_endian(moved_on.subspan(16, 4)) == static_cast<std::uint32_t>(stag));
    CHECK(big_endian(moved_on.subspan(20, 8)) == 0x9000 + 2000);
  }
  SECTION("in the middle of a segment") {
    Bytes stream = take(b, mpa::fpdu_size(1014) + 500);
    b.stags.retire(stag);
    if (crc) {
      // It was kept: finished, then the Terminate.
      const Bytes rest = take_all(b);
      stream.insert(stream.end(), rest.begin(), rest.end());
      const auto out = ulpdus_of(stream, crc);
      REQUIRE(out.size() == 3);
      CHECK(is_terminate(out[2]));
    } else {
      CHECK(b.tx.fill(*new_batch()) == Fill::broken);
    }
  }
  SECTION("before its first segment") {
    b.stags.retire(stag);
    const auto out = ulpdus_of(take_all(b), crc);
    REQUIRE(out.size() == 1);
    CHECK(is_terminate(out[0]));
  }
}

TEST_CASE_METHOD(StartedEnd, "transmitter: work that can only fail completes in its turn", "[transmitter]") {
  const Bytes data = pattern(100);
  end.send(1, {memory_segment(data)});
  end.prepare(2, WorkKind::write, {}).status = Status::local_protection;
  end.queue.push();
  end.send(3, {memory_segment(data)});
  CHECK(ulpdus_of(take(end, 10'000), true).size() == 1);
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
  auto batch = new_batch();
  REQUIRE(end.tx.fill(*batch) == Fill::local_error);
  CHECK(end.tx.failure()->sequence == 1);
  CHECK(end.tx.failure()->status == Status::local_protection);
  end.flush_failed();
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}, {2, Status::local_protection}, {3, Status::flushed}});
  // RFC 5040 section 7.1, case 1: a Terminate without headers instead of the message.
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 1);
  REQUIRE(is_terminate(out[0]));
  CHECK(out[0].size() == 18 + 4);
  CHECK((big_endian(Octets(out[0]).subspan(18, 1)) == 0x00));  // RDMA, local catastrophic
}

TEST_CASE_METHOD(Single, "transmitter: a read fails where the peer holds none (RFC 5040 section 6.1)",
                 "[transmitter]") {
  Bytes sink(10);
  end.read(7, {memory_segment(sink)}, Stag{1}, 0);  // before the peer has said so
  end.start({.ord = 0});
  auto batch = new_batch();
  REQUIRE(end.tx.fill(*batch) == Fill::local_error);
  CHECK(end.tx.failure()->sequence == 0);
  CHECK(end.tx.failure()->status == Status::local_operation);
}

TEST_CASE_METHOD(Single, "transmitter: source memory that is gone fails its work, not the program", "[transmitter]") {
  install_copy_guard();
  const bool crc = GENERATE(false, true);
  constexpr std::size_t kSize = 8192;
  auto* gone = static_cast<std::byte*>(::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(gone != MAP_FAILED);
  end.start({.crc = crc, .mulpdu = 9000});
  const std::size_t size = crc ? kSize : 500;  // without CRC only small payload is copied here
  end.send(7, {{gone, size}});
  auto batch = new_batch();
  REQUIRE(end.tx.fill(*batch) == Fill::local_error);
  CHECK(end.tx.failure()->sequence == 0);
  CHECK(end.tx.failure()->status == Status::local_protection);
  end.flush_failed();
  CHECK(end.sent == std::vector<Sent>{{7, Status::local_protection}});
  const auto out = ulpdus_of(take_all(end), crc);
  REQUIRE(out.size() == 1);
  CHECK(is_terminate(out[0]));
  ::munmap(gone, kSize);
}

TEST_CASE_METHOD(Single, "transmitter: what the socket could not read fails at the next fill", "[transmitter]") {
  end.start({.crc = false, .mulpdu = 9000});
  const Bytes data = pattern(5000);
  SECTION("nothing of the FPDU went out") {
    end.send(1, {memory_segment(data)});
    auto batch = new_batch();
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(end.tx.source_gone(*batch));
    REQUIRE(end.tx.fill(*batch) == Fill::local_error);
    CHECK(end.tx.failure()->sequence == 0);
  }
  SECTION("a part of it did") {
    end.send(1, {memory_segment(data)});
    take(end, 100);
    auto batch = new_batch();
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    CHECK_FALSE(end.tx.source_gone(*batch));
  }
  SECTION("a request of the peer is answered first") {
    end.send(1, {memory_segment(data)});
    auto batch = new_batch();
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(end.tx.source_gone(*batch));
    REQUIRE(end.reads->inbound.push({rdmap::ReadRequest{}, {}}));
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    CHECK_FALSE(end.tx.terminating());
    end.tx.sent(*batch, batch->fpdus.fpdu_bytes(0));
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(end.tx.source_gone(*batch));
    REQUIRE(end.tx.fill(*batch) == Fill::local_error);
    CHECK(end.tx.failure()->sequence == 0);
    CHECK_FALSE(end.reads->answers_unsent());
  }
  SECTION("it is behind another one in the batch") {
    end.send(1, {memory_segment(data)});
    end.send(2, {memory_segment(data)});
    end.send(3, {memory_segment(data)});
    auto batch = new_batch();
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(batch->fpdus.fpdus() == 3);
    REQUIRE(end.tx.source_gone(*batch));
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(batch->fpdus.fpdus() == 1);
    end.tx.sent(*batch, batch->fpdus.bytes());
    CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(batch->fpdus.fpdus() == 2);
    REQUIRE(end.tx.source_gone(*batch));
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(batch->fpdus.fpdus() == 1);
    REQUIRE(end.tx.source_gone(*batch));
    REQUIRE(end.tx.fill(*batch) == Fill::local_error);
    CHECK(end.tx.failure()->sequence == 1);
  }
}

TEST_CASE_METHOD(Pair, "transmitter: flush() completes all in order, and work that is done with success",
                 "[transmitter]") {
  start();
  Bytes sink(10), exposed(10);
  const Bytes data = pattern(10);
  SECTION("done work behind an open read") {
    a.write(0, {memory_segment(data)}, Stag{1}, 0);
    a.read(1, {memory_segment(sink)}, Stag{1}, 0);
    a.write(2, {memory_segment(data)}, Stag{1}, 0);
    take_all(a);
    a.send(3, {});
    CHECK(a.sent.size() == 1);
    a.tx.flush(std::nullopt, Status::fatal);
    CHECK(a.sent ==
          std::vector<Sent>{{0, Status::success}, {1, Status::flushed}, {2, Status::flushed}, {3, Status::flushed}});
  }
  SECTION("with a culprit") {
    a.read(1, {memory_segment(sink)}, Stag{1}, 0);
    a.write(2, {memory_segment(data)}, Stag{1}, 0);
    a.send(3, {});
    take_all(a);
    a.tx.flush(1, Status::remote_access);
    CHECK(a.sent == std::vector<Sent>{{1, Status::flushed}, {2, Status::remote_access}, {3, Status::flushed}});
  }
  CHECK(a.queue.empty());
}

TEST_CASE_METHOD(StartedEnd, "transmitter: a read whose request has not gone out whole is flushed, even if answered",
                 "[transmitter]") {
  Bytes sink(10);
  end.read(1, {memory_segment(sink)}, Stag{1}, 0);
  take(end, 20);
  end.tx.read_complete();
  CHECK(end.sent.empty());
  end.tx.flush(std::nullopt, Status::fatal);
  CHECK(end.sent == std::vector<Sent>{{1, Status::flushed}});
}

TEST_CASE("transmitter: flush() in the middle of an FPDU leaves the stream whole", "[transmitter]") {
  // RFC 5044: an FPDU that was begun has to end as its length field says; then comes the Terminate. The program's
  // memory and the queue's slots are its own again after flush(), and may hold other work by then, as they do where
  // a QP in error is posted to.
  const bool crc = GENERATE(false, true);
  const std::size_t size = GENERATE(300, 5000);
  End end(1, 4);
  end.start({.crc = crc, .mulpdu = 9000});
  Bytes data = pattern(size);
  for (std::uint64_t id = 0; id < 4; ++id) end.send(id, {memory_segment(data)});
  Bytes stream = take(end, 100);
  end.tx.terminate(some_terminate());
  end.tx.flush(std::nullopt, Status::flushed);
  CHECK(end.sent.size() == 4);
  const Bytes original = data;
  // As Qp::push_prepared() does in the error state: the entry at the tail is filled in, and completed without
  // a push.
  const bool posted = GENERATE(false, true);
  if (posted) end.prepare(9, WorkKind::send, {});
  for (int i = 0; i < 10 && end.tx.pending(); ++i) {
    auto batch = new_batch();
    REQUIRE(end.tx.fill(*batch) == Fill::ready);
    REQUIRE(batch->fpdus.bytes() < 100'000);
    const Bytes more = gather(batch->fpdus.vectors());
    stream.insert(stream.end(), more.begin(), more.end());
    end.tx.sent(*batch, more.size());
  }
  const auto out = ulpdus_of(stream, crc);
  REQUIRE(out.size() == 2);
  CHECK((Bytes(out[0].begin() + 18, out[0].end()) == original));
  CHECK(is_terminate(out[1]));
}

TEST_CASE_METHOD(
    Single, "transmitter: flush() in the middle of an FPDU whose memory is gone breaks the stream, not the program",
    "[transmitter]") {
  install_copy_guard();
  constexpr std::size_t kSize = 8192;
  auto* memory =
      static_cast<std::byte*>(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  // the socket takes it from where it lies
  end.start({.crc = false, .mulpdu = 9000});
  end.send(7, {{memory, kSize}});
  take(end, 100);
  REQUIRE(::mprotect(memory, kSize, PROT_NONE) == 0);
  end.tx.terminate(some_terminate());
  end.tx.flush(std::nullopt, Status::flushed);
  CHECK(end.sent == std::vector<Sent>{{7, Status::flushed}});
  auto batch = new_batch();
  CHECK(end.tx.fill(*batch) == Fill::broken);
  CHECK(end.tx.fill(*batch) == Fill::broken);
  ::munmap(memory, kSize);
}

TEST_CASE_METHOD(StartedEnd, "transmitter: which work a Terminate is about (RFC 5040 section 4.8)", "[transmitter]") {
  Bytes sink(100);
  const Bytes data = pattern(100);
  // A read in front keeps everything in the queue.
  end.read(100, {memory_segment(sink)}, Stag{0x77}, 0);        // 0: read MSN 1
  end.send(101, {memory_segment(data)});                       // 1: send MSN 1
  end.write(102, {memory_segment(data)}, Stag{0x10}, 0x1000);  // 2
  end.write(103, {memory_segment(data)}, Stag{0x20}, 0x1000);  // 3
  end.read(104, {memory_segment(sink)}, Stag{0x77}, 0);        // 4: read MSN 2
  end.send(105, {memory_segment(data)});                       // 5: send MSN 2
  const auto find = [&](const rdmap::Terminate& terminate) { return end.tx.find_terminated(terminate); };
  CHECK(end.tx.oldest_sent() == std::nullopt);
  const auto batch = take(end, 100'000);
  CHECK_FALSE(batch.empty());
  CHECK(end.sent.empty());
  CHECK(end.tx.oldest_sent() == 0);
  CHECK(find(about_untagged(1, 1)) == 0);
  CHECK(find(about_untagged(1, 2)) == 4);
  CHECK(find(about_untagged(1, 3)) == std::nullopt);
  CHECK(find(about_untagged(1, 0)) == std::nullopt);
  CHECK(find(about_untagged(0, 1)) == 1);
  CHECK(find(about_untagged(0, 2)) == 5);
  CHECK(find(about_untagged(0, 3)) == std::nullopt);
  CHECK(find(about_untagged(0, 0xFFFFFFFF)) == std::nullopt);
  CHECK(find(about_untagged(2, 1)) == std::nullopt);
  CHECK(find(about_write(0x10, 0x1000)) == 2);
  CHECK(find(about_write(0x10, 0x1063)) == 2);
  CHECK(find(about_write(0x20, 0x1000)) == 3);
  CHECK(find(about_write(0x30, 0x1000)) == std::nullopt);
  CHECK(find(about_write(0x10, 0xFFF)) == std::nullopt);
  CHECK(find(about_write(0x10, 0x2000)) == std::nullopt);
  CHECK(find(some_terminate()) == std::nullopt);
  SECTION("a message in progress") {
    const Bytes large = pattern(5000);
    end.send(106, {memory_segment(large)});
    take(end, 1500);
    CHECK(find(about_untagged(0, 3)) == 6);
  }
  SECTION("the peer's complaint about our read response is about none of our work") {
    rdmap::Terminate response = about_write(0x10, 0x1000);
    response.ddp_header[1] = std::byte{0x42};
    CHECK(find(response) == std::nullopt);
  }
  SECTION("a write that has not been sent cannot be it") {
    end.write(107, {memory_segment(data)}, Stag{0x99}, 0);
    CHECK(find(about_write(0x99, 0)) == std::nullopt);
  }
}

TEST_CASE_METHOD(Single, "transmitter: a Terminate behind a ready-to-receive read counts MSNs from there",
                 "[transmitter]") {
  end.start({.rtr = mpa::ReadyToReceive::read});
  Bytes sink(100);
  end.read(1, {memory_segment(sink)}, Stag{1}, 0);
  take_all(end);
  CHECK(end.tx.find_terminated(about_untagged(1, 1)) == std::nullopt);
  CHECK(end.tx.find_terminated(about_untagged(1, 2)) == 0);
}

TEST_CASE("transmitter: a batch holds many small FPDUs, and a full one goes on in the next", "[transmitter]") {
  const bool crc = GENERATE(false, true);
  const std::size_t mulpdu = GENERATE(128, 65535);
  End end(1, 1024, 4);
  end.start({.crc = crc, .mulpdu = mulpdu});
  const Bytes small = pattern(8), large = pattern(200'000);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    end.write(id, {id % 100 == 99 ? memory_segment(large) : memory_segment(small)}, Stag{1}, id);
  }
  auto batch = new_batch();
  Bytes stream;
  while (end.tx.fill(*batch) == Fill::ready) {
    REQUIRE(batch->fpdus.fpdus() <= mpa::Batch::kMaxFpdus);
    REQUIRE(batch->fpdus.bytes() <= mpa::Batch::limit(crc));
    REQUIRE(batch->fpdus.vectors().size() <= 1024);
    const Bytes more = gather(batch->fpdus.vectors());
    stream.insert(stream.end(), more.begin(), more.end());
    end.tx.sent(*batch, more.size());
  }
  CHECK(end.sent.size() == 1000);
  std::size_t payload = 0;
  for (const Bytes& ulpdu : ulpdus_of(stream, crc)) payload += ulpdu.size() - 14;
  CHECK(payload == 990 * 8 + 10 * 200'000);
}
