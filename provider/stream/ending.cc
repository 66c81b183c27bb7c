// SPDX-License-Identifier: MIT
// How a stream ends: by whom, what goes to the wire, what becomes of the work, and what is reported.
#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "provider/connect/linger.h"
#include "provider/progress/engine.h"
#include "provider/stream/stream.h"
#include "provider/stream/terminate_meaning.h"

namespace uiw::provider {

namespace {
constexpr std::chrono::seconds kPatience{5};
}  // namespace

// ---- The program ends it ----

int Stream::disconnect() {
  const Phase before = phase_;
  answer_last();
  if (before == Phase::running && phase_ != Phase::running) return 0;  // which ended it
  {
    const std::lock_guard lock(locks_.send);
    if (phase_ != Phase::running) return phase_ == Phase::closing ? 0 : ENOTCONN;
    phase_ = Phase::closing;
    const bool bounded = later(kPatience, &Stream::stop_closing, send_queue_.head());
    transmit();
    if (bounded) return 0;
  }
  // Without a timer it might go on for ever.
  if (phase_ == Phase::closing) end_by_reset();
  return 0;
}

void Stream::abort_beginning() {
  if (!runs_or_closes()) return;
  if (policy_.manual) return peer_left(true);
  end_by_reset();
}

void Stream::completion_lost() {
  if (!runs_or_closes()) return;
  host_.report(IBV_EVENT_QP_FATAL);
  end_with(catastrophic_terminate());
}

void Stream::flush_work() { end(std::nullopt, rdmap::Status::flushed, true); }

// On InfiniBand all that has come is acknowledged by then, but here the peer may not even have asked.
void Stream::leave() {
  answer_last();
  if (phase_ == Phase::running && policy_.reliable) tell_not_ready();
}

void Stream::fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status) {
  if (!culprit) host_.report(IBV_EVENT_QP_FATAL);
  end(culprit, status, status == rdmap::Status::rnr_exceeded);
}

// ---- An error here ----

// What was to be done cannot be done later: octets of the stream are lost.
void Stream::end_without_memory() {
  if (!runs_or_closes()) return;
  host_.report(IBV_EVENT_QP_FATAL);
  end_by_reset();
}

// An error that a completion tells of is told by no async event (Verbs draft section 6.2.3).
void Stream::end_for_send_error(bool linger) {
  {
    const std::lock_guard lock(locks_.send);
    error_told_ = error_told_ || transmitter_.failure().has_value();
  }
  if (!error_told_) host_.report(IBV_EVENT_QP_FATAL);
  end(std::nullopt, rdmap::Status::flushed, linger);
}

bool Stream::work_failed_here() {
  const std::lock_guard lock(locks_.send);
  return transmitter_.failure().has_value();
}

void Stream::stream_error(const rdmap::Terminate& terminate) {
  if (policy_.manual && receiver_.failed_read()) {
    // On InfiniBand the completion says that its memory is not there, and the peer learns nothing.
    {
      const std::lock_guard lock(locks_.send);
      transmitter_.placed_before(*receiver_.failed_read());
    }
    return end(receiver_.failed_read(), rdmap::Status::local_protection, true);
  }
  if (!receive_error_told_) host_.report(event_of(terminate));
  end_with(terminate);
}

// `peer_gone`: our part is to tell what is left of it; there was nothing wrong with what we had received.
void Stream::end_with(const rdmap::Terminate& terminate, bool peer_gone) {
  {
    const std::lock_guard lock(locks_.send);
    // That an answer has come says what has been placed, be there room for it or not.
    if (receiver_.failed_read()) transmitter_.placed_before(*receiver_.failed_read());
    // Where the octets themselves cannot be trusted there is nothing to wait for.
    transmitter_.terminate(terminate, terminate.layer != rdmap::Layer::llp);
  }
  if (peer_gone) return end(never_confirmed(), rdmap::Status::retry_exceeded, true);
  end(receiver_.failed_read(), rdmap::Status::local_protection, true);
}

