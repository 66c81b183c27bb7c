// SPDX-License-Identifier: MIT
// The fixture of the tests of rdmap: two ends of a stream in memory, a transmitter and a receiver each, and between
// them a "socket" that takes and delivers random numbers of octets. What queue pairs do around them is done here in the
// plainest way.
//
//   TEST_CASE_METHOD(Pair, "title", "[tag]") {
//     start({.crc = false});
//     a.send(1, {memory_segment(data)});
//     b.post(2, {memory_segment(inbox)});
//     run();
//     CHECK(b.received.size() == 1);
//   }
//
// Single has one end, StartedEnd the same in a stream with what is agreed on by default; their peer is the test, which
// takes what is sent (take_all) and gives what comes (End::give).
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ddp/stag_table.h"
#include "mpa/deframer.h"
#include "rdmap/receiver.h"
#include "rdmap/transmit/transmitter.h"
#include "tests/unit/octets.h"

namespace uiw::test {

using ddp::Stag;
using rdmap::MemorySegment;
using rdmap::Status;
using rdmap::WorkKind;

struct Sent {
  std::uint64_t id;
  Status status;
  bool operator==(const Sent&) const = default;
};
struct Received {
  std::uint64_t id;
  Status status;
  std::uint32_t length = 0;
  bool solicited = false;
  bool invalidated = false;
  Stag stag{};
  bool has_immediate = false;
  rdmap::Immediate immediate{};
  bool is_send = true;
};

struct StreamOptions {
  bool crc = true;
  std::size_t mulpdu = 1440;
  std::uint32_t ord = 8;
  std::uint32_t ird = 8;
  mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;
  bool hold = false;
  mpa::PeerKind peer = mpa::PeerKind::other;
  rdmap::Completion completion = rdmap::Completion::local;
  std::uint32_t probe_slots = 0;  // so many more than `ord` are agreed on
  bool infiniband = false;        // both ends are uiw, and keep to its rules
  std::size_t mulpdu_to_uiw = 0;  // 0: `mulpdu`
};

class End final : public rdmap::SendHost, public rdmap::ReceiveHost {
 public:
  explicit End(std::uint64_t secret, std::uint32_t depth = 64, std::uint32_t max_sges = 8)
      : stags(secret),
        queue(depth, max_sges, 0),
        tx(queue, {stags, &domain, this}, *this),
        rx({stags, &domain, this}, *this) {}

  void start(const StreamOptions& options) {
    reads = std::make_unique<rdmap::SharedReads>(options.ord + options.probe_slots, options.ird);
    rules = {};
    rules.crc = options.crc;
    rules.mulpdu = options.mulpdu;
    rules.ord = options.ord;
    rules.requests_out = options.ord + options.probe_slots;
    rules.requests_in = rules.ird = options.ird;
    rules.rtr = options.rtr;
    rules.initiator = !options.hold;
    rules.peer = options.infiniband ? mpa::PeerKind::uiw : options.peer;
    rules.hello = rules.peer == mpa::PeerKind::not_known;
    rules.mulpdu_to_uiw = options.mulpdu_to_uiw != 0 ? options.mulpdu_to_uiw : options.mulpdu;
    rules.completion = options.completion;
    rules.manual = options.infiniband;
    rules.xrc_target = xrc_target;
    tx.start(rules, *reads);
    rx.start(*reads, rules);
    deframer.start(options.crc);
  }

  Stag expose(Bytes& memory, std::uint32_t rights, std::uint64_t base, const void* whose = nullptr) {
    ddp::Region region;
    region.memory = memory.data();
    region.base = base;
    region.length = memory.size();
    region.rights = rights;
    region.domain = whose != nullptr ? whose : &domain;
    return stags.add(region).value();
  }

  // Any memory of the test, by its address.
  rdmap::Sge named(const MemorySegment& piece) {
    const auto address = reinterpret_cast<std::uintptr_t>(piece.data);
    return {all, static_cast<std::uint32_t>(piece.size), address,
            stags.registered(all, &domain, address, piece.size, ddp::kLocalRead)};
  }
  std::vector<rdmap::Sge> named(const std::vector<MemorySegment>& pieces) {
    std::vector<rdmap::Sge> sges;
    for (const MemorySegment& piece : pieces) sges.push_back(named(piece));
    return sges;
  }

