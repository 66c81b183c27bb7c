// SPDX-License-Identifier: MIT
// One connection of a queue pair, from the moment it has a socket until that is let go of: moves octets between the socket
// and the RDMAP stream, and ends both.
//
// A queue pair makes one when it is connected and drops it in RESET; the next connection has one of its own, so a timer that
// comes late finds the one that it was set for, or none. All functions are called inside a ReadSection, with the locks that
// they name; which of the two a stream is in must not change meanwhile.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "mpa/deframer.h"
#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/progress/coalescing.h"
#include "provider/stream/piggybacking.h"
#include "provider/stream/read_ahead.h"
#include "provider/stream/stream_host.h"
#include "provider/stream/stream_owner.h"
#include "rdmap/receiver.h"
#include "rdmap/transmitter.h"

namespace uiw::provider {

class Engine;
struct IoScratch;

// Who moves a stream: a poll of the program, which does not wait for a lock, or an event of the socket, of which there is no
// other.
enum class Driver : std::uint8_t { program, event };

// What differs between connections.
struct StreamPolicy {
  // The program connects the queue pair itself (ibv_modify_qp), and counts on the rules of InfiniBand: an end of the
  // connection is noticed by the work that cannot get to the peer, and by nothing else.
  bool manual = false;
  bool reliable = true;  // IBV_QPT_RC
  bool one_cq = false;   // for sends and receives
};

class Stream final : rdmap::ReceiveHost, public std::enable_shared_from_this<Stream> {
 public:
  enum class Phase : std::uint8_t {
    running,
    closing,    // our side has sent, or will send, its last octet
    lingering,  // in error: the FPDU in progress and a Terminate go out, what comes in is dropped
    gone,       // a manual connection whose peer has left; nobody has noticed yet
    ended,
  };
  struct Agreed {
    mpa::Agreement agreement;
    bool initiator = false;
    std::size_t mulpdu = 0;
  };
  struct Parameters {
    StreamPolicy policy;
    Agreed agreed;                // with the depths that the program knows of
    std::uint32_t most_ord = 0;   // of Reads to send, however the program limits them
    std::uint32_t read_slots_out = 0, read_slots_in = 0;  // with those for probes
    rdmap::Completion completion = rdmap::Completion::local;
    std::uint64_t hold_from = ~std::uint64_t{0};  // SQD: entries from this one on wait
    std::uint32_t denied_rights = 0;
    std::uint32_t peer_psn = 0;  // of a manual connection: the peer's rq_psn, 0 if it has said none
    std::shared_ptr<StreamOwner> owner;
  };

  // References must remain live as long as the stream. `domain` is what `sends` name memory of; `identity` is what memory
  // windows are bound to. Throws std::bad_alloc.
  Stream(StreamHost& host, Engine& engine, StreamLocks& locks, StreamSignals& signals, rdmap::SendQueue& sends,
         std::uint32_t qp_number, const void* domain, const void* identity, const Parameters& parameters);

  Phase phase() const { return phase_.load(); }
  bool runs() const { return phase_ == Phase::running; }
  bool runs_or_closes() const { return phase_ == Phase::running || phase_ == Phase::closing; }
  const Agreed& agreed() const { return agreed_; }
  std::uint32_t peer_psn() const { return peer_psn_; }

  // ---- With both locks ----
  // It has its socket from here on; release_socket() takes it back.
  void start(mpa::TcpStream&& socket) { socket_ = std::move(socket); }
  mpa::TcpStream release_socket() { return std::move(socket_); }
  int fd() const { return socket_.fd(); }
  // Nobody waits for anything any more; the receive that a message had begun to use is given back, or `completes`.
  void abandon(bool completes);
  // In the child of a fork it is the parent's.
  void after_fork_in_child() { phase_ = Phase::ended; }

  // ---- With the receiver's lock ----
  // A turn of who drives. True if send_turn() is to follow, without this lock; `work` tells whether anything was moved.
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
  // Posted work fails: `culprit`, or where that is not of this end, all of it is flushed. What is unanswered ends by a reset.
  void fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status);

