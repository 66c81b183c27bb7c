// SPDX-License-Identifier: MIT
// The program's end of a stream: its queues, the protocol layers that are tested, and what a provider does around them
// when a stream runs and ends. Each completion is checked: it is the oldest, it comes once, and from then on nothing
// writes to its memory.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "mpa/deframer.h"
#include "rdmap/receiver.h"
#include "rdmap/transmit/transmitter.h"
#include "tests/fuzz/stream/ledger.h"
#include "tests/fuzz/stream/step.h"

namespace uiw::fuzz {

// What the program waits for and the peer has to tell the program's end of, as far as the checks need it.
class ProgramWatcher {
 public:
  virtual void ending() = 0;
  virtual void request_taken(const rdmap::SharedReads::Inbound& request) = 0;
  virtual void peer_known(mpa::PeerKind peer) = 0;
  // Atomic operations may have been executed. True if memory has changed.
  virtual bool check_executed(rdmap::SharedReads& reads) = 0;
  // The payload of the next message, or of the next answer, as the peer has sent it; nothing if that is not known.
  virtual std::optional<std::vector<std::uint8_t>> next_message() = 0;
  virtual std::optional<std::vector<std::uint8_t>> next_answer() = 0;

 protected:
  ~ProgramWatcher() = default;
};

class Program final : public rdmap::SendHost, public rdmap::ReceiveHost {
 public:
  enum class Phase : std::uint8_t { running, closing, lingering, ended };
  static constexpr std::uint32_t kDepth = 8, kInline = 32;

  Program(const Agreed& agreed, Memory& memory, Ledger& ledger, ProgramWatcher& watcher)
      : queue(kDepth, 3, kInline),
        reads(agreed.ord + agreed.probe_slots, agreed.ird),
        tx(queue, {memory.stags, &memory.domain, this}, *this),
        rx({memory.stags, &memory.domain, this}, *this),
        agreed_(agreed),
        memory_(memory),
        ledger_(ledger),
        watcher_(watcher) {
    rules.initiator = agreed.initiator;
    rules.manual = manual();
    rules.crc = agreed.crc;
    rules.marks = agreed.markers_out;
    rules.marked = agreed.markers_in;
    rules.mulpdu = agreed.mulpdu;
    rules.mulpdu_to_uiw = agreed.mulpdu_to_uiw;
    rules.rtr = agreed.rtr;
    rules.peer = agreed.peer;
    rules.hello = agreed.peer == mpa::PeerKind::not_known;
    rules.ord = agreed.ord;
    rules.ird = rules.requests_in = agreed.ird;
    rules.requests_out = agreed.ord + agreed.probe_slots;
    rules.completion = agreed.remote_completion ? rdmap::Completion::remote : rdmap::Completion::local;
    tx.start(rules, reads);
    rx.start(reads, rules);
    rx.deny(memory.denied);
    deframer.start(agreed.crc, agreed.markers_in ? mpa::Deframer::Kind::marked : mpa::Deframer::Kind::plain);
  }
  bool manual() const { return agreed_.reports == rdmap::Reports::always; }
  bool open() const { return phase == Phase::running || phase == Phase::closing; }
  bool sends() const { return phase != Phase::ended && !dead; }

  // ---- Posting ----

  // Nothing where the queue is full.
  Posted* prepare(WorkKind kind, bool signaled, bool fence) {
    if (phase != Phase::running) return nullptr;
    if (queue.full()) tx.release_unsignaled();
    if (!queue.has_room(queue.tail()) || !queue.has_operand_room(queue.tail())) return nullptr;
    const std::uint64_t id = ledger_.next_id();
    Posted& posted = ledger_.post();
    posted.work.kind = kind;
    posted.work.id = id;
    posted.work.signaled = signaled;
    posted.work.fence = fence;
    return &posted;
  }
  void push(const Posted& posted) {
    queue.at(queue.tail()) = posted.work;
    if (posted.work.inlined) {
      for (std::size_t i = 0; i < posted.work.length; ++i) {
        queue.inline_room(queue.tail())[i] = std::byte{inline_octet(posted.work.id, i)};
      }
    } else {
      for (unsigned i = 0; i < posted.count; ++i) queue.sge_room(queue.tail())[i] = posted.pieces[i].sge;
    }
    queue.push();
  }
  struct Receive {
    std::uint64_t id;
    std::uint32_t length = 0;
    unsigned count = 0;
    std::array<Piece, 3> pieces{};
    std::array<rdmap::Sge, 3> sges{};
    bool contested = false;  // something else may write to its memory
  };
  bool may_post_receive() const { return open() && receives.size() < kDepth; }

