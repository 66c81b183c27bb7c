// SPDX-License-Identifier: MIT
#include "rdmap/transmit/transmitter.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>

#include "rdmap/terminate.h"

namespace uiw::rdmap {

void Transmitter::start(const ConnectionRules& rules, SharedReads& reads) {
  const std::uint64_t first = queue_.head();
  rules_ = &rules;
  reads_ = &reads;
  read_queue_.start(reads, rules.ord, first);
  framer_.start(rules.crc, rules.marks);
  batch_limit_ = mpa::Batch::limit(framer_.copies());
  set_mulpdu(rules.mulpdu);
  hold_ = !rules.initiator;
  reports_progress_ = rules.reports() == Reports::always;
  sent_.rtr_sent = rules.rtr_to_send() == mpa::ReadyToReceive::none;
  sent_.sequence = sent_.placement.requested_before = first;
  // The peer sends progress reports if this end requests them (remote rule), or always on a manual connection.
  tracker_.start(rules.remote(), rules.remote() || rules.reports() == Reports::always);
  peer_known(rules.peer, false);
}

void Transmitter::peer_known(mpa::PeerKind peer, bool answer) {
  reads_->peer.store(peer, std::memory_order_relaxed);
  if (partial_ == 0) follow_peer();
  if (peer != mpa::PeerKind::uiw) return;
  if (answer) reports_.push({kHello, {}}, sent_.reports);
  if (tracker_.remote() && rules_->reports() == Reports::on_request) {
    reports_.push({kReportsWanted, {}}, sent_.reports);
  }
}

// ---- Choose and build ----

// Adds a Read that is not posted work (a probe, or the ready-to-receive message) to the outstanding requests. The
// Receiver of this end must find it there before it is sent, since the answer may come at once.
void Transmitter::push_own_request(const Cursor& at) {
  if (at.source == Source::probe) {
    if (tracker_.probe_pushed(at)) return;
    tracker_.push_probe(at);
    read_queue_.push_probe();
  } else if (rules_->rtr == mpa::ReadyToReceive::read) {
    read_queue_.push_ready_to_receive();
  }
}

// Carries out the local work (a bind or an invalidation) at the cursor. Called after TCP has accepted everything before
// it: so the work takes effect before anything later is sent, and is never part of a batch that has to be built again.
// If the work fails, its entry keeps the status and completes with it in its turn.
void Transmitter::carry_out(Cursor& at) {
  SendWork& work = queue_.at(at.sequence);
  at.source = Source::none;
  work.status = host_.carry_out(work, work.kind == WorkKind::bind ? queue_.binding(at.sequence) : ddp::Binding{});
  if (work.status != Status::success) return;
  at.placement.pass_local_work(work.signaled);
  ++at.sequence;
  at.response_next = true;
  commit(at, accepted_);
  complete_in_order();
}

namespace {

// The Terminate for an inbound request that is not answered from `offset` on. `refused`: why its memory may not be used
// any more; `none` if it may be used but is not accessible, which is no error of the peer. RFC 5040 sections 4.8 and
// 7.1, rule 3: the Terminate has the request's DDP header and, for a protection error (figure 10), the Read Request
// advanced to where the response stopped. RFC 7306 section 8.1, rule 2: for an atomic request it has the DDP header.
Terminate memory_gone(const SharedReads::Inbound& inbound, Msn msn, std::uint32_t offset, ddp::AccessError refused) {
  const bool protection = refused != ddp::AccessError::none;
  const auto* read = std::get_if<ReadRequest>(&inbound.request);
  const Opcode opcode = read != nullptr ? Opcode::read_request : Opcode::atomic_request;
  std::array<std::byte, ddp::kUntaggedHeaderSize + kReadRequestSize> headers;
  encode(ddp::UntaggedHeader{true, control_of(opcode), 0, kReadRequestQueue, msn, 0}, headers.data());
  if (read != nullptr) {
    ReadRequest request = *read;
    request.sink_offset += offset;
    request.source_offset += offset;
    request.size -= offset;
    encode(request, headers.data() + ddp::kUntaggedHeaderSize);
  }
  const std::size_t length = ddp::kUntaggedHeaderSize + (read != nullptr ? kReadRequestSize : kAtomicRequestSize);
  return terminate_for(
      protection ? TerminateError(ErrorType::remote_protection, protection_error(refused)) : kCatastrophicStream,
      headers, length, read != nullptr && protection);
}

}  // namespace

// To be called if the message at the cursor cannot be sent, since its memory is not available or its work fails for
// another reason. A response is given up, and a Terminate is sent in its place (`ready`). Work becomes the failure(),
// which ends all sending of work (`local_error`).
Transmitter::Fill Transmitter::fail_message(const Cursor& at, Status status, ddp::AccessError refused) {
  if (at.source == Source::response) {
    answer_until_ = 0;                                           // neither this request nor any later one is answered
    const Msn msn{static_cast<std::uint32_t>(at.response + 1)};  // MSNs count the requests from 1, at.response from 0
    // If there is a Terminate already, its error was in a later message of the peer. The first error is reported (RFC
    // 5040 section 7.1, rule 4), so this Terminate replaces it.
    terminate_ = memory_gone(reads_->inbound.at(at.response), msn, at.offset, refused);
    return Fill::ready;
  }
  if (rules_->terminates_local_errors()) terminate(terminate_for(kLocalCatastrophic));
  failure_ = {at.sequence, status};
  ended_ = true;
  return Fill::local_error;
}

// TCP has accepted a part of an FPDU, and the rest cannot be built as before, since the memory is not available:
// nothing valid can follow on this stream.
Transmitter::Fill Transmitter::break_off(const Cursor& at) {
  broken_ = ended_ = true;
  if (at.source == Source::work && !failure_) failure_ = {at.sequence, Status::local_protection};
  return Fill::broken;
}

Transmitter::Fill Transmitter::fill(OutgoingBatch& batch) {
  mpa::Batch& fpdus = batch.fpdus;
  batch.clear();
  if (broken_) return Fill::broken;
  Cursor at = sent_;
  if (!rest_.empty()) {
    fpdus.add_remainder(rest_.octets());
    batch.end[0] = at = rest_end_;
  }
  bool begun = partial_ > 0;  // the next FPDU must be built exactly as before
  const std::size_t most = std::exchange(one_at_a_time_, rules_->disorder != 0) ? 1 : mpa::Batch::kMaxFpdus;
  Source gone = std::exchange(gone_, Source::none);
  while (fpdus.fpdus() < most) {
    const Choice choice = begun ? Choice::any : choose(at, &fpdus);
    batch.complete = choice == Choice::nothing;
    if (batch.complete) break;
    if (at.source == Source::response && at.response - sent_.response >= SharedReads::kMaxResponsesInBatch) break;
    if (choice == Choice::any && at.source == Source::work && at.offset == 0 && !begun) {
      const SendWork& work = queue_.at(at.sequence);
      if (fails(work)) {
        if (!fpdus.empty()) break;  // the FPDUs before it are sent first
        return fail_message(at, work.status == Status::success ? Status::local_operation : work.status);
      }
      if (is_local(work.kind)) {
        if (!fpdus.empty()) break;
        carry_out(at);
        continue;
      }
      if (report_due(at)) {
        if (!reports_.push({kProgressReport, progress()}, sent_.reports)) break;
        at.source = Source::none;
        continue;
      }
      if (is_answered(work.kind)) read_queue_.push(queue_, at.sequence, at.read_msn);
    } else if (at.source == Source::rtr || at.source == Source::probe) {
      push_own_request(at);
    }
    Segment segment;
    const std::size_t index = fpdus.fpdus();
    batch.begun[index] = {at.source, at.offset};
    const bool is_gone = std::exchange(gone, Source::none) == at.source;
    const auto result = is_gone ? Added::bad_address : append(at, segment, fpdus);
    if (result == Added::full) break;
    if (begun && (result == Added::bad_address || partial_ >= fpdus.fpdu_bytes(index))) return break_off(at);
    if (result == Added::bad_address) {
      if (at.source == Source::work && at.offset == 0 && !at.immediate_next) {
        queue_.at(at.sequence).status = Status::local_protection;  // the work fails in its turn
        at.source = Source::none;
        continue;
      }
      if (!fpdus.empty()) break;
      if (fail_message(at, Status::local_protection, segment.refused) == Fill::local_error) return Fill::local_error;
      at = sent_;  // a Terminate is sent, and nothing more of the response
      at.source = Source::none;
      continue;
    }
    if (std::exchange(begun, false)) fpdus.skip(partial_);
    advance(at, segment.payload, segment.last);
    batch.end[index] = at;
  }
  reads_->note_answering(at.response);
  return fpdus.empty() ? Fill::idle : Fill::ready;
}

// ---- Commit ----

// Keeps a copy of the rest of an FPDU that was sent in part. The FPDU must be finished, but the work is about to
// complete, and then the program may change or unmap the memory of the payload.
void Transmitter::keep_rest() {
  if (partial_ == 0) return;
  Cursor at = sent_;
  Segment segment;
  broken_ = true;  // unless everything below succeeds
  std::unique_ptr<mpa::Batch> batch;
  try {
    batch = std::make_unique<mpa::Batch>();
  } catch (const std::bad_alloc&) {
    return;
  }
  if (append(at, segment, *batch) != Added::added || batch->bytes() <= partial_) return;
  const std::size_t size = batch->bytes() - partial_;
  std::byte* const room = rest_.provide(size, size);
  if (room == nullptr || !batch->copy_out(partial_, batch->bytes(), room)) return;
  rest_.keep(size);
  broken_ = false;
  advance(at, segment.payload, segment.last);
  rest_end_ = at;
  partial_ = 0;
}

// Keeps a copy of the rest of the FPDU `index`, which was sent in part: the octets [from, from + size) of the batch.
// Called if the batch has a copy of the payload. The rest must have exactly these octets, and an FPDU that is built
// again could have others, since the program may change its memory.
void Transmitter::keep_rest_of(const OutgoingBatch& batch, std::size_t index, std::size_t from, std::size_t size) {
  std::byte* const room = rest_.provide(size, mpa::marked_size(0, mpa::fpdu_size(mulpdu_ + kMaxTerminate)));
  if (room == nullptr) {
    broken_ = true;  // the octets cannot be reproduced
    return;
  }
  rest_.keep(size);
  batch.fpdus.copy_out(from, from + size, room);
  rest_end_ = batch.end[index];
}

bool Transmitter::sent(const OutgoingBatch& batch, std::size_t octets) {
  const mpa::Batch& fpdus = batch.fpdus;
  framer_.sent(octets);
  const bool accepts_all = octets == fpdus.bytes();
  std::size_t whole = accepts_all ? fpdus.fpdus() : 0;  // the number of FPDUs that were accepted as a whole
  std::size_t left = accepts_all ? 0 : octets;          // octets accepted of the FPDU after them
  for (; left > 0 && left >= fpdus.fpdu_bytes(whole); ++whole) left -= fpdus.fpdu_bytes(whole);
  if (whole > 0) {
    rest_.clear();
    partial_ = 0;
    // If work completes when the peer has placed the stream up to the end of the work (by_position()), each entry needs
    // the position of its own end. Otherwise one commit() for all FPDUs is enough.
    std::uint64_t position = accepted_;
    for (std::size_t i = 0; i + 1 < whole && tracker_.by_position() && tracker_.remote(); ++i)
      commit(batch.end[i], position += fpdus.fpdu_bytes(i));
    commit(batch.end[whole - 1], accepted_ + octets - left);
  }
  accepted_ += octets;
  if (left > 0 && !rest_.empty()) {
    rest_.take(left);
  } else if (left > 0) {
    sent_.source = batch.begun[whole].source;
    sent_.offset = batch.begun[whole].offset;
    if (framer_.copies()) {
      keep_rest_of(batch, whole, octets, fpdus.fpdu_bytes(whole) - left);
    } else {
      partial_ += left;
    }
  }
  if (partial_ == 0) follow_peer();  // otherwise the next FPDU must be built exactly as before
  complete_in_order();
  // True only if nothing more can be due: neither work that waited until this work was complete, nor a probe.
  return accepts_all && batch.complete && !tracker_.needs_probes() && sent_.sequence >= work_end();
}

// TCP has accepted everything before `to`, which is at this position of the byte stream.
void Transmitter::commit(const Cursor& to, std::uint64_t position) {
  const bool done_when_sent = tracker_.done_when_sent();
  // Entries that were flushed are not in the queue any more.
  for (std::uint64_t sequence = std::max(sent_.sequence, queue_.head()); sequence < to.sequence; ++sequence) {
    SendWork& work = queue_.at(sequence);
    if (is_answered(work.kind)) continue;
    work.end = position;
    if (done_when_sent || is_local(work.kind)) work.done = true;
  }
  sent_ = to;
  while (reads_->inbound.popped() < to.response) reads_->inbound.pop();
}

void Transmitter::complete_in_order() {
  while (queue_.head() < sent_.sequence && queue_.at(queue_.head()).done) complete_oldest(Status::success);
}

// Completes the oldest entry with `status`, and removes it from the queue.
void Transmitter::complete_oldest(Status status) {
  const SendWork& work = queue_.at(queue_.head());
  host_.send_complete(work, status);
  tracker_.note_pop(work);
  queue_.pop();
}

// ---- What the peer has placed ----

void Transmitter::read_complete() {
  const std::uint64_t sequence = read_queue_.pop();
  if (sequence == SharedReads::kReadyToReceive) return;
  if (sequence == SharedReads::kProbe) return placed_before(tracker_.probe_answered());
  if (sequence >= queue_.head()) queue_.at(sequence).done = true;  // otherwise it was flushed
  placed_before(sequence);
}

void Transmitter::placed_before(std::uint64_t sequence) {
  tracker_.placed_before(sequence, sent_);
  complete_in_order();
  tracker_.note_completed(sent_);
}

void Transmitter::placed_up_to(std::uint64_t position) {
  if (tracker_.remote()) placed_before(tracker_.placed_up_to(position, sent_));
}

bool Transmitter::take_report(const Progress& progress) {
  const auto reached = tracker_.take_report(progress, sent_);
  if (reached) placed_before(*reached);
  return reached.has_value();
}

void Transmitter::set_receive_stalled(bool stalled) {
  tracker_.set_receive_stalled(stalled);
  if (stalled) placed_before(sent_.sequence);
}

// ---- The end ----

bool Transmitter::pending() const {
  if (reads_ == nullptr) return false;
  if (partial_ > 0 || !rest_.empty()) return true;
  Cursor at = sent_;
  return choose(at) != Choice::nothing;
}

bool Transmitter::source_gone(const OutgoingBatch& batch) {
  one_at_a_time_ = batch.fpdus.fpdus() > 1;
  if (one_at_a_time_) return true;
  gone_ = batch.begun[0].source;
  return partial_ == 0 && rest_.empty();
}

void Transmitter::release_unsignaled() {
  while (!queue_.empty() && queue_.head() < sent_.sequence) {
    const SendWork& work = queue_.at(queue_.head());
    if (!work.done && (work.signaled || is_answered(work.kind))) break;
    complete_oldest(Status::success);
  }
}

void Transmitter::terminate(const Terminate& terminate, bool answer_first) {
  if (terminate_) return;
  terminate_ = terminate;
  if (answer_first && reads_ != nullptr) answer_until_ = reads_->inbound.pushed();
}

void Transmitter::flush(std::optional<std::uint64_t> culprit, Status status) {
  keep_rest();
  ended_ = true;
  if (culprit) culprit = queue_.request_of(*culprit);
  if (tracker_.remote() && !(culprit && *culprit < sent_.sequence)) release_unsignaled();
  bool in_error = false;  // completions come in order, and none succeeds after a failure
  while (!queue_.empty()) {
    const SendWork& work = queue_.at(queue_.head());
    // A peer that breaks the rules may answer a request before TCP has accepted the whole FPDU of the request. Such a
    // request is not reported as a success.
    const bool done = work.done && queue_.head() < sent_.sequence;
    Status outcome = done && !in_error ? Status::success : Status::flushed;
    if (culprit && queue_.head() == *culprit) outcome = status;
    in_error = outcome != Status::success;
    complete_oldest(outcome);
  }
}

}  // namespace uiw::rdmap
