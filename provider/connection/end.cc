// SPDX-License-Identifier: MIT
// How a session ends: what is sent to the peer, how posted work completes, and which events are reported.
// docs/architecture.md has the table of all cases.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/mutex.h"
#include "provider/connection/connection.h"
#include "provider/connection/linger.h"
#include "provider/connection/terminate_meaning.h"
#include "provider/process/log.h"
#include "provider/progress/engine.h"
#include "rdmap/error_text.h"
#include "rdmap/terminate.h"

namespace uiw::provider {

namespace {
constexpr std::chrono::seconds kPeerTimeout = Movement::kPatience;
constexpr unsigned kMostLooks = 60;  // a session lingers no longer than 60 times Movement::kLook, which is a minute

// `how`: how this end has learnt of the error.
void log_terminate(std::uint32_t qp_number, const char* how, const rdmap::Terminate& terminate) {
  const rdmap::TerminateText text = rdmap::text_of(terminate);
  log_event(LogLevel::error, "queue pair 0x%06x: its connection ends: %s: %s error: %s (type %u, code 0x%02x)",
            qp_number, how, text.layer, text.error, terminate.type, terminate.code);
}

// Counts the failure of work, if `status` is one of the two that have a counter.
void count_failure(PortCounters& counters, rdmap::Status status) {
  if (status == rdmap::Status::rnr_exceeded) counters.add(PortCounter::rnr_exceeded);
  if (status == rdmap::Status::retry_exceeded) counters.add(PortCounter::retries_exceeded);
}
}  // namespace

void Connection::log_end(LogLevel level, const char* why) const {
  log_event(level, "queue pair 0x%06x: its connection ends: %s", number_, why);
}

// Numbers that change as long as the session makes progress: the head of the send queue, and the octets that the peer
// has taken.
Movement::Counters Connection::counters() const {
  const auto signs = octets().peer_signs();
  return {sends_->head(), signs ? signs->taken : 0};
}

// ---- The program ends the session ----

int Connection::disconnect() {
  if (is_idle()) return ENOTCONN;
  const Phase before = phase_;
  answer_last();
  if (before == Phase::running && phase_ != Phase::running) return 0;  // answering has ended the session
  if (before == Phase::running && !session_->rules.manual) report_last();
  {
    const LockGuard lock(locks.send);
    if (phase_ != Phase::running) return phase_ == Phase::closing ? 0 : ENOTCONN;
    phase_ = Phase::closing;
    log_end(LogLevel::info, "the program disconnects");
    session_->movement.begin(counters());
    const bool bounded = later(Movement::kLook, &Connection::stop_closing, 0);
    session_->transmitter.delay_from(rdmap::Transmitter::kNoHold);
    transmit();
    if (bounded) return 0;
  }
  // There was no memory for the timer, without which closing could take for ever.
  if (phase_ == Phase::closing) end_by_reset();
  return 0;
}

void Connection::lose(Lost why) {
  if (!runs_or_closes()) return;
  log_end(LogLevel::error,
          why == Lost::beginning ? "the peer has sent no first message in time" : "a fault was asked for");
  if (session_->rules.manual) return peer_left(true);
  end_by_reset();
  if (why == Lost::by_fault) report_lost();
}

void Connection::completion_lost() {
  if (!runs_or_closes()) return;
  log_end(LogLevel::error, "a completion queue had no room for a completion");
  host_->report(IBV_EVENT_QP_FATAL);
  end_with(rdmap::terminate_for(rdmap::kCatastrophicStream));
}

void Connection::leave_queue() {
  if (is_idle()) return;
  session_->receiver.leave_queue();
  if (runs_or_closes() && session_->receiver.in_message()) received_error(*session_->receiver.error());
}

void Connection::flush_work() {
  log_end(LogLevel::info, "the program moves the queue pair to ERROR");
  end(std::nullopt, rdmap::Status::flushed, true);
}

// On InfiniBand the adapter has acknowledged everything that it has received. Here the peer learns from the answer to a
// probe (an RDMA Read of no octets) what is placed, and may not have sent the probe yet. So this end reports how much
// of the peer's work has been placed.
void Connection::leave() {
  if (is_idle()) return;
  if (takes_reports()) {
    answer_last();
    if (phase_ == Phase::running && session_->rules.reliable) report_last();
  }
  say_placed();
}

void Connection::fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status) {
  log_end(LogLevel::error, rdmap::text_of(status));
  if (!culprit) host_->report(IBV_EVENT_QP_FATAL);
  end(culprit, status, status == rdmap::Status::rnr_exceeded);
}