  // The entry at the tail, filled in but for the kind's own fields, and not pushed.
  rdmap::SendWork& prepare(std::uint64_t id, WorkKind kind, const std::vector<MemorySegment>& pieces) {
    REQUIRE(queue.has_room(queue.tail()));
    rdmap::SendWork& work = queue.at(queue.tail());
    work = {};
    work.id = id;
    work.kind = kind;
    work.signaled = true;
    const std::vector<rdmap::Sge> sges = named(pieces);
    work.sges = static_cast<std::uint16_t>(sges.size());
    std::copy(sges.begin(), sges.end(), queue.sge_room(queue.tail()));
    for (const MemorySegment& piece : pieces) work.length += static_cast<std::uint32_t>(piece.size);
    return work;
  }
  void send(std::uint64_t id, const std::vector<MemorySegment>& pieces, bool solicited = false,
            std::optional<Stag> invalidate = {}) {
    auto& work = prepare(id, WorkKind::send, pieces);
    work.solicited = solicited;
    work.invalidates = invalidate.has_value();
    work.invalidate = invalidate.value_or(Stag{});
    queue.push();
  }
  void send_immediate(std::uint64_t id, const std::vector<MemorySegment>& pieces, std::uint32_t word,
                      bool solicited = false) {
    auto& work = prepare(id, WorkKind::send, pieces);
    work.has_immediate = true;
    work.immediate = rdmap::immediate_of_word(word);
    work.solicited = solicited;
    queue.push();
  }
  void write(std::uint64_t id, const std::vector<MemorySegment>& pieces, Stag stag, std::uint64_t offset,
             bool fence = false) {
    auto& work = prepare(id, WorkKind::write, pieces);
    work.remote_stag = stag;
    work.remote_offset = offset;
    work.fence = fence;
    queue.push();
  }
  void read(std::uint64_t id, const std::vector<MemorySegment>& pieces, Stag stag, std::uint64_t offset) {
    auto& work = prepare(id, WorkKind::read, pieces);
    work.remote_stag = stag;
    work.remote_offset = offset;
    work.sink_stag = static_cast<Stag>(0x51000000 + static_cast<std::uint32_t>(id));
    work.sink_offset = 0x1000 * id;
    queue.push();
  }
  void atomic(std::uint64_t id, Bytes& result, rdmap::AtomicOpcode opcode, const rdmap::AtomicOperands& operands,
              Stag stag, std::uint64_t offset, bool fence = false) {
    auto& work = prepare(id, WorkKind::atomic, {{result.data(), result.size()}});
    work.atomic = opcode;
    work.remote_stag = stag;
    work.remote_offset = offset;
    work.fence = fence;
    REQUIRE(queue.has_operand_room(queue.tail()));
    queue.operands(queue.tail()) = operands;
    queue.push();
  }
  // An RDMA Write with Immediate Data behind it.
  void write_immediate(std::uint64_t id, const std::vector<MemorySegment>& pieces, Stag stag, std::uint64_t offset,
                       const rdmap::Immediate& immediate, bool solicited = false) {
    auto& work = prepare(id, WorkKind::write, pieces);
    work.remote_stag = stag;
    work.remote_offset = offset;
    work.has_immediate = true;
    work.immediate = immediate;
    work.solicited = solicited;
    queue.push();
  }
  void immediate(std::uint64_t id, const rdmap::Immediate& value, bool solicited = false) {
    auto& work = prepare(id, WorkKind::immediate, {});
    work.immediate = value;
    work.solicited = solicited;
    queue.push();
  }
  void local_invalidate(std::uint64_t id, Stag stag, bool fence = false) {
    auto& work = prepare(id, WorkKind::local_invalidate, {});
    work.invalidate = stag;
    work.fence = fence;
    queue.push();
  }
  void bind(std::uint64_t id, const ddp::Binding& binding, bool fence = false) {
    prepare(id, WorkKind::bind, {}).fence = fence;
    REQUIRE(queue.has_operand_room(queue.tail()));
    queue.binding(queue.tail()) = binding;
    queue.push();
  }
  void post(std::uint64_t id, const std::vector<MemorySegment>& pieces) {
    std::uint32_t length = 0;
    for (const MemorySegment& piece : pieces) length += static_cast<std::uint32_t>(piece.size);
    posted.push_back({id, length, named(pieces)});
  }

