// SPDX-License-Identifier: MIT
// One end of a whole stream: framing, DDP and RDMAP in both directions, with a program and a peer that do what the
// input says. The oracle: no octet of memory changes that may not, each work completes once and in order, what is sent
// is well-formed and what was posted or asked for, nothing follows a Terminate, and all of it comes to an end. Input:
// stream/step.h.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "mpa/fpdu_buffer.h"
#include "tests/fuzz/stream/judge.h"
#include "tests/fuzz/stream/mutator.h"
#include "tests/fuzz/stream/peer.h"
#include "tests/fuzz/stream/program.h"

using namespace uiw;
using namespace uiw::fuzz;

namespace {

constexpr std::size_t kAll = ~std::size_t{0};

// One stream, from start-up to its end.
class Run final : public ProgramWatcher {
 public:
  Run(Memory& memory, rdmap::OutgoingBatch& batch) : memory_(memory), batch_(batch) {}

  void start(const std::uint8_t* control) {
    agreed_ = agreed_of(control);
    memory_.reset();
    ledger_.clear();
    judge_.start(agreed_);
    peer_.start(agreed_);
    stopped_ = paused_ = false;
    at_ = again_ = 0;
    program_.emplace(agreed_, memory_, ledger_, *this);
  }

  void step(const Step& step) {
    switch (step.act) {
      case Act::post_receive: return post_receive(step);
      case Act::post_send: return post_send(step);
      case Act::post_write: return post_write(step);
      case Act::post_read: return post_read(step);
      case Act::post_atomic: return post_atomic(step);
      case Act::post_immediate: return post_immediate(step);
      case Act::post_invalidate: return post_invalidate(step);
      case Act::post_bind: return post_bind(step);
      case Act::transmit: return transmit(step.a == 0xFF ? kAll : step.a, step.b, step.c == 0xFF);
      case Act::deliver: return deliver(step.a == 0xFF ? kAll : 1U + step.a, (step.b & 1) != 0);
      case Act::segment: peer_.segment(step); return (step.a & 0x20) != 0 ? deliver(kAll, false) : void();
      case Act::octets: return peer_.octets(step);
      case Act::end: return end(step);
      case Act::setting: return set(step);
      case Act::run: deliver(kAll, false); return transmit(kAll, 0, false);
      default: return change_memory(step);
    }
  }

  // Everything comes to an end.
  void finish() {
    Program& end = *program_;
    transmit(kAll, 0, false);
    if (end.open() && !end.dead) check_nothing_lost();
    end.end(std::nullopt, Status::flushed, true);
    transmit(kAll, 0, false);
    check(ledger_.all_complete() && end.queue.empty());
    if (!end.dead && end.phase == Program::Phase::lingering) {
      check(judge_.at_boundary());
      check(judge_.terminated() == end.tx.terminating());
    }
    end.check_placed();
    memory_.release(&end);
    program_.reset();
  }

 private:
  // ---- The program posts ----

  static void add(Posted& posted, const Piece& piece) {
    posted.pieces[posted.count++] = piece;
    posted.work.sges = static_cast<std::uint16_t>(posted.count);
    posted.work.length += piece.sge.length;
  }
  void add_pieces(Posted& posted, const Step& step, unsigned count, ddp::Right right) {
    if (count > 0) add(posted, memory_.piece(step.c, step.d, right));
    if (count > 1) add(posted, memory_.piece(step.e, step.f, right));
    if (count > 2) add(posted, memory_.piece(step.g, step.b, right));
  }
  void add_source(Posted& posted, const Step& step) {
    if ((step.a & 0x80) != 0) {
      posted.work.inlined = true;
      posted.work.length = step.d % (Program::kInline + 1);
    } else {
      add_pieces(posted, step, step.a & 3, ddp::kLocalRead);
    }
  }
  // Sinks are what a peer answers to; no probe has such a name.
  static void name_sink(Posted& posted) {
    posted.work.sink_stag = Stag{0x5100 + static_cast<std::uint32_t>(posted.work.id)};
    posted.work.sink_offset = 0x1'0000'0000 * posted.work.id;
  }
  void name_target(Posted& posted, unsigned which) {
    posted.work.remote_stag = Stag{0x1000U + which};
    posted.work.remote_offset = which * 0x0100'0000'0000U;
  }
  static rdmap::Immediate immediate(const Step& step) {
    return {std::byte{step.b}, std::byte{step.c}, std::byte{step.d}, std::byte{step.e}};
  }

