// SPDX-License-Identifier: MIT
// Sending: how posted work, answers and reports become octets that the byte stream accepts.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/mutex.h"
#include "provider/connection/connection.h"
#include "provider/process/settings.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/progress/io_scratch.h"

namespace uiw::provider {

void Connection::send_turn(Driver driver) {
  if (is_idle()) return;
  transmit(session_->scheduler.turn(driver, engine_.program(), raw_clock));
  // Closing the socket needs the receiver's lock, so a later call of receive_turn() does that.
  if (phase_ == Phase::lingering && is_done()) engine_.request_turn(number_);
}

void Connection::transmit(ProbePolicy policy) {
  Session& session = *session_;
  const Phase phase = phase_;
  const bool sends = phase == Phase::running || phase == Phase::closing || phase == Phase::lingering;
  if (!sends || session.dead || session.fin_sent) return forget_deferred();
  if (peer_has_placed()) take_placed();
  session.scheduler.sending_all();
  session.transmitter.set_probe_policy(SendScheduler::stream_probe_policy(policy, phase == Phase::running));
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    // There is no memory for the buffers of this thread. The thread "uiw-progress" has buffers of its own and sends
    // instead; socket_full makes it call send_turn().
    session.send_state = SendState::socket_full;
    publish_deferred();
    return engine_.take_over(number_);
  }
  rdmap::OutgoingBatch& batch = io->batch;
  ByteStream& stream = octets();
  // A ring that is still full accepts nothing, so building FPDUs for it would be in vain. (TCP does not say so without
  // a system call.) While the session ends, FIN or a reset may be due without room.
  if (full() && phase == Phase::running && session.shared && session.shared->is_switched() && stream.await_room())
    return publish_deferred();
  // Relaxed: wait_for_sends() has to see this state if a message has arrived that answers octets of this call. It does,
  // since the octets become visible after this store. Any other thread that misses the state takes the sender's lock.
  session.send_state.store(SendState::sending, std::memory_order_relaxed);
  for (;;) {
    const auto fill = session.transmitter.fill(batch);
    if (fill == rdmap::Transmitter::Fill::idle) {
      if (!await_placement() && try_stop(SendState::idle)) break;
      continue;
    }
    if (fill == rdmap::Transmitter::Fill::broken) {
      session.dead = true;
      session.send_state = SendState::idle;
      return note_error();
    }
    if (fill == rdmap::Transmitter::Fill::local_error) {
      note_error();
      continue;  // the next fill() builds the Terminate, if one is due
    }
    const ssize_t taken = stream.send(batch.fpdus.vectors());
    if (taken < 0) {
      if (taken == -EAGAIN) {
        if (!stream.await_room() || await_placement() || !try_stop(SendState::socket_full)) continue;
        publish_deferred();
        return;
      }
      if (taken == -EFAULT && session.transmitter.source_gone(batch))
        continue;  // fill() fails the work whose memory is gone
      session.send_state = SendState::idle;
      session.dead = true;  // after an error of the connection the receiver finds out why, and ends the session
      if (taken == -EFAULT || taken == -ENOMEM || taken == -ENOBUFS) note_error();
      return;
    }
    const bool all_sent = session.transmitter.sent(batch, static_cast<std::size_t>(taken));
    if (all_sent && !await_placement() && try_stop(SendState::idle)) break;
  }
  publish_deferred();
  finish_sending();
  if (session.transmitter.terminating() && runs_or_closes()) note_error();  // also if an answer to the peer failed
}

// Something cannot be sent, so the session has to end. Ending it flushes the work, but another thread may be placing
// the response to an RDMA Read of this end now. So the next receive_turn(), which holds the receiver's lock, ends the
// session.
void Connection::note_error() {
  session_->send_error = true;
  engine_.request_turn(number_);
}

// `awaited_position` says how far the peer has to place octets until more work completes. A receiving thread that reads
// it before this function stores a new value completes nothing for the new value, and the peer does not wake that
// thread again. So this function reads the peer's position once more after the store: at least one of the two threads
// sees what has been placed. Each pass of the loop completes work, so the loop ends, whatever a hostile peer writes.
void Connection::take_placed() {
  if (is_idle() || !session_->follows_peer || !session_->shared) return;
  std::uint64_t placed = session_->shared->placed_by_peer(), awaited;
  do {
    session_->transmitter.placed_up_to(placed);
    session_->awaited_position.store(awaited = session_->transmitter.awaited_position());
    placed = session_->shared->placed_by_peer();
  } while (awaited != rdmap::PlacementTracker::kNowhere && placed >= awaited);
}

