// SPDX-License-Identifier: MIT
// How a stream ends: what is sent to the peer, how posted work completes, and which events are reported.
// docs/architecture.md has the table of all cases.
#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "provider/process/log.h"
#include "provider/progress/engine.h"
#include "provider/stream/linger.h"
#include "provider/stream/stream.h"
#include "provider/stream/terminate_meaning.h"
#include "rdmap/error_text.h"

namespace uiw::provider {

namespace {
constexpr std::chrono::seconds kPeerTimeout = Movement::kPatience;
constexpr unsigned kMostLooks = 60;  // at a stream that lingers

void log_end(const StreamState& state, LogLevel level, const char* why) {
  log_event(level, "queue pair 0x%06x: its connection ends: %s", state.qp_number, why);
}

// `how`: how this end has learnt of the error.
void log_terminate(const StreamState& state, const char* how, const rdmap::Terminate& terminate) {
  const rdmap::TerminateText text = rdmap::text_of(terminate);
  log_event(LogLevel::error, "queue pair 0x%06x: its connection ends: %s: %s error: %s (type %u, code 0x%02x)",
            state.qp_number, how, text.layer, text.error, terminate.type, terminate.code);
}

// The head of the send queue, and the octets that the peer has taken. Both locks are held.
Movement::Counters counters_of(const StreamState& state) {
  const auto signs = state.octets().peer_signs();
  return {state.sends.head(), signs ? signs->taken : 0};
}

// Posted work has failed with this status.
void count_failure(const StreamState& state, rdmap::Status status) {
  if (status == rdmap::Status::rnr_exceeded) state.engine.counters().add(PortCounter::rnr_exceeded);
  if (status == rdmap::Status::retry_exceeded) state.engine.counters().add(PortCounter::retries_exceeded);
}
}  // namespace

// ---- The program ends the stream ----

int Stream::disconnect() {
  const StreamPhase before = state_.phase;
  receiver_.answer_last();
  if (before == StreamPhase::running && state_.phase != StreamPhase::running)
    return 0;  // answering has ended the stream
  if (before == StreamPhase::running && !state_.rules.manual) receiver_.report_last();
  {
    const std::lock_guard lock(state_.locks.send);
    if (state_.phase != StreamPhase::running) return state_.phase == StreamPhase::closing ? 0 : ENOTCONN;
    state_.phase = StreamPhase::closing;
    log_end(state_, LogLevel::info, "the program disconnects");
    movement_.begin(counters_of(state_));
    const bool bounded = later(Movement::kLook, &Stream::stop_closing, 0);
    sender_.transmit();
    if (bounded) return 0;
  }
  // Without the timer, closing could take for ever.
  if (state_.phase == StreamPhase::closing) end_by_reset();
  return 0;
}

void Stream::lose_connection(Lost why) {
  if (!state_.runs_or_closes()) return;
  log_end(state_, LogLevel::error,
          why == Lost::beginning ? "the peer has sent no first message in time" : "a fault was asked for");
  if (state_.rules.manual) return peer_left(true);
  end_by_reset();
  if (why == Lost::by_fault) report_lost();
}

void Stream::completion_lost() {
  if (!state_.runs_or_closes()) return;
  log_end(state_, LogLevel::error, "a completion queue had no room for a completion");
  state_.host.report(IBV_EVENT_QP_FATAL);
  end_with(catastrophic_terminate());
}

void Stream::flush_work() {
  log_end(state_, LogLevel::info, "the program moves the queue pair to ERROR");
  end(std::nullopt, rdmap::Status::flushed, true);
}

// On InfiniBand the adapter has acknowledged all that it has received. Here the peer may not have sent its probe yet,
// so a report says how much of its work has been placed.
void Stream::leave() {
  if (!receiver_.takes_reports()) return;
  receiver_.answer_last();
  if (state_.phase == StreamPhase::running && state_.rules.reliable) receiver_.report_last();
}

void Stream::fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status) {
  log_end(state_, LogLevel::error, rdmap::text_of(status));
  if (!culprit) state_.host.report(IBV_EVENT_QP_FATAL);
  end(culprit, status, status == rdmap::Status::rnr_exceeded);
}

// ---- An error here ----