  void post_receive(const Step& step) {
    if (!program_->may_post_receive()) return;
    Program::Receive& receive = program_->receives.emplace_back();
    receive.id = program_->receive_ids++;
    Posted pieces;
    add_pieces(pieces, step, step.a & 3, ddp::kLocalWrite);
    receive.length = pieces.work.length;
    receive.count = pieces.count;
    receive.pieces = pieces.pieces;
    for (unsigned i = 0; i < receive.count; ++i) receive.sges[i] = receive.pieces[i].sge;
    program_->note_contests();
    resume();
  }
  void post_send(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::send, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    posted->work.solicited = (step.a & 4) != 0;
    posted->work.has_immediate = (step.a & 16) != 0;
    posted->work.invalidates = (step.a & 8) != 0 && !posted->work.has_immediate;
    if (posted->work.invalidates) posted->work.invalidate = Stag{0x2000U + step.b};
    if (posted->work.has_immediate) posted->work.immediate = rdmap::immediate_of_word(step.b);
    add_source(*posted, step);
    program_->push(*posted);
  }
  void post_write(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::write, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    name_target(*posted, step.b);
    posted->work.has_immediate = (step.a & 4) != 0;
    posted->work.solicited = (step.a & 8) != 0 && posted->work.has_immediate;
    if (posted->work.has_immediate) posted->work.immediate = immediate(step);
    add_source(*posted, step);
    program_->push(*posted);
  }
  void post_read(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::read, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    name_target(*posted, step.b);
    name_sink(*posted);
    add_pieces(*posted, step, step.a & 3, ddp::kLocalWrite);
    program_->push(*posted);
    program_->note_contests();
  }
  void post_atomic(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::atomic, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    name_target(*posted, step.b);
    name_sink(*posted);
    posted->work.atomic = (step.a & 1) != 0 ? rdmap::AtomicOpcode::compare_swap : rdmap::AtomicOpcode::fetch_add;
    add(*posted, memory_.piece(step.c, 8, ddp::kLocalWrite));
    const std::uint64_t id = posted->work.id;
    program_->queue.operands(program_->queue.tail()) = {id, id, id, id};
    program_->push(*posted);
    program_->note_contests();
  }
  void post_immediate(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::immediate, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    posted->work.solicited = (step.a & 4) != 0;
    posted->work.immediate = immediate(step);
    program_->push(*posted);
  }
  void post_invalidate(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::local_invalidate, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    const bool region = (step.b & 8) != 0;
    posted->work.invalidate = region ? memory_.regions[step.b % 6].stag : memory_.windows[step.b % 3].stag;
    program_->push(*posted);
  }
  void post_bind(const Step& step) {
    Posted* const posted = program_->prepare(WorkKind::bind, (step.a & 0x40) != 0, (step.a & 0x20) != 0);
    if (posted == nullptr) return;
    const Window& window = memory_.windows[step.b % 3];
    const Registered& region = memory_.regions[step.c % 6];
    ddp::Binding binding{};
    binding.type = (step.a & 8) != 0 ? ddp::WindowType::type1 : window.type;
    const bool first = binding.type == ddp::WindowType::type1;
    binding.window = first ? memory_.stags.next_key(window.stag)
                           : Stag{(static_cast<std::uint32_t>(window.stag) & ~0xFFU) | (step.b >> 2)};
    binding.region = region.stag;
    binding.offset = region.base + step.d * 8U;
    binding.length = step.e * 8U;
    binding.rights = step.f & (ddp::kRemoteRead | ddp::kRemoteWrite | ddp::kRemoteAtomic);
    binding.zero_based = (step.a & 16) != 0;
    program_->queue.binding(program_->queue.tail()) = binding;
    program_->push(*posted);
  }

