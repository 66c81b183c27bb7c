// SPDX-License-Identifier: MIT
#include "rdmap/transmit/choose.h"

#include <algorithm>

namespace uiw::rdmap {

namespace {

using Source = Cursor::Source;

// What only a uiw takes.
bool is_send_immediate(const SendWork& work) { return work.kind == WorkKind::send && work.has_immediate; }

// Work that the peer does not support, posted before that was known.
bool is_impossible(const SenderState& state, const SendWork& work) {
  if (is_answered(work.kind)) return state.read_queue.ord() == 0;
  return is_send_immediate(work) && state.peer() == mpa::PeerKind::other;
}

// Local work sends nothing, so it need not wait for the peer's first FPDU.
bool local_work_next(const SenderState& state, const Cursor& at) {
  return at.sequence < state.work_end() && is_local(state.queue.at(at.sequence).kind);
}

// Whether the next work may begin, or must wait for answers.
bool may_begin(const SenderState& state, const Cursor& at) {
  if (at.sequence >= state.work_end()) return false;
  const SendWork& next = state.queue.at(at.sequence);
  const bool passed = state.read_queue.is_passed(at.sequence);
  if (is_send_immediate(next) && state.peer() == mpa::PeerKind::not_known) return false;
  if (next.fence && !passed && state.read_queue.outstanding() > 0) return false;
  const bool first = state.queue.head() == at.sequence;
  if (next.fence && is_local(next.kind) && !first) return false;
  // Work that fails ends the stream. So it waits until the work before it has completed as it would have.
  const bool followed = state.read_queue.is_followed(at.sequence);
  if (state.tracker.remote() && !first && fails(state, next) && !followed) return false;
  return !is_answered(next.kind) || passed || state.read_queue.has_room(state.tracker.probes_outstanding());
}

// Whether the batch has room for the work and a probe behind it.
bool fits(const SenderState& state, const SendWork& work, const mpa::Batch& batch) {
  const std::size_t length = is_answered(work.kind) ? 0 : work.length;
  const std::size_t fpdus = length / state.segment_payload + 3;
  constexpr std::size_t kOverhead = 64;
  return batch.fpdus() + fpdus <= mpa::Batch::kMaxFpdus &&
         batch.bytes() + length + fpdus * kOverhead <= state.batch_limit;
}

// Whether a probe is sent here. It is sent where nothing else can follow in the batch, so that it covers as much work
// as possible, and in front of a message that does not fit into the batch, so that a long message does not delay it.
bool probe_due(const SenderState& state, const Cursor& at, const mpa::Batch* batch) {
  const PlacementTracker& tracker = state.tracker;
  if (!tracker.remote()) return false;
  if (tracker.probe_pushed(at)) return tracker.probe_stands_at(at);
  // A Read behind this position has been pushed, and is to be built again: it confirms the work, and its place in
  // SharedReads is fixed.
  if (state.read_queue.is_followed(at.sequence)) return false;
  if (tracker.receive_stalled() || !at.placement.unconfirmed || state.queue.head() >= at.sequence ||
      !state.read_queue.has_room_for_probe(tracker.probes_outstanding())) {
    return false;
  }
  const bool wanted = at.placement.completion_due && tracker.probe_worthwhile(at, state.sent);
  if (at.sequence >= state.work_end()) return wanted;
  const SendWork& next = state.queue.at(at.sequence);
  if (may_begin(state, at)) return wanted && batch != nullptr && !fits(state, next, *batch);
  return wanted || fails(state, next) || is_local(next.kind);
}

// The first or only message of the work at the cursor is sent.
void advance_work(const SenderState& state, Cursor& at) {
  const SendWork& work = state.queue.at(at.sequence);
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

void advance_response(const SenderState& state, Cursor& at) {
  const SharedReads::Inbound& inbound = state.reads->inbound.at(at.response);
  if (std::holds_alternative<SharedReads::AtomicInbound>(inbound.request)) at.atomic_msn = next(at.atomic_msn);
  at.reported = later(at.reported, inbound.progress);
  ++at.response;
  at.response_next = false;
  at.source = Source::none;
}

}  // namespace

bool fails(const SenderState& state, const SendWork& work) {
  return work.status != Status::success || is_impossible(state, work);
}

bool report_due(const SenderState& state, const Cursor& at) {
  return state.reports_progress && !at.immediate_next && uses_queue(state.queue.at(at.sequence), kSendQueue) &&
         at.reports == state.reports.end() && state.progress() != at.reported;
}

bool choose(const SenderState& state, Cursor& at, const mpa::Batch* batch) {
  if (state.terminate) {
    if (at.terminate_sent) return false;
    const bool answers = at.response < state.answer_until;
    if (!answers || at.source != Source::response) at.offset = 0;
    at.source = answers ? Source::response : Source::terminate;
    return true;
  }
  if (state.ended) return false;
  if (at.source != Source::none) return true;
  at.offset = 0;
  if (!at.rtr_sent) {
    at.source = Source::rtr;
    return true;
  }
  if (state.hold && !local_work_next(state, at)) return false;

  const bool response = at.response < state.reads->inbound.pushed();
  const bool report = at.reports != state.reports.end();
  const bool probe = probe_due(state, at, batch);
  const bool work = probe || may_begin(state, at);
  if (!response && !work && !report) return false;
  const bool hello = report && state.reports.at(at.reports).occasion == kHello;
  // The answer to a probe goes first: the peer may rely on its work being placed when it gets a message that follows.
  if (response && !hello &&
      (at.response_next || !(work || report) || SharedReads::is_probe(state.reads->inbound.at(at.response)))) {
    at.source = Source::response;
  } else if (report) {
    at.source = Source::report;
  } else {
    at.source = probe ? Source::probe : Source::work;
  }
  return true;
}

void advance(const SenderState& state, Cursor& at, std::uint32_t payload, bool last) {
  at.offset += payload;
  if (!last) return;
  at.offset = 0;
  switch (at.source) {
    case Source::work: return advance_work(state, at);
    case Source::response: return advance_response(state, at);
    case Source::none: break;
    case Source::rtr:
      at.rtr_sent = true;
      if (state.rules->rtr == mpa::ReadyToReceive::read) at.read_msn = next(at.read_msn);
      break;
    case Source::probe:
      at.read_msn = next(at.read_msn);
      ++at.placement.probes;
      at.placement.pass_request(at.sequence);
      at.response_next = true;
      break;
    case Source::report: at.reported = state.reports.at(at.reports++).progress; break;
    case Source::terminate: at.terminate_sent = true; break;
  }
  at.source = Source::none;
}

}  // namespace uiw::rdmap