// The operation that found no memory cannot be repeated: octets of the stream are lost.
void Stream::end_without_memory() {
  if (!state_.runs_or_closes()) return;
  log_end(state_, LogLevel::error, "there is no memory");
  state_.host.report(IBV_EVENT_QP_FATAL);
  end_by_reset();
}

// An error that a completion reports is not reported by an async event (Verbs draft section 6.2.3).
void Stream::end_for_send_error(bool linger) {
  {
    const std::lock_guard lock(state_.locks.send);
    const auto& failure = sender_.transmitter().failure();
    error_reported_ = error_reported_ || failure.has_value();
    log_end(state_, LogLevel::error,
            failure ? rdmap::text_of(failure->status) : "TCP takes no more octets, or a completion queue is full");
  }
  if (!error_reported_) state_.host.report(IBV_EVENT_QP_FATAL);
  end(std::nullopt, rdmap::Status::flushed, linger);
}

void Stream::stream_error(const rdmap::Terminate& terminate) {
  if (state_.rules.manual && receiver_.rdmap().failed_read()) {
    // As on InfiniBand, the completion of the Read says that its sink memory is not accessible, and the peer is not
    // told.
    {
      const std::lock_guard lock(state_.locks.send);
      sender_.transmitter().placed_before(*receiver_.rdmap().failed_read());
    }
    log_end(state_, LogLevel::error, "the memory of an RDMA Read is not accessible");
    return end(receiver_.rdmap().failed_read(), rdmap::Status::local_protection, true);
  }
  log_terminate(state_, "what has arrived is wrong", terminate);
  // The completion of a Read or atomic operation, too, says that its memory is not accessible.
  if (!receiver_.error_reported() && !receiver_.rdmap().failed_read()) state_.host.report(event_of(terminate));
  end_with(terminate);
}

// `peer_gone`: the peer has sent nothing wrong, but has closed while work was unfinished.
void Stream::end_with(const rdmap::Terminate& terminate, bool peer_gone) {
  {
    const std::lock_guard lock(state_.locks.send);
    // The answer to the failed Read confirms all work before that Read, although the answer could not be placed.
    if (receiver_.rdmap().failed_read()) sender_.transmitter().placed_before(*receiver_.rdmap().failed_read());
    // After an MPA error the received octets cannot be trusted, so earlier requests are not answered before the
    // Terminate.
    sender_.transmitter().terminate(terminate, terminate.layer != rdmap::Layer::llp);
    // Nothing follows our FIN.
    if (!sender_.fin_sent()) state_.engine.counters().add(PortCounter::terminates_sent);
  }
  if (peer_gone) return end(sender_.first_unconfirmed(), rdmap::Status::retry_exceeded, true);
  end(receiver_.rdmap().failed_read(), rdmap::Status::local_protection, true);
}

// ---- The peer ends the stream ----

void Stream::peer_terminated(const rdmap::Terminate& terminate) {
  log_terminate(state_, "the peer has sent a Terminate", terminate);
  state_.engine.counters().add(PortCounter::terminates_received);
  std::optional<std::uint64_t> culprit;
  rdmap::Status status = completion_status_of(terminate);
  {
    const std::lock_guard lock(state_.locks.send);
    culprit = terminate.has_ddp_header ? sender_.transmitter().find_terminated(terminate)
                                       : sender_.transmitter().oldest_sent();
    if (culprit) {
      // The peer has placed the work before `culprit`; otherwise its Terminate would be about that work.
      sender_.transmitter().placed_before(*culprit);
      // An atomic operation on a misaligned address completes as an invalid request, as on InfiniBand. RFC 7306 section
      // 8.2 has no error code for misalignment, so the Terminate only says that the remote operation failed.
      const bool atomic = state_.sends.at(*culprit).kind == rdmap::WorkKind::atomic;
      if (atomic && status == rdmap::Status::remote_operation) status = rdmap::Status::remote_invalid_request;
    }
  }
  // On InfiniBand the completion of the culprit reports the error, so a manual connection needs no event.
  if (!state_.rules.manual || !culprit) state_.host.report(IBV_EVENT_QP_FATAL);
  end(culprit, status, true);
}

