// SPDX-License-Identifier: MIT
// Chooses what is sent next. The functions change only the cursor.
#include "rdmap/transmit/transmitter.h"

#include <algorithm>

namespace uiw::rdmap {

namespace {

// Whether this is a message that only a uiw peer accepts: a Send with immediate data, an atomic operation of uiw's own,
// or the name of a shared receive queue.
bool is_uiws_own(const SendWork& work) {
  if (work.kind == WorkKind::choice) return true;
  return work.kind == WorkKind::send ? work.has_immediate : work.kind == WorkKind::atomic && is_uiws_own(work.atomic);
}

}  // namespace

// Whether the connection cannot carry this work: a Read or an atomic operation with ORD 0, or a message of uiw's own to
// a peer that is not uiw. The program may have posted the work before ORD or the kind of the peer was known.
bool Transmitter::is_impossible(const SendWork& work) const {
  if (is_answered(work.kind) && read_queue_.ord() == 0) return true;
  return is_uiws_own(work) && peer() == mpa::PeerKind::other;
}

// Whether local work (a bind or an invalidation) is next. It sends nothing, so it need not wait for the peer's first
// FPDU.
bool Transmitter::local_work_next(const Cursor& at) const {
  return at.sequence < work_end() && is_local(queue_.at(at.sequence).kind);
}

// Whether there is a next work request and it may be sent now. If it may not, it waits for answers of the peer, for
// earlier work to complete, or until it is known whether the peer is uiw. If is_followed() is true, this entry or a
// later one is a request that was built and pushed to SharedReads before. Then this entry has already passed the checks
// for fences, for room, and for failing work, and is built again without them, since TCP has not accepted it yet.
bool Transmitter::may_begin(const Cursor& at) const {
  if (at.sequence >= work_end()) return false;
  const SendWork& next = queue_.at(at.sequence);
  if (is_uiws_own(next) && peer() == mpa::PeerKind::not_known) return false;
  const bool first = queue_.head() == at.sequence, answered = is_answered(next.kind);
  if ((next.fence || answered) && !read_queue_.is_followed(at.sequence)) {
    if (next.fence && read_queue_.outstanding() > 0) return false;
    if (answered && !read_queue_.has_room(tracker_.probes_outstanding())) return false;
  }
  if (next.fence && is_local(next.kind) && !first) return false;
  // Work that fails ends the stream. So by the remote rule (Sends and Writes complete when they are placed) it waits
  // until all work before it has completed.
  return !tracker_.remote() || first || !fails(next) || read_queue_.is_followed(at.sequence);
}

// Whether the batch has room for the work and a probe after it.
bool Transmitter::fits(const SendWork& work, const mpa::Batch& batch) const {
  const std::size_t length = is_answered(work.kind) ? 0 : work.length;
  const std::size_t fpdus = length / segment_payload_ + 3;
  constexpr std::size_t kOverhead = 64;
  return batch.fpdus() + fpdus <= mpa::Batch::kMaxFpdus && batch.bytes() + length + fpdus * kOverhead <= batch_limit_;
}

// Whether a probe (an RDMA Read of no octets) is sent here. It is sent if nothing else can follow in the batch, so that
// it covers as much work as possible; before a message that does not fit into the batch, so that a long message does
// not delay the probe; and before work that fails or is local, which waits for the work before it.
bool Transmitter::probe_due(const Cursor& at, const mpa::Batch* batch) const {
  if (!tracker_.remote()) return false;
  if (tracker_.probe_pushed(at)) return tracker_.probe_stands_at(at);
  if (!tracker_.needs_probes()) return false;
  // A Read or an atomic operation after this position has been pushed to SharedReads and has to be built again. Its
  // answer confirms the work before it. A probe cannot be sent before it, since a probe pushed now would come after it
  // in SharedReads, where requests have the order in which they are sent.
  if (read_queue_.is_followed(at.sequence)) return false;
  if (tracker_.receive_stalled() || !at.placement.unconfirmed || queue_.head() >= at.sequence ||
      !read_queue_.has_room_for_probe(tracker_.probes_outstanding())) {
    return false;
  }
  const bool wanted = at.placement.completion_due && tracker_.probe_worthwhile(at, sent_);
  if (at.sequence >= work_end()) return wanted;
  const SendWork& next = queue_.at(at.sequence);
  if (may_begin(at)) return wanted && batch != nullptr && !fits(next, *batch);
  return wanted || fails(next) || is_local(next.kind);
}

// Moves the cursor past the work. A Write with immediate data is two messages: the first call moves the cursor past the
// Write, the second call past the Immediate Data.
void Transmitter::advance_work(Cursor& at) const {
  const SendWork& work = queue_.at(at.sequence);
  at.source = Source::none;
  if (work.kind == WorkKind::write && !at.immediate_next) ++at.writes;
  if (work.kind == WorkKind::write && work.has_immediate && !at.immediate_next) {
    // The two messages of a Write with immediate stay together (RFC 7306 section 6): nothing is chosen in between.
    at.source = Source::work;
    at.immediate_next = true;
    return;
  }
  if (uses_queue(work, kSendQueue)) at.send_msn = next(at.send_msn);
  if (uses_queue(work, kReadRequestQueue)) {
    at.read_msn = next(at.read_msn);
    at.placement.pass_request(at.sequence + 1);
  } else {
    at.placement.pass_work(work.length, work.signaled);
  }
  at.immediate_next = false;
  ++at.sequence;
  at.response_next = true;
}

void Transmitter::advance_response(Cursor& at) const {
  const SharedReads::Inbound& inbound = reads_->inbound.at(at.response);
  if (std::holds_alternative<SharedReads::AtomicInbound>(inbound.request)) at.atomic_msn = next(at.atomic_msn);
  at.reported = later(at.reported, inbound.progress);
  ++at.response;
  at.response_next = false;
  at.source = Source::none;
}

bool Transmitter::fails(const SendWork& work) const { return work.status != Status::success || is_impossible(work); }

bool Transmitter::report_due(const Cursor& at) const {
  return reports_progress_ && !at.immediate_next && uses_queue(queue_.at(at.sequence), kSendQueue) &&
         at.reports == reports_.end() && progress() != at.reported;
}

bool Transmitter::choose_any(Cursor& at, const mpa::Batch* batch) const {
  if (terminate_) {
    if (at.terminate_sent) return false;
    const bool answers = at.response < answer_until_;
    if (!answers || at.source != Source::response) at.offset = 0;
    at.source = answers ? Source::response : Source::terminate;
    return true;
  }
  if (ended_) return false;
  if (at.source != Source::none) return true;
  at.offset = 0;
  if (!at.rtr_sent) {
    at.source = Source::rtr;
    return true;
  }
  if (hold_ && !local_work_next(at)) return false;

  const bool response = at.response < reads_->inbound.pushed();
  const bool report = at.reports != reports_.end();
  const bool probe = probe_due(at, batch);
  const bool work = probe || may_begin(at);
  if (!response && !work && !report) return false;
  const bool hello = report && reports_.at(at.reports).occasion == kHello;
  // The answer to a probe, by which the peer asks whether its messages have been placed, goes before this end's work
  // and reports: the peer should know that its messages are placed before it gets a message that may reply to them.
  if (response && !hello &&
      (at.response_next || !(work || report) || SharedReads::is_probe(reads_->inbound.at(at.response)))) {
    at.source = Source::response;
  } else if (report) {
    at.source = Source::report;
  } else {
    at.source = probe ? Source::probe : Source::work;
  }
  return true;
}

void Transmitter::advance(Cursor& at, std::uint32_t payload, bool last) const {
  at.offset += payload;
  if (!last) return;
  at.offset = 0;
  switch (at.source) {
    case Source::work: return advance_work(at);
    case Source::response: return advance_response(at);
    case Source::none: break;
    case Source::rtr:
      at.rtr_sent = true;
      if (rules_->rtr == mpa::ReadyToReceive::read) at.read_msn = next(at.read_msn);
      break;
    case Source::probe:
      at.read_msn = next(at.read_msn);
      ++at.placement.probes;
      at.placement.pass_request(at.sequence);
      at.response_next = true;
      break;
    case Source::report: at.reported = reports_.at(at.reports++).progress; break;
    case Source::terminate: at.terminate_sent = true; break;
  }
  at.source = Source::none;
}

}  // namespace uiw::rdmap