// To be called before the sending thread stops. Stores the position up to which the peer has to place octets until more
// work completes; from then on threads that receive compare the peer's position with it (peer_has_placed()). True if
// work has completed now, so that there may be more to send.
bool Connection::await_placement() {
  if (!session_->follows_peer) return false;
  const std::uint64_t awaited = session_->transmitter.awaited_position();
  // While earlier work is not placed yet, the position stays the same, and a sequentially consistent store is slow.
  if (awaited != session_->awaited_position.load(std::memory_order_relaxed)) session_->awaited_position.store(awaited);
  if (!peer_has_placed()) return false;
  take_placed();
  return true;
}

void Connection::break_off() {
  session_->dead = true;
  note_error();
}

void Connection::publish_deferred() {
  if (const std::uint64_t since = session_->scheduler.posts_wait_since();
      signals.posts_wait_since.load(std::memory_order_relaxed) != since) {
    signals.posts_wait_since.store(since);
  }
  const bool holds = session_->transmitter.wants_probe() || session_->scheduler.posts_wait();
  if (signals.deferred.load(std::memory_order_relaxed) == holds) return;
  signals.deferred.store(holds);
  engine_.note_deferred(number_, holds);
}

void Connection::forget_deferred() {
  session_->scheduler.sending_all();
  signals.posts_wait_since.store(0);
  if (signals.deferred.exchange(false)) engine_.note_deferred(number_, false);
}

// Stops sending. False if another thread has delegated a request meanwhile, so that there may be more to send.
bool Connection::try_stop(SendState to) {
  SendState expected = SendState::sending;
  if (session_->send_state.compare_exchange_strong(expected, to)) return true;
  // This is an exchange and not a store: the next pass has to see all that the other threads wrote before they
  // delegated.
  session_->send_state.exchange(SendState::sending);
  session_->transmitter.set_probe_policy(SendScheduler::kDelegated);
  return false;
}

// Also tells the sending thread that the socket may have room again: EPOLLOUT may arrive just before that thread finds
// the socket full.
bool Connection::delegate_to_sending_thread() {
  if (phase_ != Phase::running) return false;
  SendState expected = SendState::sending;
  // The exchange is made even if the state is `send_again` already. The sending thread may be reading that value now;
  // if it reads the one that is written here, it also sees all that this thread wrote before.
  while (!session_->send_state.compare_exchange_strong(expected, SendState::send_again)) {
    if (expected != SendState::sending && expected != SendState::send_again) return false;
  }
  return true;
}

// The message that has arrived may answer a Send whose octets the stream has just accepted, while the sending thread
// has not reported yet that the Send is complete. If the peer confirms work by messages of its own (answers to probes,
// or progress reports), there is no need to wait: a peer that keeps to InfiniBand's rules has confirmed the Send before
// it answers.
void Connection::wait_for_sends() {
  const bool local = session_->transmitter.completion() == rdmap::Completion::local;
  if (!local && !session_->follows_peer) return;
  const SendState state = session_->send_state;
  const bool sends = state == SendState::sending || state == SendState::send_again;
  if (!sends && !peer_has_placed()) return;
  const LockGuard lock(locks.send);
  if (!peer_has_placed()) return;
  take_placed();
  note_confirmed();
}

// Called when the stream has accepted all that may be sent now. Sends FIN if that was the last octet of the session.
void Connection::finish_sending() {
  const Phase phase = phase_;
  rdmap::Transmitter& transmitter = session_->transmitter;
  // Signaled work is confirmed before the session ends; unsignaled work need not be.
  if (phase == Phase::closing) transmitter.release_unsignaled();
  host_->sent_all();
  const bool terminating = transmitter.terminating();
  if (phase == Phase::running && !terminating) return;
  const bool closing = phase == Phase::closing && sends_->empty() && !transmitter.pending();
  const bool terminated = terminating && transmitter.terminate_sent();
  const bool cut_off = phase == Phase::lingering && !terminating && !transmitter.pending();
  if (session_->fin_sent || (!closing && !terminated && !cut_off)) return;
  octets().shutdown_send();
  session_->fin_sent = true;
  if (closing) host_->sent_last();
}

Connection::ProbePolicy Connection::probe_policy(Driver driver) const {
  return SendScheduler::probe_policy(driver, engine_.program());
}

void Connection::send_delayed(std::uint64_t) {
  {
    const LockGuard lock(locks.send);
    session_->transmitter.delay_from(rdmap::Transmitter::kNoHold);
  }
  session_->transmit_wanted = true;
  engine_.request_turn(number_);
}