  // A ULPDU that comes.
  mpa::UlpduSink::Verdict give(const Bytes& ulpdu) { return rx.ulpdu(ulpdu, 0, ulpdu.size()); }

  // What the transmitter could not send ends everything.
  void flush_failed() {
    REQUIRE(tx.failure());
    tx.flush(tx.failure()->sequence, tx.failure()->status);
  }

  // rdmap::SendHost
  void send_complete(const rdmap::SendWork& work, Status status) override { sent.push_back({work.id, status}); }
  Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override {
    carried.push_back(work.id);
    if (work.kind == WorkKind::bind) {
      return stags.bind(binding, &domain, this) == ddp::WindowError::none ? Status::success : Status::window_bind;
    }
    return stags.invalidate(work.invalidate, &domain, this) == ddp::WindowError::none ? Status::success
                                                                                      : Status::local_protection;
  }
  // rdmap::ReceiveHost
  bool next_receive(rdmap::ReceiveBuffer& buffer) override {
    if (posted.empty()) return false;
    buffer = {posted.front().id, posted.front().length, posted.front().sges, &domain};
    return true;
  }
  void receive_complete(const rdmap::ReceiveBuffer& buffer, Status status, const Message& message) override {
    REQUIRE_FALSE(posted.empty());
    REQUIRE(posted.front().id == buffer.id);
    posted.pop_front();
    received.push_back({buffer.id, status, message.length, message.solicited, message.invalidated, message.stag,
                        message.has_immediate, message.immediate, message.is_send});
  }
  void read_complete() override { tx.read_complete(); }
  void read_requested(bool) override { ++requests; }
  void progress_reported(const rdmap::Progress& progress) override {
    ++reports;
    tx.take_report(progress);
  }
  void peer_known(mpa::PeerKind peer, bool answer) override {
    known.push_back(peer);
    tx.peer_known(peer, answer);
  }
  void reports_wanted() override { tx.enable_reports(); }
  const void* choose_queue(std::uint64_t number) override {
    chosen.push_back(number);
    const auto found = queues.find(number);
    return found == queues.end() ? nullptr : found->second;
  }
  std::optional<rdmap::ErrorCode> invalidate(Stag stag) override {
    if (on_invalidate) on_invalidate();
    if (stags.invalidate(stag, &domain, this) == ddp::WindowError::none || stags.retire(stag)) return std::nullopt;
    return invalidate_error;
  }

  // What the socket and the deframer have come to.
  void on_result(mpa::Deframer::Result result) {
    if (!held_off && rx.heard()) {
      held_off = true;
      tx.release_hold();
    }
    paused = result == mpa::Deframer::Result::paused;
    if (result == mpa::Deframer::Result::bad_crc) stopped = bad_crc = true;
    if (result == mpa::Deframer::Result::stopped) {
      stopped = true;
      if (rx.error()) tx.terminate(*rx.error());
      if (rx.peer_terminate()) {
        culprit = rx.peer_terminate()->has_ddp_header ? tx.find_terminated(*rx.peer_terminate()) : tx.oldest_sent();
        if (culprit) tx.placed_before(*culprit);
      }
    }
  }

  struct Posted {
    std::uint64_t id;
    std::uint32_t length;
    std::vector<rdmap::Sge> sges;
  };

