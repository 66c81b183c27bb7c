// SPDX-License-Identifier: MIT
#include "rdmap/transmitter.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

namespace uiw::rdmap {

void Transmitter::start(const Parameters& parameters, SharedReads* reads) {
  framer_.start(parameters.crc, false);
  mulpdu_ = parameters.mulpdu;
  most_ord_ = ord_ = parameters.ord;
  rtr_ = parameters.rtr;
  hold_ = parameters.hold;
  send_immediate_ = parameters.send_immediate;
  infiniband_ = acknowledges_ = parameters.infiniband;
  reads_ = reads;
  cursor_.rtr_sent = rtr_ == mpa::ReadyToReceive::none;
  cursor_.sequence = cursor_.asked_at = queue_.head();
  reads_pushed_ = answered_pushed_ = dealt_.sequence = queue_.head();
  remote_ = parameters.completion == Completion::remote && agreed() > 0;
  if (remote_ && parameters.notices && !infiniband_) notice(notices_due_++) = {kAcknowledge, {}};
}

// What sends nothing need not wait for the peer's first FPDU.
bool Transmitter::local_work_next(const Cursor& cursor) const {
  return cursor.sequence < std::min(queue_.tail(), hold_from_) && is_local(queue_.at(cursor.sequence).kind);
}

// May the next work begin, or must it wait for answers?
bool Transmitter::may_begin(const Cursor& cursor) const {
  if (cursor.sequence >= std::min(queue_.tail(), hold_from_)) return false;
  const SendWork& next = queue_.at(cursor.sequence);
  const bool pushed = cursor.sequence < reads_pushed_;
  if (next.fence && !pushed && reads_outstanding_ > 0) return false;
  const bool first = queue_.head() == cursor.sequence;
  if (next.fence && is_local(next.kind) && !first) return false;
  // A failure ends the stream: what stands before it completes as it would have done.
  if (remote_ && !first && fails(next) && cursor.sequence >= answered_pushed_) return false;
  return !is_answered(next.kind) || pushed || read_has_room();
}

bool Transmitter::read_has_room() const {
  // With none at all, a read posted before the agreement would wait for ever: fill() fails it.
  if (reads_outstanding_ >= ord_ && ord_ > 0) return false;
  if (probes_outstanding() > 0 && reads_outstanding_ + probes_outstanding() >= agreed()) return false;
  // Where it is for lack of memory that there is none, others are outstanding, and it goes on with their answers.
  return reads_->outstanding.has_room();
}

bool Transmitter::fails(const SendWork& work) const {
  return work.status != Status::success || is_impossible(work);
}

// Is this the place for a probe? It is where nothing else can follow in the batch, so that it covers as much as it can,
// and in front of a message that does not fit into the batch, so that no long message holds it up.
bool Transmitter::probe_due(const Cursor& cursor, const mpa::Batch* batch) const {
  if (!remote_) return false;
  if (cursor.probes != probes_pushed_) return cursor.sequence == probe(cursor.probes).at;
  // One that is to be sent again will ask, and has its place in SharedReads.
  if (cursor.sequence < answered_pushed_) return false;
  if (receive_stalled_ || !cursor.unasked || queue_.head() >= cursor.sequence || !probe_has_room()) return false;
  const bool asked_for = cursor.owed && probe_worthwhile(cursor);
  if (cursor.sequence >= std::min(queue_.tail(), hold_from_)) return asked_for;
  const SendWork& next = queue_.at(cursor.sequence);
  if (may_begin(cursor)) return asked_for && batch != nullptr && !fits(next, *batch);
  return asked_for || fails(next) || is_local(next.kind);
}

bool Transmitter::probe_has_room() const {
  const std::uint32_t outstanding = probes_outstanding();
  if (outstanding == SharedReads::kMostProbes || reads_outstanding_ + outstanding >= agreed()) return false;
  if (outstanding > 0 && outstanding + ord_ >= agreed()) return false;  // the other slots are for reads
  return reads_->outstanding.has_room();
}

bool Transmitter::probe_worthwhile(const Cursor& cursor) const {
  const bool eager = probe_policy_ == ProbePolicy::at_once || (probe_policy_ == ProbePolicy::if_none_due && !completion_due());
  if (probes_outstanding() == 0 && eager) return true;
  // A program that counts on its peer's reply to make room in the queue shall find it.
  const std::uint64_t share = std::max(queue_.depth() / SharedReads::kMostProbes, 1U);
  return cursor.weight - cursor.asked >= stride_ || cursor.sequence - cursor.asked_at >= share;
}

void Transmitter::note_waiting() {
  stride_ = std::clamp((cursor_.weight - answered_weight_) / SharedReads::kMostProbes, kShortestStride, kLongestStride);
}

bool Transmitter::wants_probe() const {
  return remote_ && !receive_stalled_ && probes_outstanding() == 0 && completion_due();
}

// With a probe behind it.
bool Transmitter::fits(const SendWork& work, const mpa::Batch& batch) const {
  const std::size_t length = is_answered(work.kind) ? 0 : work.length;
  const std::size_t fpdus = length / payload_of(ddp::kUntaggedHeaderSize, ~0U) + 3;
  constexpr std::size_t kOverhead = 64;
  return batch.fpdus() + fpdus <= mpa::Batch::kMaxFpdus &&
         batch.bytes() + length + fpdus * kOverhead <= mpa::Batch::kMaxBytes;
}

// Settles which message comes next. False if none may be sent now.
bool Transmitter::choose(Cursor& cursor, const mpa::Batch* batch) const {
  if (terminate_) {
    if (cursor.terminate_sent) return false;
    if (cursor.response < answer_until_) {
      if (cursor.source != Source::response) cursor.offset = 0;
      cursor.source = Source::response;
      return true;
    }
    cursor.source = Source::terminate;
    cursor.offset = 0;
    return true;
  }
  if (flushed_ || failure_) return false;
  if (cursor.source != Source::none) return true;
  if (!cursor.rtr_sent) {
    cursor.source = Source::rtr;
    cursor.offset = 0;
    return true;
  }
  if (hold_ && !local_work_next(cursor)) return false;

  const bool response = cursor.response < reads_->inbound.pushed();
  const bool notice = cursor.notices != notices_due_;
  const bool probe = probe_due(cursor, batch);
  const bool work = probe || may_begin(cursor);
  if (!response && !work && !notice) return false;
  // That the peer's work is placed is said first: it may count on that once it has what follows.
  if (response &&
      (cursor.response_next || !(work || notice) || SharedReads::asks_only(reads_->inbound.at(cursor.response)))) {
    cursor.source = Source::response;
  } else if (notice) {
    cursor.source = Source::notice;
  } else {
    cursor.source = probe ? Source::probe : Source::work;
  }
  cursor.offset = 0;
  return true;
}

void Transmitter::advance(Cursor& cursor, const Segment& segment) {
  cursor.offset += segment.payload;
  if (!segment.last) return;
  switch (cursor.source) {
    case Source::none: break;
    case Source::rtr:
      cursor.rtr_sent = true;
      if (rtr_ == mpa::ReadyToReceive::read) cursor.read_msn = next(cursor.read_msn);
      break;
    case Source::probe:
      cursor.read_msn = next(cursor.read_msn);
      ++cursor.probes;
      cursor.asked = cursor.weight;
      cursor.asked_at = cursor.sequence;
      cursor.unasked = cursor.owed = false;
      cursor.response_next = true;
      break;
    case Source::notice: cursor.told = notice(cursor.notices++).dealt_with; break;
    case Source::terminate: cursor.terminate_sent = true; break;
    case Source::response:
      if (std::holds_alternative<SharedReads::AtomicInbound>(reads_->inbound.at(cursor.response).request)) {
        cursor.atomic_msn = next(cursor.atomic_msn);
      }
      cursor.told = later(cursor.told, reads_->inbound.at(cursor.response).dealt_with);
      ++cursor.response;
      cursor.response_next = false;
      break;
    case Source::work: {
      const SendWork& work = queue_.at(cursor.sequence);
      if (work.kind == WorkKind::write && !cursor.second) ++cursor.writes;
      if (work.kind == WorkKind::write && work.has_immediate && !cursor.second) {
        // The two messages stay together (RFC 7306 section 6): nothing is chosen in between.
        cursor.second = true;
        cursor.offset = 0;
        return;
      }
      if (uses_queue(work, kSendQueue)) cursor.send_msn = next(cursor.send_msn);
      if (uses_queue(work, kReadRequestQueue)) {
        cursor.read_msn = next(cursor.read_msn);
        cursor.asked = cursor.weight;
        cursor.asked_at = cursor.sequence + 1;
        cursor.unasked = cursor.owed = false;
      } else {
        cursor.weight += work.length + kWeightOfWork;
        cursor.unasked = true;
        cursor.owed |= work.signaled;
      }
      cursor.second = false;
      ++cursor.sequence;
      cursor.response_next = true;
      break;
    }
  }
  cursor.source = Source::none;
  cursor.offset = 0;
}

// The receiver must know of a read before its response can come, hence before the request is sent.
void Transmitter::push_read(const Cursor& cursor) {
  const std::uint64_t sequence = cursor.sequence;
  if (sequence < reads_pushed_) return;
  reads_pushed_ = sequence + 1;
  SendWork& work = queue_.at(sequence);
  if (is_answered(work.kind)) push_answered(work, cursor);
}

void Transmitter::push_answered(SendWork& work, const Cursor& cursor) {
  const std::uint64_t sequence = cursor.sequence;
  answered_pushed_ = sequence + 1;
  work.request_msn = cursor.read_msn;
  reads_->outstanding.push({sequence, work.sink_stag, work.sink_offset, work.length, 0, queue_.sges(sequence).data(),
                            work.sges, work.kind == WorkKind::atomic});
  ++reads_outstanding_;
}

void Transmitter::push_ready_to_receive() {
  if (rtr_ != mpa::ReadyToReceive::read || rtr_pushed_) return;
  rtr_pushed_ = true;
  reads_->outstanding.push({SharedReads::kReadyToReceive, Stag{0}, 0, 0, 0, nullptr, 0, false});
}

void Transmitter::push_probe(const Cursor& cursor) {
  if (cursor.probes != probes_pushed_) return;
  probe(probes_pushed_++) = {cursor.sequence, cursor.weight};
  if (probe_policy_ == ProbePolicy::by_stride) stride_ = std::min(stride_ + stride_ / 4, kLongestStride);
  reads_->outstanding.push({SharedReads::kProbe, Stag{0}, 0, 0, 0, nullptr, 0, false});
}

// The local work at the cursor, of which everything before is with TCP: so its effect is there before anything behind
// it is sent, and a batch that TCP does not take cannot bring it about twice. Where it cannot be done its status says
// so, and it fails in its turn.
void Transmitter::carry_out(Cursor& cursor) {
  SendWork& work = queue_.at(cursor.sequence);
  cursor.source = Source::none;
  work.status = host_.carry_out(work, work.kind == WorkKind::bind ? queue_.binding(cursor.sequence) : ddp::Binding{});
  if (work.status != Status::success) return;
  cursor.owed |= cursor.unasked && work.signaled;
  ++cursor.sequence;
  cursor.response_next = true;
  commit(cursor);
  complete_in_order();
}

// The message at the cursor cannot be built: its memory is gone.
Transmitter::Fill Transmitter::fail_message(const Cursor& cursor, Status status) {
  Terminate why;
  if (cursor.source == Source::response) {
    answer_until_ = 0;  // neither this one nor any behind it
    // RFC 5040 section 4.8: the request comes back, moved on to where the answer stopped.
    why.type = static_cast<std::uint8_t>(ErrorType::remote_protection);
    why.code = static_cast<std::uint8_t>(ErrorCode::invalid_stag);
    if (const auto* read = std::get_if<ReadRequest>(&reads_->inbound.at(cursor.response).request)) {
      ReadRequest request = *read;
      request.sink_offset += cursor.offset;
      request.source_offset += cursor.offset;
      request.size -= cursor.offset;
      why.has_read_request = true;
      encode(request, why.read_request.data());
    }
    terminate(why);
    return Fill::ready;
  }
  why.type = static_cast<std::uint8_t>(ErrorType::local_catastrophic);
  if (!infiniband_) terminate(why);
  failure_ = {cursor.sequence, status};
  return Fill::local_error;
}

// Of an FPDU a part is with TCP, and the rest of its memory is not there any more: nothing sensible can follow it.
Transmitter::Fill Transmitter::break_off(const Cursor& cursor) {
  broken_ = true;
  if (cursor.source == Source::work && !failure_) failure_ = {cursor.sequence, Status::local_protection};
  return Fill::broken;
}

// Has room for the rest of an FPDU, or for more of them later; false where there is no memory for it.
bool Transmitter::make_rest_room(std::size_t size, std::size_t wanted) {
  if (rest_capacity_ >= size) return true;
  const std::size_t capacity = std::max(size, wanted);
  std::unique_ptr<std::byte[]> room(new (std::nothrow) std::byte[capacity]);
  if (!room) return false;
  rest_ = std::move(room);
  rest_capacity_ = capacity;
  return true;
}

// An FPDU of which a part went out must come to its end, but its memory is about to be the program's again.
void Transmitter::keep_rest() {
  if (partial_ == 0) return;
  Cursor cursor = cursor_;
  Segment segment;
  broken_ = true;  // unless all of it can be had
  std::unique_ptr<mpa::Batch> batch;
  try {
    batch = std::make_unique<mpa::Batch>();
  } catch (const std::bad_alloc&) {
    return;
  }
  if (append(cursor, segment, *batch) != mpa::Framer::Result::added || batch->bytes() <= partial_) return;
  const std::size_t rest = batch->bytes() - partial_;
  if (!make_rest_room(rest, rest) || !batch->copy_out(partial_, batch->bytes(), rest_.get())) return;
  rest_size_ = rest;
  rest_at_ = 0;
  broken_ = false;
  advance(cursor, segment);
  rest_end_ = cursor;
  partial_ = 0;
}

// Posted before it was known what the peer can do.
bool Transmitter::is_impossible(const SendWork& work) const {
  if (is_answered(work.kind)) return ord_ == 0;
  return work.kind == WorkKind::send && work.has_immediate && !send_immediate_;
}

Transmitter::Fill Transmitter::fill(OutgoingBatch& batch) {
  batch.fpdus.clear();
  if (broken_) return Fill::broken;
  Cursor cursor = cursor_;
  if (rest_size_ > rest_at_) {
    batch.start[0] = cursor_;
    batch.fpdus.add_remainder({rest_.get() + rest_at_, rest_size_ - rest_at_});
    batch.end[0] = cursor = rest_end_;
  }
  bool begun = partial_ > 0;  // the next FPDU has to come out as it did before
  const std::size_t most = std::exchange(one_at_a_time_, false) ? 1 : mpa::Batch::kMaxFpdus;
  while (batch.fpdus.fpdus() < most) {
    if (cursor.response - cursor_.response >= SharedReads::kMaxResponsesInBatch) break;
    if (!begun && !choose(cursor, &batch.fpdus)) break;
    if (cursor.source == Source::work && cursor.offset == 0 && !begun) {
      const SendWork& work = queue_.at(cursor.sequence);
      if (fails(work)) {
        if (!batch.fpdus.empty()) break;  // what stands before it goes out first
        return fail_message(cursor, work.status == Status::success ? Status::local_operation : work.status);
      }
      if (is_local(work.kind)) {
        if (!batch.fpdus.empty()) break;
        carry_out(cursor);
        continue;
      }
      if (acknowledgement_due(cursor)) {
        if (notices_due_ - cursor_.notices == kMostNotices) break;
        notice(notices_due_++) = {kAcknowledged, dealt_with()};
        cursor.source = Source::none;
        continue;
      }
      push_read(cursor);
    }
    if (cursor.source == Source::rtr) push_ready_to_receive();
    if (cursor.source == Source::probe) push_probe(cursor);
    Segment segment;
    const std::size_t index = batch.fpdus.fpdus();
    batch.start[index] = cursor;
    const bool gone = std::exchange(source_gone_, false);
    const auto result = gone ? mpa::Framer::Result::bad_address : append(cursor, segment, batch.fpdus);
    if (result == mpa::Framer::Result::full) break;
    if (result == mpa::Framer::Result::bad_address) {
      if (begun) return break_off(cursor);
      if (cursor.source == Source::work && cursor.offset == 0 && !cursor.second) {
        queue_.at(cursor.sequence).status = Status::local_protection;  // it fails in its turn
        cursor.source = Source::none;
        continue;
      }
      if (!batch.fpdus.empty()) break;
      const bool response = cursor.source == Source::response;
      const Fill outcome = fail_message(cursor, Status::local_protection);
      if (!response) return outcome;
      cursor = cursor_;
      cursor.source = Source::none;
      continue;
    }
    if (begun) {
      if (partial_ >= batch.fpdus.fpdu_bytes(index)) return break_off(cursor);
      batch.fpdus.skip(partial_);
      begun = false;
    }
    advance(cursor, segment);
    batch.end[index] = cursor;
  }
  // Once the socket has the batch, the peer may have the last octet of a response and ask for more, before sent() runs.
  if (reads_->answering.load(std::memory_order_relaxed) < cursor.response) {
    reads_->answering.store(cursor.response, std::memory_order_release);
  }
  return batch.fpdus.empty() ? Fill::idle : Fill::ready;
}

void Transmitter::sent(const OutgoingBatch& batch, std::size_t octets) {
  std::size_t at = 0;  // octets of the batch before FPDU i
  for (std::size_t i = 0; i < batch.fpdus.fpdus(); ++i) {
    const std::size_t size = batch.fpdus.fpdu_bytes(i);
    const bool remainder = i == 0 && rest_size_ > rest_at_;
    if (octets - at >= size) {
      if (remainder) rest_size_ = rest_at_ = 0;
      partial_ = 0;
      commit(batch.end[i]);
      at += size;
      if (at == octets) break;
      continue;
    }
    const std::size_t taken = octets - at;
    if (taken == 0) break;
    if (remainder) {
      rest_at_ += taken;
    } else if (framer_.crc()) {
      cursor_ = batch.start[i];
      if (make_rest_room(size - taken, mpa::fpdu_size(mulpdu_ + kMaxTerminate))) {
        rest_size_ = size - taken;
        rest_at_ = 0;
        batch.fpdus.copy_out(octets, at + size, rest_.get());
        rest_end_ = batch.end[i];
      } else {
        broken_ = true;  // these octets cannot be sent again as they were
      }
    } else {
      cursor_ = batch.start[i];
      partial_ += taken;
    }
    break;
  }
  complete_in_order();
}

// TCP has taken everything up to here.
void Transmitter::commit(const Cursor& to) {
  // What was flushed is not in the queue any more.
  for (std::uint64_t sequence = std::max(cursor_.sequence, queue_.head()); sequence < to.sequence; ++sequence) {
    SendWork& work = queue_.at(sequence);
    if (!is_answered(work.kind) && (!remote_ || receive_stalled_ || is_local(work.kind))) work.done = true;
  }
  cursor_ = to;
  while (reads_->inbound.popped() < to.response) reads_->inbound.pop();
}

void Transmitter::complete_in_order() {
  while (!queue_.empty() && queue_.head() < cursor_.sequence) {
    const SendWork& work = queue_.at(queue_.head());
    if (!work.done) break;
    host_.send_complete(work, Status::success);
    pop(work);
  }
}

void Transmitter::read_complete() {
  const std::uint64_t sequence = reads_->outstanding.front().sequence;
  reads_->outstanding.pop();
  if (sequence == SharedReads::kReadyToReceive) return;
  if (sequence == SharedReads::kProbe) {
    const Probe& answered = probe(probes_answered_++);
    answered_weight_ = answered.weight;
    placed_before(answered.at);
    return;
  }
  if (sequence >= queue_.head()) queue_.at(sequence).done = true;  // else it was flushed
  --reads_outstanding_;
  placed_before(sequence);
}

void Transmitter::placed_before(std::uint64_t sequence) {
  if (remote_) {
    // A peer that answers before it is asked says nothing of what it has not been sent.
    const std::uint64_t end = std::min(sequence, cursor_.sequence);
    for (std::uint64_t i = std::max(placed_, queue_.head()); i < end; ++i) {
      SendWork& work = queue_.at(i);
      if (!is_answered(work.kind)) work.done = true;
    }
    placed_ = std::max(placed_, end);
  }
  complete_in_order();
  if (queue_.head() >= cursor_.sequence) answered_weight_ = cursor_.weight;
}

// What a peer says that has nothing new takes no longer for a deep queue: each entry is passed once.
bool Transmitter::peer_dealt_with(const DealtWith& said) {
  const auto ahead = [](auto a, auto b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b)) > 0;
  };
  if (ahead(said.send_msn, cursor_.send_msn) || ahead(said.writes, cursor_.writes)) return false;  // was never sent
  std::optional<std::uint64_t> reached;
  while (dealt_.sequence < cursor_.sequence) {
    const SendWork& work = queue_.at(dealt_.sequence);
    const bool send = uses_queue(work, kSendQueue), write = work.kind == WorkKind::write;
    if (send ? !ahead(said.send_msn, dealt_.send_msn) : write && !ahead(said.writes, dealt_.writes)) break;
    pass(work);
    if (send || write) reached = dealt_.sequence;
  }
  if (reached) placed_before(*reached);
  return reached.has_value();
}

