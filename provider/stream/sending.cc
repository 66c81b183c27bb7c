// SPDX-License-Identifier: MIT
// A stream's sender: from the send queue to the socket.
#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "provider/process/settings.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/progress/io_scratch.h"
#include "provider/stream/stream.h"

namespace uiw::provider {

namespace {

std::optional<tcp_info> info_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

}  // namespace

void Stream::transmit(ProbePolicy policy) {
  const Phase phase = phase_;
  const bool sends = phase == Phase::running || phase == Phase::closing || phase == Phase::lingering;
  if (!sends || send_dead_ || fin_sent_) return forget_deferred();
  coalescing_.sent();
  transmitter_.set_probe_policy(phase == Phase::running ? policy : ProbePolicy::at_once);
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    // The thread of the context has its own, and takes it for a socket that was full.
    sending_ = Sending::full;
    note_deferred();
    return engine_.take_over(qp_number_, socket_.fd());
  }
  sending_ = Sending::busy;
  rdmap::OutgoingBatch& batch = io->batch;
  for (;;) {
    const auto fill = transmitter_.fill(batch);
    if (fill == rdmap::Transmitter::Fill::idle) {
      if (stop_sending(Sending::idle)) break;
      continue;
    }
    if (fill == rdmap::Transmitter::Fill::broken) {
      send_dead_ = true;
      sending_ = Sending::idle;
      return note_send_error();
    }
    if (fill == rdmap::Transmitter::Fill::local_error) {
      note_send_error();
      continue;  // the Terminate
    }
    const ssize_t taken = socket_.send(batch.fpdus.vectors());
    if (taken < 0) {
      if (taken == -EAGAIN) {
        if (!stop_sending(Sending::full)) continue;
        note_deferred();
        return;
      }
      if (taken == -EFAULT && transmitter_.source_gone(batch)) continue;  // the work that it is fails at the next fill
      sending_ = Sending::idle;
      send_dead_ = true;  // otherwise the receiving side learns why, and ends the stream
      if (taken == -EFAULT) note_send_error();
      return;
    }
    transmitter_.sent(batch, static_cast<std::size_t>(taken));
  }
  note_deferred();
  finish_sending();
  if (transmitter_.terminating() && runs_or_closes()) note_send_error();  // be it of a response to the peer
}

// Something cannot be sent, and the stream is to end. That flushes the work, and a Read among it may be being placed right
// now: so whoever has the receiver's lock next does it, and somebody is made to come for it.
void Stream::note_send_error() {
  send_error_ = true;
  engine_.rearm(qp_number_, socket_.fd());
}

void Stream::break_off() {
  send_dead_ = true;
  note_send_error();
}

void Stream::note_deferred() {
  if (const std::uint64_t since = coalescing_.since();
      signals_.posts_deferred_since.load(std::memory_order_relaxed) != since) {
    signals_.posts_deferred_since.store(since);
  }
  const bool holds = transmitter_.wants_probe() || coalescing_.waiting();
  if (signals_.deferred.load(std::memory_order_relaxed) == holds) return;
  signals_.deferred.store(holds);
  engine_.note_deferred(holds);
}

void Stream::forget_deferred() {
  coalescing_.sent();
  signals_.posts_deferred_since.store(0);
  if (signals_.deferred.exchange(false)) engine_.note_deferred(false);
}

// False if there may be more to do: somebody has asked, by ask_sender().
bool Stream::stop_sending(Sending to) {
  Sending now = Sending::busy;
  if (sending_.compare_exchange_strong(now, to)) return true;
  // An exchange, not a store: what it looks at from here on may not be older than what those have left who have asked.
  sending_.exchange(Sending::busy);
  transmitter_.set_probe_policy(ProbePolicy::at_once);
  return false;
}

// The last octet is with TCP: say so to the peer.
void Stream::finish_sending() {
  // What is signaled is confirmed before the end, what is not need not be.
  if (phase_ == Phase::closing) transmitter_.release_unsignaled();
  const bool closing = phase_ == Phase::closing && send_queue_.empty() && !transmitter_.pending();
  const bool terminated = transmitter_.terminating() && transmitter_.terminate_sent();
  host_.sent_all();
  const bool cut_off = phase_ == Phase::lingering && !transmitter_.terminating() && !transmitter_.pending();
  if (fin_sent_ || (!closing && !terminated && !cut_off)) return;
  socket_.shutdown_send();
  fin_sent_ = true;
  if (closing) host_.sent_last();
}

// A program that waits for an event does not poll before there is one, and one that nobody watches may not come back.
Stream::ProbePolicy Stream::probe_policy(Driver driver) const {
  const bool comes_back = driver == Driver::program && !engine_.event_awaited() && engine_.watches_program();
  return comes_back ? ProbePolicy::if_none_due : ProbePolicy::at_once;
}

void Stream::send_waiting() {
  if (coalescing_.waiting()) send();
}

void Stream::send_deferred() {
  if (!signals_.deferred || full()) return;
  const bool asks = transmitter_.wants_probe();
  transmit();
  if (asks) transmitter_.note_waiting();
}

void Stream::send_overdue() {
  if (full() || !coalescing_.take_overdue(raw_clock(), true)) return;
  transmit(probe_policy(Driver::event));
}

// Does nobody answer at the other end of the running stream? The peer's host, which does not acknowledge what was sent
// again; or its adapter, which neither takes octets nor sends any although its host does. That one gets the time that it has
// for the answer to a call at least: it is software.
bool Stream::unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now,
                        bool has_to_answer) {
  const auto info = info_of(socket_.fd());
  if (!info) return false;
  if (info->tcpi_retransmits > 0 && std::chrono::milliseconds(info->tcpi_last_ack_recv) > retry) return true;
  const std::uint64_t moved = info->tcpi_bytes_acked + info->tcpi_bytes_received;
  if (!has_to_answer || moved != std::exchange(moved_, moved)) unmoved_since_ = now;
  return now - unmoved_since_ > std::max(retry, std::chrono::milliseconds(settings().values.startup_timeout_ms));
}

}  // namespace uiw::provider