  // ---- With the sender's lock ----
  void send_turn(Driver driver);
  // Work has been posted, or may be sent that could not before.
  void send(rdmap::Transmitter::ProbePolicy policy = rdmap::Transmitter::ProbePolicy::at_once) {
    if (!full()) transmit(policy);
  }
  // What waits is sent.
  void send_waiting();
  void send_deferred();
  void send_overdue();
  // The socket takes no more for now.
  bool full() const { return sending_.load(std::memory_order_relaxed) == Sending::full; }
  bool fin_sent() const { return fin_sent_; }
  Coalescing& coalescing() { return coalescing_; }
  void note_deferred();
  // Something has been posted, and is about to be sent.
  void note_post() { piggybacking_.posted(); }
  rdmap::Transmitter& transmitter() { return transmitter_; }
  // Nothing more is sent: the stream is to end by a reset. break_off() has somebody come for that.
  void stop_sending_for_good() { send_dead_ = true; }
  void break_off();
  // Does nobody answer at the other end?
  bool unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now, bool has_to_answer);
  void note_progress(std::chrono::steady_clock::time_point now) { unmoved_since_ = now; }

  // ---- On any thread ----
  rdmap::Receiver& receiver() { return receiver_; }
  rdmap::Transmitter::ProbePolicy probe_policy(Driver driver) const;

 private:
  using ProbePolicy = rdmap::Transmitter::ProbePolicy;
  // Whether somebody sends, under the sender's lock, and is to look once more before it ends; or the socket has taken no
  // more.
  enum class Sending : std::uint8_t { idle, busy, once_more, full };

  // rdmap::ReceiveHost
  bool next_receive(rdmap::ReceiveBuffer& buffer) override { return host_.next_receive(buffer); }
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status, const Message& message) override;
  void read_complete() override;
  void read_requested(bool only_asks) override { (only_asks ? answer_wanted_ : transmit_wanted_) = true; }
  void peer_dealt_with(const rdmap::DealtWith& said) override;
  void peer_wants_acknowledgements() override;
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override { return host_.invalidate(stag); }

  // Sending; the sender's lock is held.
  void transmit(ProbePolicy policy = ProbePolicy::at_once);
  bool stop_sending(Sending to);
  void note_send_error();
  void forget_deferred();
  void finish_sending();

  // Receiving; the receiver's lock is held.
  bool ask_sender();
  void await_sender();
  void answer_last();
  bool receive(Driver driver);
  bool drop_received();
  bool resume();
  bool pause(mpa::Octets rest);
  void set_receive_stalled(bool stalled);
  void watch_for_end();
  bool take_octets(mpa::Octets octets);
  bool take_result(mpa::Deframer::Result result, mpa::Octets rest);
  void note_first_message();

  // Ending; the receiver's lock is held. `broken`: not by a FIN.
  void peer_closed(bool broken);
  void peer_left(bool broken);
  void peer_terminated(const rdmap::Terminate& terminate);
  void stream_error(const rdmap::Terminate& terminate);
  void end_with(const rdmap::Terminate& terminate, bool peer_gone = false);
  void end_for_send_error(bool linger);
  // All work is flushed and the state of the queue pair is ERR. `linger` keeps the socket until the FPDU in progress and a
  // Terminate, if one is due, have gone out and the peer has closed.
  void end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger);
  void end_by_reset();
  bool work_failed_here();
  bool answers_due();
  std::optional<std::uint64_t> never_confirmed();
  void report_lost();
  void let_go_of_socket();
  void forget();

  // Timers; what they call is called without a lock.
  bool later(std::chrono::milliseconds delay, void (Stream::*function)(std::uint64_t), std::uint64_t argument);
  void stop_lingering(std::uint64_t);
  void stop_closing(std::uint64_t head);
  void give_up(std::uint64_t pauses);
  void tell_not_ready(std::uint64_t pauses);
  void give_up_later();
  void tell_not_ready_later();
  void tell_not_ready();

  StreamHost& host_;
  Engine& engine_;
  StreamLocks& locks_;
  StreamSignals& signals_;
  rdmap::SendQueue& send_queue_;
  const std::uint32_t qp_number_;
  const StreamPolicy policy_;
  const Agreed agreed_;
  const std::uint32_t peer_psn_;
  mpa::TcpStream socket_;
  std::shared_ptr<StreamOwner> owner_;
  std::atomic<Phase> phase_{Phase::running};

  alignas(64) rdmap::SharedReads reads_;

  // The sender.
  alignas(64) rdmap::Transmitter transmitter_;
  std::atomic<Sending> sending_{Sending::idle};
  Coalescing coalescing_;
  bool send_dead_ = false;    // the socket takes nothing any more
  bool fin_sent_ = false;
  std::atomic<bool> send_error_{false};  // found while sending; the receiver's side ends the stream
  bool error_told_ = false;              // by a completion of the send queue
  std::uint64_t moved_ = 0;              // octets of the stream, both ways, when unanswered() looked last
  std::chrono::steady_clock::time_point unmoved_since_;

  // The receiver.
  alignas(64) rdmap::Receiver receiver_;
  mpa::Deframer deframer_;
  ReadAhead read_ahead_;
  std::uint64_t pauses_ = 0;
  bool transmit_wanted_ = false;
  bool answer_wanted_ = false;  // by a peer that waits for no more than that its work is placed
  Piggybacking piggybacking_;
  bool established_ = false;
  bool giving_up_ = false;
  bool telling_not_ready_ = false;
  bool receive_error_told_ = false;  // by a completion of the receive queue
};

}  // namespace uiw::provider