  // ---- The program changes its memory ----

  void change_memory(const Step& step) {
    constexpr std::uint32_t kRights = ddp::kLocalWrite | ddp::kRemoteRead | ddp::kRemoteWrite | ddp::kRemoteAtomic;
    const std::size_t slot = step.a % Memory::kRegions;
    const Range range{step.b * 16U, step.c * 16U};
    switch (step.act) {
      case Act::register_memory:
        memory_.add(slot, range, step.d & (kRights | ddp::kBindWindows), step.e, (step.f & 7) == 7);
        break;
      case Act::deregister_memory: memory_.remove(slot); break;
      case Act::change_memory:
        memory_.change(slot, range, step.d & (kRights | ddp::kBindWindows), (step.f & 1) != 0);
        break;
      case Act::window:
        memory_.allocate(step.a % Memory::kWindows,
                         (step.b & 1) != 0 ? ddp::WindowType::type1 : ddp::WindowType::type2);
        break;
      case Act::scribble:
        memory_.scribble(range, std::byte{step.d});
        for (Program::Receive& receive : program_->receives) {
          for (const Piece& piece : receive.pieces) receive.contested = receive.contested || piece.range.meets(range);
        }
        break;
      default: break;
    }
    program_->note_contests();
  }

  void set(const Step& step) {
    Program& end = *program_;
    switch (step.a % 6) {
      case 0: end.report(); break;
      case 1: end.tx.limit_ord(step.b & 3); break;
      case 2:
        memory_.denied = step.b & (ddp::kRemoteRead | ddp::kRemoteWrite | ddp::kRemoteAtomic);
        end.rx.deny(memory_.denied);
        break;
      case 3: end.tx.note_waiting(); break;
      case 4: end.tx.hold_from(end.queue.tail()); break;
      default: end.tx.hold_from(kAll); break;
    }
  }

  // ---- Octets move ----

  void transmit(std::size_t most, unsigned policy, bool gone) {
    Program& end = *program_;
    if (!end.sends()) return;
    end.tx.set_probe_policy(static_cast<rdmap::Transmitter::ProbePolicy>(policy % 3));
    for (unsigned rounds = 0;; ++rounds) {
      check(rounds < 1000);  // it must come to an end
      const auto fill = end.tx.fill(batch_);
      const bool steady = !check_executed(end.reads);
      if (fill == rdmap::Transmitter::Fill::idle) break;
      if (fill == rdmap::Transmitter::Fill::local_error) continue;
      if (fill == rdmap::Transmitter::Fill::broken) {
        end.dead = true;
        break;
      }
      if (gone) {
        gone = false;
        if (end.tx.source_gone(batch_)) continue;
        end.dead = true;
        break;
      }
      check(!batch_.fpdus.empty());
      const std::size_t take = std::min(most, batch_.fpdus.bytes());
      judge_.hear(first(take), steady);
      end.tx.sent(batch_, take);
      most -= take;
      if (take < batch_.fpdus.bytes() || most == 0) break;
    }
    finish_sending();
  }
  // As a socket takes them.
  View first(std::size_t octets) {
    outgoing_.clear();
    for (const iovec& vector : batch_.fpdus.vectors()) {
      const std::size_t take = std::min(vector.iov_len, octets - outgoing_.size());
      const auto* const from = static_cast<const std::uint8_t*>(vector.iov_base);
      outgoing_.insert(outgoing_.end(), from, from + take);
    }
    check(outgoing_.size() == octets);
    return outgoing_;
  }
  void finish_sending() {
    Program& end = *program_;
    if (end.open() && (end.dead || end.tx.failure() || end.tx.terminating())) {
      end.end(std::nullopt, Status::flushed, true);
      return transmit(kAll, 0, false);
    }
    if (end.phase != Program::Phase::closing || end.dead) return;
    end.tx.release_unsignaled();
    if (!end.queue.empty() || end.tx.pending()) return;
    judge_.close();
    end.end(std::nullopt, Status::flushed, false);
  }