// ---- The peer ends it ----

void Stream::peer_terminated(const rdmap::Terminate& terminate) {
  std::optional<std::uint64_t> culprit;
  rdmap::Status status = completion_status_of(terminate);
  {
    const std::lock_guard lock(locks_.send);
    culprit = terminate.has_ddp_header ? transmitter_.find_terminated(terminate) : transmitter_.oldest_sent();
    if (culprit) {
      // What the peer was sent before has been placed, or it would have complained of that.
      transmitter_.placed_before(*culprit);
      // An operation that is no more than misaligned is an invalid request (as on InfiniBand); RFC 7306 section 8.2 has
      // no error code of its own for it.
      const bool atomic = send_queue_.at(*culprit).kind == rdmap::WorkKind::atomic;
      if (atomic && status == rdmap::Status::remote_operation) status = rdmap::Status::remote_invalid_request;
    }
  }
  // On InfiniBand a completion says it.
  if (!policy_.manual || !culprit) host_.report(IBV_EVENT_QP_FATAL);
  end(culprit, status, false);
}

void Stream::peer_closed(bool broken) {
  if (phase_ == Phase::ended || phase_ == Phase::gone) return;
  if (phase_ == Phase::lingering) {
    const std::lock_guard lock(locks_.send);
    phase_ = Phase::ended;
    forget_deferred();
    socket_.close();
    return;
  }
  if (!broken && phase_ == Phase::running) {
    const std::lock_guard lock(locks_.send);
    send_waiting();
  }
  if (policy_.manual) return peer_left(broken);
  if (work_failed_here()) return end_for_send_error(!broken);  // which was first
  if (!broken && phase_ == Phase::running && answers_due()) {
    host_.report(IBV_EVENT_QP_FATAL);  // Bad LLP Close (section 6.2.2.2)
    // A responder sends nothing before the first message of its peer, a Terminate neither.
    if (agreed_.initiator || established_) return end_with(catastrophic_terminate(), true);
  }
  end(never_confirmed(), rdmap::Status::retry_exceeded, false);
  if (broken) report_lost();
}

// A manual connection has ended without a Terminate.
void Stream::peer_left(bool broken) {
  // Work that could not be sent failed before, and completes with its own error, even if nobody has come for that yet.
  if (work_failed_here()) return end_for_send_error(!broken);
  std::optional<std::uint64_t> culprit;
  {
    const std::lock_guard lock(locks_.send);
    // It called, and gave up before it got the answer: it calls again.
    if (!agreed_.initiator && !established_) return forget();
    // Nothing has come and nothing has gone: it may have found out that this is not its peer.
    const bool untouched = receiver_.dealt_with() == rdmap::DealtWith{} && !receiver_.in_message();
    if (agreed_.initiator && host_.state() == IBV_QPS_RTR && untouched && send_queue_.empty()) return forget();
    // Where the peer has closed in order, what was sent and is not to be told of counts as received.
    if (!broken) transmitter_.release_unsignaled();
    if (!receiver_.in_message()) {
      host_.peer_gone();
      let_go_of_socket();
      phase_ = Phase::gone;
      signals_.receive_stalled = false;
      read_ahead_.drop();
      if (owner_) owner_->stream_ended();
      owner_.reset();
      return;
    }
    if (!send_queue_.empty()) culprit = send_queue_.head();
    send_dead_ = send_dead_ || broken;
  }
  end(culprit, rdmap::Status::retry_exceeded, false);
}

// Is there work that a peer which closes leaves unfinished?
bool Stream::answers_due() {
  const std::lock_guard lock(locks_.send);
  return transmitter_.unfinished() || !reads_.inbound.empty();
}

// Remote rule: the work which, where the connection is gone, is the first that the peer has said nothing about.
std::optional<std::uint64_t> Stream::never_confirmed() {
  const std::lock_guard lock(locks_.send);
  if (transmitter_.completion() == rdmap::Completion::local) return std::nullopt;
  transmitter_.release_unsignaled();
  return transmitter_.oldest_sent();
}