void Transmitter::pass(const SendWork& work) {
  if (uses_queue(work, kSendQueue)) dealt_.send_msn = next(dealt_.send_msn);
  if (work.kind == WorkKind::write) ++dealt_.writes;
  ++dealt_.sequence;
}

// The oldest work. Only a peer that is asked for notices sends some.
void Transmitter::pop(const SendWork& work) {
  if ((remote_ || infiniband_) && queue_.head() == dealt_.sequence) pass(work);
  queue_.pop();
}

// Has the peer sent something that is placed, and that nothing in front of the message at the cursor tells it of?
bool Transmitter::acknowledgement_due(const Cursor& cursor) const {
  return acknowledges_ && uses_queue(queue_.at(cursor.sequence), kSendQueue) && cursor.notices == notices_due_ &&
         dealt_with() != cursor.told;
}

void Transmitter::set_receive_stalled(bool stalled) {
  receive_stalled_ = stalled;
  if (stalled) placed_before(cursor_.sequence);
}

void Transmitter::release_unsignaled() {
  while (!queue_.empty() && queue_.head() < cursor_.sequence) {
    const SendWork& work = queue_.at(queue_.head());
    if (!work.done && (work.signaled || is_answered(work.kind))) break;
    host_.send_complete(work, Status::success);
    pop(work);
  }
}