// ---- This end finds an error ----

// The operation that found no memory cannot be repeated: octets of the stream are lost.
void Connection::end_without_memory() {
  if (!runs_or_closes()) return;
  log_end(LogLevel::error, "there is no memory");
  host_->report(IBV_EVENT_QP_FATAL);
  end_by_reset();
}

// An error that a completion reports is not reported by an async event (Verbs draft section 6.2.3).
void Connection::end_for_send_error(bool linger) {
  {
    const LockGuard lock(locks.send);
    const auto& failure = session_->transmitter.failure();
    session_->send_error_reported = session_->send_error_reported || failure.has_value();
    log_end(LogLevel::error,
            failure ? rdmap::text_of(failure->status) : "TCP takes no more octets, or a completion queue is full");
  }
  if (!session_->send_error_reported) host_->report(IBV_EVENT_QP_FATAL);
  end(std::nullopt, rdmap::Status::flushed, linger);
}

void Connection::received_error(const rdmap::Terminate& terminate) {
  if (session_->rules.manual && session_->receiver.failed_read()) {
    // As on InfiniBand, the completion of the Read says that its sink memory is not accessible, and the peer is not
    // told.
    {
      const LockGuard lock(locks.send);
      session_->transmitter.placed_before(*session_->receiver.failed_read());
    }
    log_end(LogLevel::error, "the memory of an RDMA Read is not accessible");
    return end(session_->receiver.failed_read(), rdmap::Status::local_protection, true);
  }
  log_terminate(number_, "what has arrived is wrong", terminate);
  work_->refuses(terminate);
  // If the error is that the memory of a Read or an atomic operation of this end is not accessible, the completion of
  // this operation reports the error, so no event is needed.
  if (!session_->receive_error_reported && !session_->receiver.failed_read()) host_->report(event_of(terminate));
  end_with(terminate);
}

// `peer_gone`: the peer has sent nothing wrong, but has closed while work was unfinished.
void Connection::end_with(const rdmap::Terminate& terminate, bool peer_gone) {
  {
    const LockGuard lock(locks.send);
    // The answer to the failed Read confirms all work before that Read, although the answer could not be placed.
    if (session_->receiver.failed_read()) session_->transmitter.placed_before(*session_->receiver.failed_read());
    // After an MPA error the received octets cannot be trusted, so earlier requests are not answered before the
    // Terminate.
    session_->transmitter.terminate(terminate, terminate.layer != rdmap::Layer::llp);
    // After FIN no Terminate can be sent.
    if (!session_->fin_sent) engine_.counters().add(PortCounter::terminates_sent);
  }
  if (peer_gone) return end(first_unconfirmed(), rdmap::Status::retry_exceeded, true);
  end(session_->receiver.failed_read(), rdmap::Status::local_protection, true);
}

// ---- The peer ends the session ----

void Connection::peer_terminated(const rdmap::Terminate& terminate) {
  log_terminate(number_, "the peer has sent a Terminate", terminate);
  work_->is_refused(terminate);
  engine_.counters().add(PortCounter::terminates_received);
  std::optional<std::uint64_t> culprit;
  rdmap::Status status = completion_status_of(terminate);
  {
    const LockGuard lock(locks.send);
    take_placed();
    culprit = terminate.has_ddp_header ? session_->transmitter.find_terminated(terminate)
                                       : session_->transmitter.oldest_sent();
    if (culprit) {
      // The peer has placed the work before `culprit`, otherwise its Terminate would be about that work.
      session_->transmitter.placed_before(*culprit);
      // An atomic operation on a misaligned address completes as an invalid request, as on InfiniBand. RFC 7306 section
      // 8.2 has no error code for misalignment, so the Terminate only says that the remote operation failed.
      const rdmap::SendWork& work = sends_->at(*culprit);
      const bool aligned = work.kind == rdmap::WorkKind::atomic && work.atomic != rdmap::AtomicOpcode::flush;
      if (aligned && status == rdmap::Status::remote_operation) status = rdmap::Status::remote_invalid_request;
    }
  }
  if (!host_->follows_infiniband() || !culprit) host_->report(IBV_EVENT_QP_FATAL);
  end(culprit, status, true);
}