  int domain = 0;
  ddp::StagTable stags;
  const Stag all = stags.add({nullptr, 0, ~std::uint64_t{0}, ddp::kLocalWrite, &domain}).value();
  rdmap::SendQueue queue;
  rdmap::Transmitter tx;
  rdmap::Receiver rx;
  rdmap::ConnectionRules rules;
  std::unique_ptr<rdmap::SharedReads> reads;
  mpa::Deframer deframer;
  std::deque<Posted> posted;
  std::vector<Sent> sent;
  std::vector<std::uint64_t> carried;  // local work, in the order in which it was carried out
  std::vector<Received> received;
  unsigned requests = 0, reports = 0;
  std::vector<mpa::PeerKind> known;  // what it has found out about the peer
  std::function<void()> on_invalidate;
  rdmap::ErrorCode invalidate_error = rdmap::ErrorCode::cannot_invalidate;
  bool paused = false, stopped = false, bad_crc = false, broken = false, held_off = false;
  bool xrc_target = false;
  std::map<std::uint64_t, const void*> queues;  // of an XRC target: the domain of each shared receive queue
  std::vector<std::uint64_t> chosen;            // those that the peer has named
  unsigned local_errors = 0;
  std::optional<std::uint64_t> culprit;
};

inline Bytes gather(std::span<iovec> vectors, std::size_t most = ~std::size_t{0}) {
  Bytes out;
  for (const iovec& vector : vectors) {
    const auto* from = static_cast<const std::byte*>(vector.iov_base);
    const std::size_t take = std::min(most - out.size(), vector.iov_len);
    out.insert(out.end(), from, from + take);
  }
  return out;
}

// Everything the transmitter has to send now, taken at once.
inline Bytes take_all(End& end) {
  static auto batch = std::make_unique<rdmap::OutgoingBatch>();
  Bytes out;
  while (end.tx.fill(*batch) == rdmap::Transmitter::Fill::ready) {
    const Bytes octets = gather(batch->fpdus.vectors());
    REQUIRE(octets.size() == batch->fpdus.bytes());
    end.tx.sent(*batch, octets.size());
    out.insert(out.end(), octets.begin(), octets.end());
  }
  return out;
}

// The ULPDUs of a stream of octets; the CRC is checked where it is said to be there.
inline std::vector<Bytes> ulpdus_of(Octets stream, bool crc) {
  std::vector<Bytes> out;
  while (!stream.empty()) {
    REQUIRE(stream.size() >= 8);
    const std::size_t ulpdu = big_endian(stream.first(2));
    const std::size_t size = (2 + ulpdu + 3) / 4 * 4 + 4;
    REQUIRE(stream.size() >= size);
    out.emplace_back(stream.begin() + 2, stream.begin() + 2 + static_cast<std::ptrdiff_t>(ulpdu));
    const Bytes expected = fpdu(out.back(), crc);
    REQUIRE(std::equal(expected.begin(), expected.end(), stream.begin()));
    stream = stream.subspan(size);
  }
  return out;
}

struct Pair {
  void start(const StreamOptions& options = {}, unsigned with_seed = 1) {
    a.start(options);
    b.start(options);
    seed(with_seed);
  }
  // How the octets between them are cut.
  void seed(unsigned with) { random_.seed(with); }
  // Until neither side can do anything more.
  void run() {
    while (step()) {
    }
  }
  bool step() {
    bool moved = transmit(a, to_b_);
    moved = transmit(b, to_a_) || moved;
    moved = deliver(to_b_, b) || moved;
    moved = deliver(to_a_, a) || moved;
    return moved;
  }
  // Only in this direction.
  bool transmit_a() { return transmit(a, to_b_); }
  bool deliver_b() { return deliver(to_b_, b); }
  Bytes& to_b() { return to_b_; }

  End a{1, 64, 100}, b{2, 64, 100};
  std::size_t most = ~std::size_t{0};  // octets a socket takes at a time