// LLP Connection Lost or Reset (Verbs draft figure 24); the state is ERR by then (section 6.2.5).
void Stream::report_lost() {
  {
    const std::lock_guard lock(locks_.send);
    if (error_told_) return;
  }
  host_.report(IBV_EVENT_QP_FATAL);
}

// ---- The end ----

void Stream::end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger) {
  {
    const std::lock_guard lock(locks_.send);
    host_.enter_error();
    // Work that could not be sent failed first, whatever else has come up since.
    if (const auto& failure = transmitter_.failure(); failure && !(culprit && *culprit < failure->sequence)) {
      culprit = failure->sequence;
      status = failure->status;
    }
    transmitter_.flush(culprit, status);
    if (linger && !send_dead_) {
      phase_ = Phase::lingering;
      transmit();
      // A peer that does not read shall not keep the socket of a stream that is over (Verbs draft section 6.2.3).
      if (fin_sent_ || send_dead_ || !later(kPatience, &Stream::stop_lingering, 0)) let_go_of_socket();
    } else {
      let_go_of_socket();
    }
  }
  signals_.receive_stalled = false;
  read_ahead_.drop();
  receiver_.abandon(rdmap::Status::flushed);
  host_.flush_receives();
  if (owner_) {
    owner_->stream_ended();
    owner_.reset();
  }
}

// Nobody waits any longer.
void Stream::end_by_reset() {
  {
    const std::lock_guard lock(locks_.send);
    send_dead_ = true;
  }
  end(never_confirmed(), rdmap::Status::retry_exceeded, false);
}

// Both locks are held. A stream that broke in the middle of an FPDU ends in a reset.
void Stream::let_go_of_socket() {
  phase_ = Phase::ended;
  forget_deferred();
  engine_.release(socket_.fd());
  if (send_dead_) {
    socket_.abort();
  } else {
    linger_and_close(socket_.release());
  }
}

// Both locks are held. What was posted stays, for the stream that comes next.
void Stream::forget() {
  abandon(true);
  host_.drop_stream();
}

void Stream::abandon(bool completes) {
  if (const auto buffer = receiver_.forget_message()) host_.give_back(*buffer, completes);
  if (socket_.is_open()) let_go_of_socket();
  phase_ = Phase::ended;
  forget_deferred();
  signals_.receive_stalled = false;
  if (owner_) owner_->stream_ended();
  owner_.reset();
}

// ---- Timers ----

void Stream::stop_lingering(std::uint64_t) {
  const std::lock_guard receive_lock(locks_.receive);
  const std::lock_guard send_lock(locks_.send);
  if (phase_ != Phase::lingering) return;
  send_dead_ = true;
  let_go_of_socket();
}

// Closing takes a bounded time (Verbs draft section 6.2.5): the peer has so long to close, and longer only as long as
// work that was posted before still completes.
void Stream::stop_closing(std::uint64_t head) {
  const std::lock_guard lock(locks_.receive);
  if (phase_ != Phase::closing) return;
  {
    const std::lock_guard send_lock(locks_.send);
    if (send_queue_.head() != head && later(kPatience, &Stream::stop_closing, send_queue_.head())) return;
  }
  end_by_reset();
  report_lost();
}

// The peer has closed, but messages it sent before wait for receives: the program gets some time to post them.
void Stream::give_up_later() {
  if (giving_up_) return;
  giving_up_ = later(kPatience, &Stream::give_up, pauses_);
  if (!giving_up_) peer_closed(false);  // nobody would come back for it
}

void Stream::give_up(std::uint64_t pauses) {
  const std::lock_guard lock(locks_.receive);
  giving_up_ = false;
  if (!runs_or_closes() || !signals_.receive_stalled) return;
  if (pauses_ == pauses) {
    peer_closed(false);
  } else {
    watch_for_end();  // it does post, if slowly
  }
}

}  // namespace uiw::provider