void Connection::peer_closed(bool broken) {
  if (phase_ == Phase::idle || phase_ == Phase::ended || phase_ == Phase::gone) return;
  if (phase_ == Phase::lingering) {
    const LockGuard lock(locks.send);
    // The peer may have closed only its sending direction, and may still read. So this end goes on sending what is
    // left; stop_lingering() limits the time.
    if (!broken && !session_->shared && !is_done()) return;
    phase_ = Phase::ended;
    forget_deferred();
    count_traffic(true);
    session_->shared.reset();
    session_->socket.close();
    return;
  }
  // An initiator that does not support the markers that the MPA Reply asks for closes without having sent a message. So
  // if this end has asked for markers and the peer has sent no message, the log names markers as a possible reason.
  const bool unheard = !session_->rules.initiator && !session_->rules.manual && !session_->receiver.heard();
  log_event(broken ? LogLevel::error : LogLevel::info, "queue pair 0x%06x: its connection ends: %s%s", number_,
            broken ? "TCP has lost the connection, or the peer has reset it" : "the peer has closed it",
            unheard && session_->rules.marked ? kNoMarkersPerhaps : "");
  if (!broken && phase_ == Phase::running) {
    const LockGuard lock(locks.send);
    send_posts_before_end();
  }
  if (session_->rules.manual) return peer_left(broken);
  if (has_failed()) return end_for_send_error(!broken);  // the send error came first
  if (!broken && phase_ == Phase::running && awaits_peer()) {
    host_->report(IBV_EVENT_QP_FATAL);  // Bad LLP Close (Verbs draft section 6.2.2.2)
    // A responder that may not send yet sends no Terminate either.
    if (session_->rules.initiator || session_->established || session_->speaks_first)
      return end_with(rdmap::terminate_for(rdmap::kCatastrophicStream), true);
  }
  end(first_unconfirmed(), rdmap::Status::retry_exceeded, !broken);
  if (broken) report_lost();
}

// A manual connection (one made without rdma_cm) has ended without a Terminate.
void Connection::peer_left(bool broken) {
  // Work that could not be sent failed before the peer left. It completes with its own error, even if no thread has
  // ended the session for that error yet.
  if (has_failed()) return end_for_send_error(!broken);
  const LockGuard lock(locks.send);
  // The peer is an initiator that has closed before its first message. It connects again, so this session is dropped.
  if (!session_->rules.initiator && !session_->established) return abandon(true);
  // Nothing has been exchanged, and no work is posted. The peer may have found out that it wants another queue pair, so
  // this session is dropped.
  const bool untouched = session_->receiver.progress() == rdmap::Progress{} && !session_->receiver.in_message();
  if (session_->rules.initiator && host_->state() == IBV_QPS_RTR && untouched && sends_->empty()) return abandon(true);
  take_placed();
  // If the peer has sent FIN, unsignaled work that TCP has taken counts as received.
  if (!broken) session_->transmitter.release_unsignaled();
  // As on InfiniBand, the receive of a message that has arrived only in part is free for the next message.
  if (const auto buffer = session_->receiver.forget_message()) work_->give_back(*buffer, true);
  host_->peer_gone();
  let_go_of_socket();
  phase_ = Phase::gone;
  stop_receiving();
}

// Reports the async event of LLP Connection Lost or Reset (Verbs draft figure 24), unless a completion has reported the
// error. Called after end(), so the state is ERR already (section 6.2.5).
void Connection::report_lost() {
  {
    const LockGuard lock(locks.send);
    if (session_->send_error_reported) return;
  }
  host_->report(IBV_EVENT_QP_FATAL);
}

// ---- The end ----

void Connection::end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger) {
  tell_owner();
  note_placed();  // before the peer gets our Terminate or FIN
  say_placed();
  {
    const LockGuard lock(locks.send);
    host_->enter_error();
    // Work that could not be sent is reported as the failed work, with its own status, instead of `culprit`, unless
    // `culprit` was posted before it.
    if (const auto& failure = session_->transmitter.failure(); failure && !(culprit && *culprit < failure->sequence)) {
      culprit = failure->sequence;
      status = failure->status;
    }
    take_placed();
    session_->transmitter.flush(culprit, status);
    if (culprit) count_failure(engine_.counters(), status);
    if (linger && !session_->dead) {
      phase_ = Phase::lingering;
      transmit();
      // A peer that does not read must not keep the socket of an ended session open (Verbs draft section 6.2.3).
      session_->movement.begin(counters());
      if (is_done() || !later(Movement::kLook, &Connection::stop_lingering, 1)) let_go_of_socket();
    } else {
      let_go_of_socket();
    }
  }
  stop_receiving();
  session_->receiver.abandon(rdmap::Status::flushed);
  work_->flush_receives();
}