  // ---- What may change ----

  // An octet that a receive, or an answer to a Read or an atomic operation, may be placed in.
  bool placeable(std::size_t octet) {
    for (const Receive& receive : receives) {
      for (unsigned i = 0; i < receive.count; ++i) {
        if (receive.pieces[i].range.has(octet) && memory_.usable(receive.pieces[i], ddp::kLocalWrite)) return true;
      }
    }
    for (std::uint64_t i = reads.outstanding.popped(); i < reads.outstanding.pushed(); ++i) {
      const std::uint64_t sequence = reads.outstanding.at(i).sequence;
      if (sequence >= rdmap::SharedReads::kProbe) continue;
      const Posted& posted = ledger_.of(queue.at(sequence).id);
      for (unsigned p = 0; p < posted.count; ++p) {
        if (posted.pieces[p].range.has(octet) && memory_.usable(posted.pieces[p], ddp::kLocalWrite)) return true;
      }
    }
    return false;
  }
  void check_placed() {
    memory_.compare(
        [this](std::size_t octet) { return memory_.exposed(octet, ddp::kRemoteWrite) || placeable(octet); });
  }
  // Marks receives whose memory something else may be written to.
  void note_contests() {
    for (std::size_t i = 0; i < receives.size(); ++i) {
      for (unsigned p = 0; p < receives[i].count && !receives[i].contested; ++p) {
        receives[i].contested = contested(i, p);
      }
    }
  }

  // ---- rdmap::SendHost ----

  void send_complete(const rdmap::SendWork& work, Status status) override { ledger_.complete(work, status); }
  Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override {
    watcher_.check_executed(reads);
    Posted& posted = ledger_.of(work.id);
    check(!posted.carried_out && ledger_.of(work.id).work.kind == work.kind);
    posted.carried_out = true;
    if (work.kind == WorkKind::bind) {
      const bool bound = memory_.bind(binding, this);
      note_contests();
      return bound ? Status::success : Status::window_bind;
    }
    switch (memory_.invalidate(work.invalidate, this)) {
      case ddp::WindowError::none: return Status::success;
      case ddp::WindowError::deallocated: return Status::local_operation;
      default: return Status::local_protection;
    }
  }

  // ---- rdmap::ReceiveHost ----

  bool next_receive(rdmap::ReceiveBuffer& buffer) override {
    check(!taken_);
    if (receives.empty()) return false;
    const Receive& receive = receives.front();
    buffer = {receive.id, receive.length, {receive.sges.data(), receive.count}, &memory_.domain};
    taken_ = true;
    return true;
  }
  void receive_complete(const rdmap::ReceiveBuffer& buffer, Status status, const Message& message) override {
    check_placed();
    check(taken_ && !receives.empty() && receives.front().id == buffer.id);
    taken_ = false;
    if (status == Status::success && message.is_send) {
      check(message.length <= receives.front().length);
      if (message.length > 0) compare(receives.front(), message.length);
    }
    receives.pop_front();
  }
  void read_complete() override {
    check_placed();
    check(!reads.outstanding.empty());
    const rdmap::SharedReads::Outstanding& request = reads.outstanding.front();
    if (request.sequence < rdmap::SharedReads::kProbe) {
      const std::uint64_t id = queue.at(request.sequence).id;
      ledger_.answer(id);
      const auto answer = watcher_.next_answer();
      if (answer) check(answer->size() == ledger_.of(id).work.length);
    } else {
      watcher_.next_answer();
    }
    tx.read_complete();
  }
  void read_requested(bool probe) override {
    const rdmap::SharedReads::Inbound& request = reads.inbound.at(reads.inbound.pushed() - 1);
    check(probe == rdmap::SharedReads::is_probe(request));
    watcher_.request_taken(request);
  }
  void progress_reported(const rdmap::Progress& progress) override { tx.take_report(progress); }
  void peer_known(mpa::PeerKind peer, bool answer) override {
    check(agreed_.peer == mpa::PeerKind::not_known && answer == !agreed_.initiator);
    watcher_.peer_known(peer);
    tx.peer_known(peer, answer);
  }
  void reports_wanted() override {
    reports_wanted_ = true;
    tx.enable_reports();
  }
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override {
    check_placed();
    switch (memory_.invalidate(stag, this)) {
      case ddp::WindowError::none: return std::nullopt;
      case ddp::WindowError::deallocated: return rdmap::ErrorCode::invalid_stag;
      case ddp::WindowError::not_associated: return rdmap::ErrorCode::not_associated;
      default: return rdmap::ErrorCode::cannot_invalidate;
    }
  }
  void report() {
    if (agreed_.reports == rdmap::Reports::always) tx.report(rdmap::kRnrReport, rx.progress());
    if (reports_wanted_) tx.report(rdmap::kProgressReport, rx.progress());
  }