void Connection::delay_from(std::uint64_t sequence) {
  constexpr std::chrono::milliseconds kDelay{2};
  if (phase_ != Phase::running || session_->transmitter.delays()) return;
  if (later(kDelay, &Connection::send_delayed, 0)) session_->transmitter.delay_from(sequence);
}

void Connection::send_posts_before_end() {
  if (is_idle()) return;
  const bool delays = session_->transmitter.delays();
  session_->transmitter.delay_from(rdmap::Transmitter::kNoHold);
  if (const auto policy = session_->scheduler.ending()) {
    send(*policy);
  } else if (delays) {
    send();
  }
}

void Connection::send_all_deferred() {
  if (is_idle()) return;
  const auto policy = SendScheduler::polled_in_vain(signals.deferred, full());
  if (!policy) return;
  const bool probes = session_->transmitter.wants_probe();
  transmit(*policy);
  if (probes) session_->transmitter.note_waiting();
}

void Connection::send_overdue_posts() {
  if (is_idle()) return;
  if (const auto policy = session_->scheduler.ticked(full(), raw_clock)) transmit(*policy);
}

// True if the peer's host does not acknowledge what TCP has retransmitted, or if no octets move in either direction
// because the peer's adapter does nothing. The peer's adapter is software, so it gets at least the time that it has to
// answer a connection request.
bool Connection::unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now,
                            bool has_to_answer) {
  const auto signs = octets().peer_signs();
  if (!signs) return false;
  if (signs->sent_again && signs->silent > retry) return true;
  const std::uint64_t moved = signs->taken + signs->come;
  if (!has_to_answer || moved != std::exchange(session_->moved, moved)) session_->unmoved_since = now;
  return now - session_->unmoved_since >
         std::max(retry, std::chrono::milliseconds(settings().values.startup_timeout_ms));
}

bool Connection::give_back_idle_memory() {
  return !is_idle() && session_->shared != nullptr && session_->shared->give_back_idle_memory();
}

bool Connection::all_acknowledged() const {
  const auto signs = octets().peer_signs();
  return signs && signs->all_taken;
}

bool Connection::delivers_last() const { return phase_ == Phase::closing && (!is_done() || !all_acknowledged()); }

bool Connection::has_failed() {
  const LockGuard lock(locks.send);
  return session_->transmitter.failure().has_value();
}

bool Connection::awaits_peer() {
  const LockGuard lock(locks.send);
  return session_->transmitter.unfinished() || !session_->reads.inbound.empty();
}

std::optional<std::uint64_t> Connection::first_unconfirmed() {
  const LockGuard lock(locks.send);
  if (session_->transmitter.completion() == rdmap::Completion::local) return std::nullopt;
  take_placed();
  session_->transmitter.release_unsignaled();
  return session_->transmitter.oldest_sent();
}

StreamTraffic Connection::uncounted_traffic() const {
  if (is_idle()) return {};
  StreamTraffic traffic = octets().traffic();
  traffic.octets_sent -= std::min(traffic.octets_sent, session_->counted.octets_sent);
  traffic.octets_received -= std::min(traffic.octets_received, session_->counted.octets_received);
  traffic.segments_sent -= std::min(traffic.segments_sent, session_->counted.segments_sent);
  traffic.segments_received -= std::min(traffic.segments_received, session_->counted.segments_received);
  traffic.retransmitted -= std::min(traffic.retransmitted, session_->counted.retransmitted);
  return traffic;
}

void Connection::count_traffic(bool closes) {
  if (is_idle()) return;
  const StreamTraffic traffic = uncounted_traffic();
  PortCounters& counters = engine_.counters();
  counters.add(PortCounter::octets_sent, traffic.octets_sent + (closes && !session_->dead ? traffic.octets_unsent : 0));
  counters.add(PortCounter::octets_received, traffic.octets_received);
  counters.add(PortCounter::packets_sent, traffic.segments_sent);
  counters.add(PortCounter::packets_received, traffic.segments_received);
  counters.add(PortCounter::retransmitted, traffic.retransmitted);
  session_->counted.octets_sent += traffic.octets_sent;
  session_->counted.octets_received += traffic.octets_received;
  session_->counted.segments_sent += traffic.segments_sent;
  session_->counted.segments_received += traffic.segments_received;
  session_->counted.retransmitted += traffic.retransmitted;
  counted_connections.fetch_add(1);
}

}  // namespace uiw::provider
