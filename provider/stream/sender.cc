// SPDX-License-Identifier: MIT
#include "provider/stream/sender.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "provider/memory/memory.h"
#include "provider/process/settings.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/progress/io_scratch.h"

namespace uiw::provider {

StreamSender::StreamSender(StreamState& state, const void* domain, const void* identity)
    : state_(state), transmitter_(state.sends, stag_table(), domain, state.work, identity) {
  transmitter_.start(state.rules, state.reads);
}

void StreamSender::turn(Driver driver) {
  transmit(scheduler_.turn(driver, state_.engine.program(), raw_clock));
  // The socket is closed with the receiver's lock held, so rearm() causes another turn, which does that.
  if (state_.phase == StreamPhase::lingering && is_done()) state_.engine.rearm(state_.qp_number, state_.socket.fd());
}

void StreamSender::transmit(ProbePolicy policy) {
  const StreamPhase phase = state_.phase;
  const bool sends = phase == StreamPhase::running || phase == StreamPhase::closing || phase == StreamPhase::lingering;
  if (!sends || dead_ || fin_sent_) return forget_deferred();
  scheduler_.sending_all();
  transmitter_.set_probe_policy(SendScheduler::stream_probe_policy(policy, phase == StreamPhase::running));
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    // The thread "uiw-progress" has buffers of its own. It sends since the socket seems to have been full.
    send_state_ = SendState::socket_full;
    publish_deferred();
    return state_.engine.take_over(state_.qp_number, state_.socket.fd());
  }
  send_state_ = SendState::sending;
  rdmap::OutgoingBatch& batch = io->batch;
  ByteStream& octets = state_.octets();
  for (;;) {
    const auto fill = transmitter_.fill(batch);
    if (fill == rdmap::Transmitter::Fill::idle) {
      if (try_stop(SendState::idle)) break;
      continue;
    }
    if (fill == rdmap::Transmitter::Fill::broken) {
      dead_ = true;
      send_state_ = SendState::idle;
      return note_error();
    }
    if (fill == rdmap::Transmitter::Fill::local_error) {
      note_error();
      continue;  // the next fill() sends the Terminate, if one is due
    }
    const ssize_t taken = octets.send(batch.fpdus.vectors());
    if (taken < 0) {
      if (taken == -EAGAIN) {
        if (!octets.await_room() || !try_stop(SendState::socket_full)) continue;
        publish_deferred();
        return;
      }
      if (taken == -EFAULT && transmitter_.source_gone(batch)) continue;  // fill() fails the work whose memory is gone
      send_state_ = SendState::idle;
      dead_ = true;  // after an error of the connection the receiver finds out why, and ends the stream
      if (taken == -EFAULT || taken == -ENOMEM || taken == -ENOBUFS) note_error();
      return;
    }
    if (transmitter_.sent(batch, static_cast<std::size_t>(taken)) && try_stop(SendState::idle)) break;
  }
  publish_deferred();
  finish_sending();
  if (transmitter_.terminating() && state_.runs_or_closes()) note_error();  // also if a response to the peer failed
}

// Something cannot be sent, so the stream has to end. That flushes the work, while another thread may be placing the
// answer to a Read of it. So the next thread with the receiver's lock ends the stream; rearm() causes a turn for that.
void StreamSender::note_error() {
  error_ = true;
  state_.engine.rearm(state_.qp_number, state_.socket.fd());
}

void StreamSender::break_off() {
  dead_ = true;
  note_error();
}

void StreamSender::publish_deferred() {
  if (const std::uint64_t since = scheduler_.posts_wait_since();
      state_.signals.posts_wait_since.load(std::memory_order_relaxed) != since) {
    state_.signals.posts_wait_since.store(since);
  }
  const bool holds = transmitter_.wants_probe() || scheduler_.posts_wait();
  if (state_.signals.deferred.load(std::memory_order_relaxed) == holds) return;
  state_.signals.deferred.store(holds);
  state_.engine.note_deferred(state_.qp_number, holds);
}

void StreamSender::forget_deferred() {
  scheduler_.sending_all();
  state_.signals.posts_wait_since.store(0);
  if (state_.signals.deferred.exchange(false)) state_.engine.note_deferred(state_.qp_number, false);
}

// False if another thread has delegated a request meanwhile: then there may be more to send.
bool StreamSender::try_stop(SendState to) {
  SendState expected = SendState::sending;
  if (send_state_.compare_exchange_strong(expected, to)) return true;
  // This is an exchange and not a store: the next pass has to see all that the other threads wrote before they
  // delegated.
  send_state_.exchange(SendState::sending);
  transmitter_.set_probe_policy(SendScheduler::kDelegated);
  return false;
}

// The sending thread also learns that the socket may have room again: EPOLLOUT may come just before it finds the socket
// full.
bool StreamSender::delegate_to_sending_thread() {
  if (state_.phase != StreamPhase::running) return false;
  SendState expected = SendState::sending;
  // This writes even if another request is set already: the sending thread may be taking that request now, and has to
  // see what this thread wrote before.
  while (!send_state_.compare_exchange_strong(expected, SendState::send_again)) {
    if (expected != SendState::sending && expected != SendState::send_again) return false;
  }
  return true;
}