  // ---- The end ----

  // Work completes, and then nothing touches its memory any more.
  void end(std::optional<std::uint64_t> culprit, Status status, bool lingers) {
    if (!open()) return;
    watcher_.ending();
    if (const auto& failure = tx.failure(); failure && !(culprit && *culprit < failure->sequence)) {
      culprit = failure->sequence;
      status = failure->status;
    }
    tx.flush(culprit, status);
    check(ledger_.all_complete() && queue.empty());
    phase = lingers && !dead ? Phase::lingering : Phase::ended;
    rx.abandon(Status::flushed);
    check(!taken_);
    receives.clear();
  }
  void end_with(const rdmap::Terminate& terminate) {
    if (rx.failed_read()) tx.placed_before(*rx.failed_read());
    if (!manual() || !rx.failed_read()) tx.terminate(terminate, terminate.layer != rdmap::Layer::llp);
    end(rx.failed_read(), Status::local_protection, true);
  }
  void peer_terminated(const rdmap::Terminate& terminate) {
    const auto culprit = terminate.has_ddp_header ? tx.find_terminated(terminate) : tx.oldest_sent();
    if (culprit) {
      check(*culprit >= queue.head() && *culprit < queue.tail());
      tx.placed_before(*culprit);
    }
    end(culprit, Status::remote_operation, false);
  }

  Phase phase = Phase::running;
  bool dead = false;  // an FPDU cannot be finished
  rdmap::SendQueue queue;
  rdmap::ConnectionRules rules;
  rdmap::SharedReads reads;
  rdmap::Transmitter tx;
  rdmap::Receiver rx;
  mpa::Deframer deframer;
  std::deque<Receive> receives;
  std::uint64_t receive_ids = 0;

 private:
  bool contested(std::size_t which, unsigned place) const {
    const Range& range = receives[which].pieces[place].range;
    constexpr std::uint32_t kWrites = ddp::kRemoteWrite | ddp::kRemoteAtomic;
    for (const Registered& region : memory_.regions) {
      if (region.valid && (region.rights & kWrites) != 0 && region.range.meets(range)) return true;
    }
    for (const Window& window : memory_.windows) {
      if (window.bound && (window.rights & kWrites) != 0 && window.range.meets(range)) return true;
    }
    for (std::size_t i = 0; i < receives.size(); ++i) {
      for (unsigned p = 0; p < receives[i].count; ++p) {
        if ((i != which || p != place) && receives[i].pieces[p].range.meets(range)) return true;
      }
    }
    for (std::uint64_t i = queue.head(); i < queue.tail(); ++i) {
      const Posted& posted = ledger_.of(const_cast<rdmap::SendQueue&>(queue).at(i).id);
      if (!rdmap::is_answered(posted.work.kind)) continue;
      for (unsigned p = 0; p < posted.count; ++p) {
        if (posted.pieces[p].range.meets(range)) return true;
      }
    }
    return false;
  }
  // The message that has arrived is the one that the peer has sent.
  void compare(const Receive& receive, std::size_t length) {
    const auto sent = watcher_.next_message();
    if (!sent) return;
    check(sent->size() == length);
    std::size_t at = 0;
    for (unsigned i = 0; i < receive.count && at < length; ++i) {
      const Piece& piece = receive.pieces[i];
      const std::size_t take = std::min(piece.range.size, length - at);
      if (!receive.contested && piece.region < Memory::kRegions) {
        check(std::memcmp(memory_.at(piece.range.at), sent->data() + at, take) == 0);
      }
      at += take;
    }
    check(at == length);
  }

  const Agreed& agreed_;
  Memory& memory_;
  Ledger& ledger_;
  ProgramWatcher& watcher_;
  bool taken_ = false;  // the first receive is
  bool reports_wanted_ = false;
};

}  // namespace uiw::fuzz