void Connection::end_lingering() {
  const LockGuard lock(locks.send);
  if (is_done()) let_go_of_socket();
}

// Tells the owner of the connection that it ends. This happens before the peer can learn of the end, so the owner knows
// of the end before anything arrives that the peer does because of it.
void Connection::tell_owner() {
  if (const auto owner = std::exchange(session_->owner, nullptr)) owner->connection_ended();
}

// Ends the session by RST, without waiting for the peer.
void Connection::end_by_reset() {
  {
    const LockGuard lock(locks.send);
    stop_for_good();
  }
  end(first_unconfirmed(), rdmap::Status::retry_exceeded, false);
}

// If the session may write nothing more (`dead`), an FPDU may have been sent in part, so the connection is reset.
// Otherwise it is closed in order.
void Connection::let_go_of_socket() {
  tell_owner();
  phase_ = Phase::ended;
  forget_deferred();
  engine_.release(session_->socket.fd());
  // A polling peer looks at TCP only now and then, so the end is written to the shared memory, too.
  if (session_->shared && !session_->dead) session_->shared->shutdown_send();
  count_traffic(true);
  session_->shared.reset();
  if (session_->dead) {
    session_->socket.abort();
  } else {
    linger_and_close(std::move(session_->socket));
  }
}

// Posted work stays in the queues, for the next session.
void Connection::abandon(bool completes) {
  if (is_idle()) return;
  if (const auto buffer = session_->receiver.forget_message()) work_->give_back(*buffer, completes);
  if (session_->socket.is_open()) let_go_of_socket();
  forget_deferred();
  stop_receiving();
  tell_owner();
  phase_ = Phase::idle;
  work_->await_no_receive();
}

// ---- Timers ----

// Called once a second while the session lingers. A peer that reads slowly still gets all octets, if it takes them
// within a minute and never stops for five seconds.
void Connection::stop_lingering(std::uint64_t looks) {
  const LockGuard lock(locks.send);
  if (phase_ != Phase::lingering) return;
  if (looks < kMostLooks && session_->movement.goes_on(counters()) &&
      later(Movement::kLook, &Connection::stop_lingering, looks + 1))
    return;
  stop_for_good();
  let_go_of_socket();
}

// Closing takes a bounded time (Verbs draft section 6.2.5). The peer has to close within kPeerTimeout after it last
// took octets, or after work last completed.
void Connection::stop_closing(std::uint64_t) {
  if (phase_ != Phase::closing) return;
  bool peer_is_silent = false;
  {
    const LockGuard send_lock(locks.send);
    if (session_->movement.goes_on(counters()) && later(Movement::kLook, &Connection::stop_closing, 0)) return;
    peer_is_silent = !session_->fin_sent && peer() == mpa::PeerKind::not_known;
  }
  // Some work may wait for the peer's first message, which does not come. That work fails now, which ends the session.
  if (peer_is_silent && later(Movement::kLook, &Connection::stop_closing, 0)) {
    return peer_known(mpa::PeerKind::other, false);
  }
  log_end(LogLevel::error, "the peer does not close it");
  end_by_reset();
  report_lost();
}

// The peer has closed, but messages that it sent before still wait for receives. The program gets time to post
// receives.
void Connection::give_up_later() {
  if (session_->giving_up) return;
  session_->giving_up = later(kPeerTimeout, &Connection::give_up, session_->pauses);
  if (!session_->giving_up) peer_closed(false);  // without a timer the session has to end now
}

void Connection::give_up(std::uint64_t pauses) {
  session_->giving_up = false;
  if (!runs_or_closes() || !signals.receive_stalled) return;
  if (session_->pauses == pauses) {
    peer_closed(false);
  } else {
    watch_for_end();  // the program posts receives, but slowly, so it gets more time
  }
}

}  // namespace uiw::provider