// The message that has arrived may answer a Send whose octets TCP has just taken, while the sending thread has not
// reported yet that the Send is complete. By the remote rule there is nothing to wait for: a peer that keeps to
// InfiniBand's rules has confirmed the Send before it answers.
void StreamSender::wait_for_sending_thread() {
  const SendState state = send_state_;
  if (state != SendState::sending && state != SendState::send_again) return;
  if (transmitter_.completion() == rdmap::Completion::remote) return;
  const std::lock_guard lock(state_.locks.send);
}

// TCP has taken all that may be sent now. Sends FIN if this was the last octet of the stream.
void StreamSender::finish_sending() {
  // Signaled work is confirmed before the stream ends; unsignaled work need not be.
  if (state_.phase == StreamPhase::closing) transmitter_.release_unsignaled();
  const bool closing = state_.phase == StreamPhase::closing && state_.sends.empty() && !transmitter_.pending();
  const bool terminated = transmitter_.terminating() && transmitter_.terminate_sent();
  state_.host.sent_all();
  const bool cut_off = state_.phase == StreamPhase::lingering && !transmitter_.terminating() && !transmitter_.pending();
  if (fin_sent_ || (!closing && !terminated && !cut_off)) return;
  state_.octets().shutdown_send();
  fin_sent_ = true;
  if (closing) state_.host.sent_last();
}

StreamSender::ProbePolicy StreamSender::probe_policy(Driver driver) const {
  return SendScheduler::probe_policy(driver, state_.engine.program());
}

void StreamSender::send_posts_before_end() {
  if (const auto policy = scheduler_.ending()) send(*policy);
}

void StreamSender::send_all_deferred() {
  const auto policy = SendScheduler::polled_in_vain(state_.signals.deferred, full());
  if (!policy) return;
  const bool probes = transmitter_.wants_probe();
  transmit(*policy);
  if (probes) transmitter_.note_waiting();
}

void StreamSender::send_overdue_posts() {
  if (const auto policy = scheduler_.ticked(full(), raw_clock)) transmit(*policy);
}

// Either the peer's host does not answer: it does not acknowledge what TCP has retransmitted. Or the peer's adapter
// does not: octets move in neither direction. The adapter is software, so it gets at least the time that it has to
// answer a call.
bool StreamSender::unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now,
                              bool has_to_answer) {
  const auto signs = state_.octets().peer_signs();
  if (!signs) return false;
  if (signs->sent_again && signs->silent > retry) return true;
  const std::uint64_t moved = signs->taken + signs->come;
  if (!has_to_answer || moved != std::exchange(moved_, moved)) unmoved_since_ = now;
  return now - unmoved_since_ > std::max(retry, std::chrono::milliseconds(settings().values.startup_timeout_ms));
}

bool StreamSender::give_back_idle_memory() {
  return state_.shared != nullptr && state_.shared->give_back_idle_memory();
}

bool StreamSender::all_acknowledged() const {
  const auto signs = state_.octets().peer_signs();
  return signs && signs->all_taken;
}

bool StreamSender::delivers_last() const {
  return state_.phase == StreamPhase::closing && (!is_done() || !all_acknowledged());
}

bool StreamSender::has_failed() {
  const std::lock_guard lock(state_.locks.send);
  return transmitter_.failure().has_value();
}

bool StreamSender::awaits_peer() {
  const std::lock_guard lock(state_.locks.send);
  return transmitter_.unfinished() || !state_.reads.inbound.empty();
}

std::optional<std::uint64_t> StreamSender::first_unconfirmed() {
  const std::lock_guard lock(state_.locks.send);
  if (transmitter_.completion() == rdmap::Completion::local) return std::nullopt;
  transmitter_.release_unsignaled();
  return transmitter_.oldest_sent();
}

StreamTraffic StreamSender::uncounted_traffic() const {
  StreamTraffic traffic = state_.octets().traffic();
  traffic.octets_sent -= std::min(traffic.octets_sent, counted_.octets_sent);
  traffic.octets_received -= std::min(traffic.octets_received, counted_.octets_received);
  traffic.segments_sent -= std::min(traffic.segments_sent, counted_.segments_sent);
  traffic.segments_received -= std::min(traffic.segments_received, counted_.segments_received);
  traffic.retransmitted -= std::min(traffic.retransmitted, counted_.retransmitted);
  return traffic;
}

void StreamSender::count_traffic(bool closes) {
  const StreamTraffic traffic = uncounted_traffic();
  PortCounters& counters = state_.engine.counters();
  counters.add(PortCounter::octets_sent, traffic.octets_sent + (closes && !dead_ ? traffic.octets_unsent : 0));
  counters.add(PortCounter::octets_received, traffic.octets_received);
  counters.add(PortCounter::packets_sent, traffic.segments_sent);
  counters.add(PortCounter::packets_received, traffic.segments_received);
  counters.add(PortCounter::retransmitted, traffic.retransmitted);
  counted_.octets_sent += traffic.octets_sent;
  counted_.octets_received += traffic.octets_received;
  counted_.segments_sent += traffic.segments_sent;
  counted_.segments_received += traffic.segments_received;
  counted_.retransmitted += traffic.retransmitted;
  counted_connections.fetch_add(1);
}

}  // namespace uiw::provider