  void deliver(std::size_t most, bool direct) {
    Program& end = *program_;
    for (unsigned rounds = 0; most > 0 && end.open() && !stopped_; ++rounds) {
      check(rounds < 10'000);
      const std::size_t there = peer_.wire.size() - at_;
      if (paused_ ? end.receives.empty() : there == 0) break;
      const MutableOctets wanted = paused_ || !direct ? MutableOctets{} : end.deframer.wanted(end.rx);
      if (!wanted.empty()) {
        const std::size_t take = std::min({wanted.size(), there, most});
        std::memcpy(wanted.data(), peer_.wire.data() + at_, take);
        at_ += take;
        most -= take;
        act_on(end.deframer.filled(take, end.rx));
        continue;
      }
      // Fresh memory of just this size, so that reading past it is found.
      const std::size_t give = std::min(there, paused_ ? std::max(most, again_) : most);
      const auto segment = std::make_unique_for_overwrite<std::byte[]>(give);
      std::memcpy(segment.get(), peer_.wire.data() + at_, give);
      const auto [result, consumed] = end.deframer.receive({segment.get(), give}, end.rx);
      check(consumed <= give);
      at_ += consumed;
      most -= std::min(most, std::max<std::size_t>(consumed, 1));
      again_ = result == mpa::Deframer::Result::paused ? give - consumed : 0;
      act_on(result);
    }
    end.check_placed();
  }
  void act_on(mpa::Deframer::Result result) {
    Program& end = *program_;
    using Result = mpa::Deframer::Result;
    end.check_placed();
    if (end.rx.heard()) end.tx.release_hold();
    if (paused_ != (result == Result::paused)) {
      paused_ = !paused_;
      if (end.tx.completion() == rdmap::Completion::remote) end.tx.set_receive_stalled(paused_);
    }
    if (result == Result::paused) check(end.receives.empty());
    if (result == Result::more || result == Result::paused) return;
    stopped_ = true;
    check(result != Result::no_memory);
    if (result == Result::bad_crc || result == Result::bad_marker) {
      check(peer_.damaged());
      rdmap::Terminate terminate;
      terminate.layer = rdmap::Layer::llp;
      terminate.code =
          static_cast<std::uint8_t>(result == Result::bad_crc ? mpa::MpaError::crc : mpa::MpaError::marker);
      return end.end_with(terminate);
    }
    check(end.rx.error().has_value() != end.rx.peer_terminate().has_value());
    if (end.rx.error()) {
      check_blame(*end.rx.error());
      return end.end_with(*end.rx.error());
    }
    end.peer_terminated(*end.rx.peer_terminate());
  }
  // A peer that does nothing wrong is not accused of it (RFC 5041 section 7.2, RFC 5040 section 7.2).
  void check_blame(const rdmap::Terminate& error) const {
    if (peer_.odd()) return;
    const View header(reinterpret_cast<const std::uint8_t*>(error.ddp_header.data()), error.ddp_header_size);
    if (error.has_read_request) {
      const auto request = rdmap::decode_read_request(error.read_request);
      const bool wraps = request->sink_offset + request->size < request->sink_offset;
      return check(wraps || !allowed(request->source_stag, request->source_offset, request->size, ddp::kRemoteRead));
    }
    if (error.layer != rdmap::Layer::ddp) return;
    check(error.type != static_cast<std::uint8_t>(ddp::ErrorType::local_catastrophic));
    if (error.type == static_cast<std::uint8_t>(ddp::ErrorType::untagged)) {
      const auto code = static_cast<ddp::UntaggedError>(error.code);
      return check(code == ddp::UntaggedError::no_buffer || code == ddp::UntaggedError::too_long);
    }
    check(error.code != static_cast<std::uint8_t>(ddp::TaggedError::version) && header.size() == 14 &&
          header[1] == 0x40);
    const Stag stag{static_cast<std::uint32_t>(number(header.subspan(2, 4)))};
    check(!allowed(stag, number(header.subspan(6, 8)), error.segment_length - 14U, ddp::kRemoteWrite));
  }
  bool allowed(Stag stag, std::uint64_t offset, std::size_t size, ddp::Right right) const {
    return (memory_.denied & right) == 0 && memory_.accessed(stag, offset, size, right) != nullptr;
  }
  void resume() {
    if (paused_) deliver(1, false);
  }

  void end(const Step& step) {
    Program& end = *program_;
    if (!end.open()) return;
    switch (step.a % 4) {
      case 0: return end.end(std::nullopt, Status::flushed, true);
      case 1:
        if (end.phase != Program::Phase::running) return;
        end.phase = Program::Phase::closing;
        return transmit(kAll, 0, false);
      case 2: return end.end(std::nullopt, Status::flushed, false);
      default:
        rdmap::Terminate terminate;
        terminate.type = static_cast<std::uint8_t>(rdmap::ErrorType::local_catastrophic);
        return end.end_with(terminate);
    }
  }

  // By the local rule no work waits but for the peer.
  void check_nothing_lost() {
    Program& end = *program_;
    const Posted* const oldest = ledger_.oldest();
    if (oldest == nullptr || end.tx.completion() == rdmap::Completion::remote) return;
    if (!agreed_.initiator && !end.rx.heard()) return;
    if (end.tx.pending()) check(false);
    if (!end.tx.unsent()) check(!oldest->answered && rdmap::is_answered(oldest->work.kind));
    check(!oldest->whole || rdmap::is_answered(oldest->work.kind));
  }

  // ---- ProgramWatcher ----

  void ending() override { judge_.freeze(); }
  void request_taken(const rdmap::SharedReads::Inbound& request) override { judge_.asked(request); }
  void peer_known(mpa::PeerKind peer) override { judge_.peer_known(peer); }
  bool check_executed(rdmap::SharedReads& reads) override { return judge_.check_executed(reads); }
  std::optional<Bytes> next_message() override { return next(peer_.messages); }
  std::optional<Bytes> next_answer() override { return next(peer_.answers); }
  std::optional<Bytes> next(std::deque<Bytes>& all) const {
    if (peer_.damaged() || all.empty()) return std::nullopt;
    Bytes oldest = std::move(all.front());
    all.pop_front();
    return oldest;
  }

  Memory& memory_;
  rdmap::OutgoingBatch& batch_;
  Agreed agreed_{};
  Ledger ledger_;
  Judge judge_{memory_, ledger_};
  Peer peer_{memory_, judge_};
  std::optional<Program> program_;
  Bytes outgoing_;
  bool stopped_ = false, paused_ = false;
  std::size_t at_ = 0, again_ = 0;  // in the octets of the peer
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Memory memory;
  static rdmap::OutgoingBatch batch;
  static Run run(memory, batch);
  if (size < kStepSize) return 0;
  mpa::keep_spare_fpdu_buffers(true);  // new ones for each input take long
  run.start(data);
  for (std::size_t at = kStepSize; at + kStepSize <= size; at += kStepSize) run.step(step_of(data + at));
  run.finish();
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  return Mutator(data, size, most, seed).mutate();
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* a, std::size_t a_size, const std::uint8_t* b,
                                                 std::size_t b_size, std::uint8_t* out, std::size_t most,
                                                 unsigned seed) {
  return cross(a, a_size, b, b_size, out, most, seed);
}