bool Transmitter::source_gone(const OutgoingBatch& batch) {
  one_at_a_time_ = batch.fpdus.fpdus() > 1;
  if (one_at_a_time_) return true;
  source_gone_ = true;
  return partial_ == 0 && rest_size_ == rest_at_;
}

bool Transmitter::pending() const {
  if (reads_ == nullptr) return false;
  if (partial_ > 0 || rest_size_ > rest_at_) return true;
  Cursor probe = cursor_;
  return choose(probe);
}

void Transmitter::terminate(const Terminate& terminate, bool answer_first) {
  if (terminate_) return;
  terminate_ = terminate;
  if (answer_first && reads_ != nullptr) answer_until_ = reads_->inbound.pushed();
}

void Transmitter::flush(std::optional<std::uint64_t> culprit, Status status) {
  keep_rest();
  flushed_ = true;
  if (remote_ && !(culprit && *culprit < cursor_.sequence)) release_unsignaled();
  bool in_error = false;  // completions come in order: nothing succeeds behind a failure
  while (!queue_.empty()) {
    const SendWork& work = queue_.at(queue_.head());
    Status outcome = work.done && !in_error ? Status::success : Status::flushed;
    if (culprit && queue_.head() == *culprit) outcome = status;
    in_error = outcome != Status::success;
    host_.send_complete(work, outcome);
    pop(work);
  }
}

