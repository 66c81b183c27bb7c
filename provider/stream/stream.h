// SPDX-License-Identifier: MIT
// One connection of a queue pair, from the moment it has a socket until that is let go of: its two directions, and how
// it ends.
//
// A queue pair makes one when it is connected and drops it in RESET; the next connection has one of its own, so a timer
// that comes late finds the one that it was set for, or none. All functions are called inside a ReadSection, with the
// locks that they name.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "provider/progress/driver.h"
#include "provider/stream/receiver.h"
#include "provider/stream/sender.h"
#include "provider/stream/stream_owner.h"
#include "provider/stream/stream_state.h"

namespace uiw::provider {

class Stream final : public std::enable_shared_from_this<Stream> {
 public:
  using Phase = StreamPhase;
  using Agreed = StreamAgreement;
  struct Parameters {
    StreamPolicy policy;
    Agreed agreed;  // with the depths that the program knows of
    StreamSender::Parameters sender;
    std::uint32_t read_slots_out = 0, read_slots_in = 0;  // with those for probes
    std::uint32_t denied_rights = 0;
    std::uint32_t peer_psn = 0;  // of a manual connection: the peer's rq_psn, 0 if it has said none
    std::shared_ptr<StreamOwner> owner;
  };

  // References must remain live as long as the stream. `domain` is what `sends` name memory of; `identity` is what
  // memory windows are bound to. Throws std::bad_alloc.
  Stream(StreamWork& work, StreamHost& host, Engine& engine, StreamLocks& locks, StreamSignals& signals,
         rdmap::SendQueue& sends, std::uint32_t qp_number, const void* domain, const void* identity,
         const Parameters& parameters);

  Phase phase() const { return state_.phase.load(); }
  bool runs() const { return state_.runs(); }
  bool runs_or_closes() const { return state_.runs_or_closes(); }
  const Agreed& agreed() const { return state_.agreed; }
  std::uint32_t peer_psn() const { return peer_psn_; }

  // With the sender's lock, where they do not say otherwise.
  StreamSender& sender() { return sender_; }
  // What its functions say.
  StreamReceiver& receiver() { return receiver_; }

  // ---- With both locks ----
  // None before it has been given one.
  mpa::TcpStream& socket() { return state_.socket; }
  // Nobody waits for anything any more; the receive that a message had begun to use is given back, or `completes`.
  void abandon(bool completes);
  // In the child of a fork it is the parent's.
  void after_fork_in_child() { state_.phase = Phase::ended; }

  // ---- With the receiver's lock ----
  // As StreamReceiver::turn() says.
  bool receive_turn(Driver driver, bool& work);
  bool is_of(const StreamOwner* owner) const { return owner_.get() == owner; }
  // Orderly end: what is posted is sent, then TCP is closed. ENOTCONN if it is over.
  int disconnect();
  // The peer has had its time to begin.
  void abort_beginning();
  // A completion queue had no room: Terminate.
  void completion_lost();
  void end_without_memory();
  // The program takes the work back: all of it is flushed. It runs, or closes.
  void flush_work();
  // The peer of a manual connection is told what has come, as far as TCP takes it at once.
  void leave();
  // Posted work fails: `culprit`, or where that is not of this end, all of it is flushed. What is unanswered ends by a
  // reset.
  void fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status);

 private:
  friend class StreamReceiver;

  // What the receiver meets; with its lock. `broken`: not by a FIN.
  void peer_closed(bool broken);
  void peer_terminated(const rdmap::Terminate& terminate);
  void stream_error(const rdmap::Terminate& terminate);
  void note_established() const {
    if (owner_) owner_->stream_established();
  }
  void end_lingering();
  void give_up_later();
  bool later(std::chrono::milliseconds delay, void (Stream::*function)(std::uint64_t), std::uint64_t argument);
  // Timers.
  void stop_lingering(std::uint64_t);
  void stop_closing(std::uint64_t head);
  void give_up(std::uint64_t pauses);
  void report_rnr(std::uint64_t pauses);

  void peer_left(bool broken);
  void end_with(const rdmap::Terminate& terminate, bool peer_gone = false);
  void end_for_send_error(bool linger);
  // All work is flushed and the state of the queue pair is ERR. `linger` keeps the socket until the FPDU in progress
  // and a Terminate, if one is due, have gone out and the peer has closed.
  void end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger);
  void end_by_reset();
  void report_lost();
  void let_go_of_socket();
  void forget();

  StreamState state_;
  std::shared_ptr<StreamOwner> owner_;
  const std::uint32_t peer_psn_;
  bool giving_up_ = false;
  bool error_reported_ = false;  // by a completion of the send queue
  alignas(64) StreamSender sender_;
  alignas(64) StreamReceiver receiver_;
};

}  // namespace uiw::provider