 private:
  bool transmit(End& from, Bytes& wire) {
    if (from.broken) return false;
    switch (from.tx.fill(*batch_)) {
      case rdmap::Transmitter::Fill::idle: return false;
      case rdmap::Transmitter::Fill::broken: from.broken = true; return true;
      case rdmap::Transmitter::Fill::local_error:
        ++from.local_errors;
        from.flush_failed();
        return true;
      case rdmap::Transmitter::Fill::ready: break;
    }
    const Bytes all = gather(batch_->fpdus.vectors());
    REQUIRE(all.size() == batch_->fpdus.bytes());
    REQUIRE_FALSE(all.empty());
    std::size_t take = all.size();
    switch (between(random_, 0, 5)) {
      case 0: take = 0; break;
      case 1: take = between(random_, 1, std::min<std::size_t>(take, 20)); break;
      case 2:
      case 3: take = between(random_, 1, take); break;
      default: break;
    }
    take = std::min(take, most);
    from.tx.sent(*batch_, take);
    wire.insert(wire.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(take));
    return true;
  }

  bool deliver(Bytes& wire, End& to) {
    if (to.stopped) {
      wire.clear();
      return false;
    }
    if (to.paused ? to.posted.empty() : wire.empty()) return false;
    std::size_t consumed = 0;
    if (const auto wanted = to.deframer.wanted(to.rx); !to.paused && !wanted.empty() && between(random_, 0, 1) == 0) {
      consumed = between(random_, 1, std::min(wanted.size(), wire.size()));
      std::memcpy(wanted.data(), wire.data(), consumed);
      to.on_result(to.deframer.filled(consumed, to.rx));
    } else {
      std::size_t size = wire.size();
      if (size > 1 && between(random_, 0, 2) != 0) size = between(random_, 1, std::min<std::size_t>(size, 5000));
      const bool was_paused = to.paused;
      const auto outcome = to.deframer.receive(Octets(wire).first(size), to.rx);
      consumed = outcome.consumed;
      if (was_paused) REQUIRE(outcome.result != mpa::Deframer::Result::bad_crc);
      to.on_result(outcome.result);
    }
    wire.erase(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(consumed));
    return true;
  }

  Random random_{1};
  Bytes to_a_, to_b_;
  std::unique_ptr<rdmap::OutgoingBatch> batch_ = std::make_unique<rdmap::OutgoingBatch>();
};

struct Single {
  End end{1};
};
struct StartedEnd : Single {
  StartedEnd() { end.start({}); }
};

// What a peer says of the work it could not do.
inline rdmap::Terminate some_terminate(std::uint8_t code = 1) {
  rdmap::Terminate terminate;
  terminate.layer = rdmap::Layer::ddp;
  terminate.type = 1;
  terminate.code = code;
  return terminate;
}

inline rdmap::Terminate about_write(std::uint32_t stag, std::uint64_t offset) {
  rdmap::Terminate terminate = some_terminate();
  terminate.has_ddp_header = true;
  terminate.ddp_header_size = 14;
  const Bytes header = Wire().u8(0xC1).u8(0x40).u32(stag).u64(offset);
  std::copy(header.begin(), header.end(), terminate.ddp_header.begin());
  return terminate;
}
inline rdmap::Terminate about_untagged(std::uint32_t queue, std::uint32_t msn) {
  rdmap::Terminate terminate = some_terminate();
  terminate.has_ddp_header = true;
  terminate.ddp_header_size = 18;
  const Bytes header = Wire().u8(0x41).u8(queue == 1 ? 0x41 : 0x43).u32(0).u32(queue).u32(msn).u32(0);
  std::copy(header.begin(), header.end(), terminate.ddp_header.begin());
  return terminate;
}

inline MemorySegment memory_segment(const Bytes& memory) { return {memory.data(), memory.size()}; }

// Cuts memory into pieces of random sizes, some of them empty.
inline std::vector<MemorySegment> cut(const Bytes& memory, std::size_t count, Random& random) {
  std::vector<std::size_t> at = {0, memory.size()};
  for (std::size_t i = 1; i < count; ++i) at.push_back(between(random, 0, memory.size()));
  std::sort(at.begin(), at.end());
  std::vector<MemorySegment> pieces;
  for (std::size_t i = 0; i + 1 < at.size(); ++i) pieces.push_back({memory.data() + at[i], at[i + 1] - at[i]});
  return pieces;
}

}  // namespace uiw::test