std::optional<std::uint64_t> Transmitter::oldest_sent() const {
  for (std::uint64_t sequence = queue_.head(); sequence < queue_.tail(); ++sequence) {
    if (queue_.at(sequence).done) continue;
    const bool begun =
        sequence < cursor_.sequence || (sequence == cursor_.sequence && (cursor_.offset > 0 || cursor_.second));
    return begun ? std::optional(sequence) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Transmitter::find_terminated(const Terminate& terminate) const {
  if (!terminate.has_ddp_header) return std::nullopt;
  if (terminate.ddp_header_size == ddp::kTaggedHeaderSize) {
    const auto header = ddp::decode_tagged(terminate.ddp_header.data());
    if (decode_control(header.ulp_control).opcode != Opcode::write) return std::nullopt;
    // Of Writes that overlap it is the oldest that has just such a segment, if one has.
    const std::uint64_t payload = std::max<std::uint64_t>(terminate.segment_length, ddp::kTaggedHeaderSize) -
                                  ddp::kTaggedHeaderSize;
    std::optional<std::uint64_t> near;
    for (std::uint64_t sequence = queue_.head(); sequence < queue_.tail(); ++sequence) {
      const bool begun = sequence < cursor_.sequence ||
                         (sequence == cursor_.sequence &&
                          (cursor_.offset > 0 || cursor_.second || partial_ > 0 || rest_size_ > rest_at_));
      if (!begun) break;
      const SendWork& work = queue_.at(sequence);
      if (remote_ && work.done) continue;
      if (work.kind != WorkKind::write || work.remote_stag != header.stag || header.offset < work.remote_offset ||
          header.offset - work.remote_offset > work.length) {
        continue;
      }
      const std::uint64_t end = header.offset - work.remote_offset + payload;
      if (header.last ? end == work.length : end < work.length) return sequence;
      if (!near) near = sequence;
    }
    return near;
  }
  const auto header = ddp::decode_untagged(terminate.ddp_header.data());
  const auto queue = static_cast<Queue>(header.queue);
  if (queue == kReadRequestQueue) {
    // Probes take MSNs of this queue too.
    for (std::uint64_t sequence = queue_.head(); sequence < queue_.tail() && sequence <= cursor_.sequence; ++sequence) {
      const SendWork& work = queue_.at(sequence);
      if (is_answered(work.kind) && sequence < reads_pushed_ && work.request_msn == header.msn) return sequence;
    }
    return std::nullopt;
  }
  return queue == kSendQueue ? find_send(header.msn) : std::nullopt;
}

// The entry whose message has, or will have, this MSN of the Send Queue: counted back from the next one to be sent.
std::optional<std::uint64_t> Transmitter::find_send(Msn msn) const {
  const auto ahead = static_cast<std::uint32_t>(cursor_.send_msn) - static_cast<std::uint32_t>(msn);
  std::uint32_t seen = 0;
  // The message in progress has the next MSN itself.
  if (ahead == 0) {
    if (cursor_.sequence >= queue_.tail() || cursor_.sequence < queue_.head()) return std::nullopt;
    return uses_queue(queue_.at(cursor_.sequence), kSendQueue) ? std::optional(cursor_.sequence) : std::nullopt;
  }
  for (std::uint64_t sequence = cursor_.sequence; sequence-- > queue_.head();) {
    if (uses_queue(queue_.at(sequence), kSendQueue) && ++seen == ahead) return sequence;
  }
  return std::nullopt;
}

}  // namespace uiw::rdmap