void Stream::peer_closed(bool broken) {
  if (state_.phase == StreamPhase::ended || state_.phase == StreamPhase::gone) return;
  if (state_.phase == StreamPhase::lingering) {
    const std::lock_guard lock(state_.locks.send);
    // The peer may have closed its half only: it still gets what is left, as far as it takes that (stop_lingering).
    if (!broken && !state_.shared && !sender_.is_done()) return;
    state_.phase = StreamPhase::ended;
    sender_.forget_deferred();
    sender_.count_traffic(true);
    state_.shared.reset();
    state_.socket.close();
    return;
  }
  // An initiator that does not support what the reply asks for gives up without a message.
  const bool unheard = !state_.rules.initiator && !state_.rules.manual && !receiver_.rdmap().heard();
  log_event(broken ? LogLevel::error : LogLevel::info, "queue pair 0x%06x: its connection ends: %s%s", state_.qp_number,
            broken ? "TCP has lost the connection, or the peer has reset it" : "the peer has closed it",
            unheard && state_.rules.marked ? kNoMarkersPerhaps : "");
  if (!broken && state_.phase == StreamPhase::running) {
    const std::lock_guard lock(state_.locks.send);
    sender_.send_posts_before_end();
  }
  if (state_.rules.manual) return peer_left(broken);
  if (sender_.has_failed()) return end_for_send_error(!broken);  // that error came first
  if (!broken && state_.phase == StreamPhase::running && sender_.awaits_peer()) {
    state_.host.report(IBV_EVENT_QP_FATAL);  // Bad LLP Close (Verbs draft section 6.2.2.2)
    // A responder that may not send yet sends no Terminate either.
    if (state_.rules.initiator || receiver_.is_established() || speaks_first_)
      return end_with(catastrophic_terminate(), true);
  }
  end(sender_.first_unconfirmed(), rdmap::Status::retry_exceeded, !broken);
  if (broken) report_lost();
}

// A manual connection has ended without a Terminate.
void Stream::peer_left(bool broken) {
  // Work that could not be sent failed before the peer left. It completes with its own error, even if no thread has
  // ended the stream for that error yet.
  if (sender_.has_failed()) return end_for_send_error(!broken);
  const std::lock_guard lock(state_.locks.send);
  // The peer is the initiator, and has closed before its first message: it calls again.
  if (!state_.rules.initiator && !receiver_.is_established()) return forget();
  // No message has arrived and no work is posted: the peer may have found out that this queue pair is not the one it
  // means.
  const bool untouched = receiver_.rdmap().progress() == rdmap::Progress{} && !receiver_.rdmap().in_message();
  if (state_.rules.initiator && state_.host.state() == IBV_QPS_RTR && untouched && state_.sends.empty())
    return forget();
  // If the peer has sent FIN, unsignaled work that TCP has taken counts as received.
  if (!broken) sender_.transmitter().release_unsignaled();
  // On InfiniBand a receive waits on, too, of whose message the peer has sent a part before it left.
  if (const auto buffer = receiver_.rdmap().forget_message()) state_.work.give_back(*buffer, true);
  state_.host.peer_gone();
  let_go_of_socket();
  state_.phase = StreamPhase::gone;
  receiver_.stop();
}

// LLP Connection Lost or Reset (Verbs draft figure 24). Called after end(), so the state is ERR already (section
// 6.2.5).
void Stream::report_lost() {
  {
    const std::lock_guard lock(state_.locks.send);
    if (error_reported_) return;
  }
  state_.host.report(IBV_EVENT_QP_FATAL);
}

// ---- The end ----

void Stream::end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger) {
  tell_owner();
  {
    const std::lock_guard lock(state_.locks.send);
    state_.host.enter_error();
    // Work that could not be sent failed before any other error was found, unless `culprit` is older work.
    if (const auto& failure = sender_.transmitter().failure(); failure && !(culprit && *culprit < failure->sequence)) {
      culprit = failure->sequence;
      status = failure->status;
    }
    sender_.transmitter().flush(culprit, status);
    if (culprit) count_failure(state_, status);
    if (linger && !sender_.is_dead()) {
      state_.phase = StreamPhase::lingering;
      sender_.transmit();
      // A peer that does not read must not keep the socket of an ended stream open (Verbs draft section 6.2.3).
      movement_.begin(counters_of(state_));
      if (sender_.is_done() || !later(Movement::kLook, &Stream::stop_lingering, 1)) let_go_of_socket();
    } else {
      let_go_of_socket();
    }
  }
  receiver_.stop();
  receiver_.rdmap().abandon(rdmap::Status::flushed);
  state_.work.flush_receives();
}

// Before the peer can know that the stream has ended: what the peer does then comes behind the report of the end.
void Stream::tell_owner() {
  if (const auto owner = std::exchange(owner_, nullptr)) owner->stream_ended();
}

// Ends the stream by RST, without waiting for the peer.
void Stream::end_by_reset() {
  {
    const std::lock_guard lock(state_.locks.send);
    sender_.stop_for_good();
  }
  end(sender_.first_unconfirmed(), rdmap::Status::retry_exceeded, false);
}

// Both locks are held. If the sender is dead, an FPDU may have been sent in part, so the connection is reset.
void Stream::let_go_of_socket() {
  tell_owner();
  state_.phase = StreamPhase::ended;
  sender_.forget_deferred();
  state_.engine.release(state_.socket.fd());
  // A peer that polls looks at TCP only now and then.
  if (state_.shared && !sender_.is_dead()) state_.shared->shutdown_send();
  sender_.count_traffic(true);
  state_.shared.reset();
  if (sender_.is_dead()) {
    state_.socket.abort();
  } else {
    linger_and_close(std::move(state_.socket));
  }
}

// Both locks are held. Posted work stays in the queues, for the next stream.
void Stream::forget() {
  abandon(true);
  state_.host.drop_stream();
}

void Stream::abandon(bool completes) {
  if (const auto buffer = receiver_.rdmap().forget_message()) state_.work.give_back(*buffer, completes);
  if (state_.socket.is_open()) let_go_of_socket();
  state_.phase = StreamPhase::ended;
  sender_.forget_deferred();
  state_.signals.receive_stalled = false;
  tell_owner();
}

// ---- Timers ----

// A peer that reads slowly gets all of it, within a minute.
void Stream::stop_lingering(std::uint64_t looks) {
  const std::lock_guard receive_lock(state_.locks.receive);
  const std::lock_guard send_lock(state_.locks.send);
  if (state_.phase != StreamPhase::lingering) return;
  if (looks < kMostLooks && movement_.goes_on(counters_of(state_)) &&
      later(Movement::kLook, &Stream::stop_lingering, looks + 1))
    return;
  sender_.stop_for_good();
  let_go_of_socket();
}

// Closing takes a bounded time (Verbs draft section 6.2.5). The peer has to close within kPeerTimeout after it has
// taken octets, or work has completed.
void Stream::stop_closing(std::uint64_t) {
  const std::lock_guard lock(state_.locks.receive);
  if (state_.phase != StreamPhase::closing) return;
  bool peer_is_silent = false;
  {
    const std::lock_guard send_lock(state_.locks.send);
    if (movement_.goes_on(counters_of(state_)) && later(Movement::kLook, &Stream::stop_closing, 0)) return;
    peer_is_silent = !sender_.fin_sent() && peer() == mpa::PeerKind::not_known;
  }
  // Work may wait for the first message of the peer, which sends none. It fails now, and that ends the stream.
  if (peer_is_silent && later(Movement::kLook, &Stream::stop_closing, 0)) {
    return receiver_.peer_known(mpa::PeerKind::other, false);
  }
  log_end(state_, LogLevel::error, "the peer does not close it");
  end_by_reset();
  report_lost();
}

// The peer has closed, but messages that it sent before wait for receives. The program gets some time to post them.
void Stream::give_up_later() {
  if (giving_up_) return;
  giving_up_ = later(kPeerTimeout, &Stream::give_up, receiver_.pauses());
  if (!giving_up_) peer_closed(false);  // without a timer the stream has to end now
}

void Stream::give_up(std::uint64_t pauses) {
  const std::lock_guard lock(state_.locks.receive);
  giving_up_ = false;
  if (!state_.runs_or_closes() || !state_.signals.receive_stalled) return;
  if (receiver_.pauses() == pauses) {
    peer_closed(false);
  } else {
    receiver_.watch_for_end();  // the program posts receives, but slowly
  }
}

}  // namespace uiw::provider
