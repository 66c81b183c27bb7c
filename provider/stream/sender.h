// SPDX-License-Identifier: MIT
// A stream's sender takes work from the send queue and writes its FPDUs to the socket. All functions are called with
// the sender's lock held, except where said otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "provider/progress/driver.h"
#include "provider/progress/send_scheduler.h"
#include "provider/stream/stream_state.h"
#include "rdmap/transmitter.h"

namespace uiw::provider {

class StreamSender {
 public:
  using ProbePolicy = SendScheduler::ProbePolicy;
  // `state` must remain live as long as the sender. `domain`, `identity`: see Stream.
  StreamSender(StreamState& state, const void* domain, const void* identity);

  // One turn of the thread that drives: sends all that is due.
  void turn(Driver driver);
  // Work has been posted, or earlier work may be sent now: sends it, unless the socket is full.
  void send(ProbePolicy policy = ProbePolicy::at_once) {
    if (!full()) transmit(policy);
  }
  // As send(), but tries even if the socket was full.
  void transmit(ProbePolicy policy = ProbePolicy::at_once);
  // SendScheduler decides whether the next three functions send anything.
  // The queue pair, or its stream, is about to end: posts that wait are sent.
  void send_posts_before_end();
  // The program has polled in vain: posts that wait are sent, and a probe if one is due.
  void send_all_deferred();
  // The progress thread has ticked: posts that have waited for too long are sent.
  void send_overdue_posts();
  // Tells other threads, and the engine, whether there are deferred sends.
  void publish_deferred();
  // Deferred sends will not be sent any more.
  void forget_deferred();

  // Nothing more is sent. After stop_for_good() the caller ends the stream, by RST; break_off() has the engine run a
  // turn that does so.
  void stop_for_good() { dead_ = true; }
  void break_off();
  bool is_dead() const { return dead_; }
  bool fin_sent() const { return fin_sent_; }
  bool is_done() const { return fin_sent_ || dead_; }
  // Whether the program has ended the stream, and the peer does not have everything yet.
  bool delivers_last() const;

  // Whether the peer of the running stream has stopped answering, for longer than `retry`. `has_to_answer`: the peer
  // has no reason to send nothing.
  bool unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now, bool has_to_answer);
  void note_progress(std::chrono::steady_clock::time_point now) { unmoved_since_ = now; }

  SendScheduler& scheduler() { return scheduler_; }
  rdmap::Transmitter& transmitter() { return transmitter_; }

  // Adds to the counters of the port what TCP has moved since the last call. `closes`: the socket is about to be
  // closed; what TCP has not sent yet goes out after that, unless the connection is reset.
  void count_traffic(bool closes);
  // What the counters of the port do not have yet.
  StreamTraffic uncounted_traffic() const;

  // See ByteStream.
  std::size_t octets_in_one_send() const {
    return std::min(state_.octets().octets_in_one_send(), mpa::Batch::limit(state_.rules.copies()));
  }

  // ---- With the receiver's lock held, or no lock ----
  // The socket takes no more for now.
  bool full() const { return send_state_.load(std::memory_order_relaxed) == SendState::socket_full; }
  bool is_idle() const { return send_state_ == SendState::idle; }
  // Hands a request to send to the thread that is sending now, which makes another pass before it stops: the caller
  // does not wait for the lock. False if no thread is sending; then the caller takes the lock and sends.
  bool delegate_to_sending_thread();
  // Returns when the thread that is sending now, if there is one, has reported what completes by the local rule.
  void wait_for_sending_thread();
  // Whether an error was found while sending, for which the caller has to end the stream; true once for each error.
  // Every poll calls this, so it writes only if there is an error. note_error() causes another turn, which sees an
  // error that this load misses.
  bool take_error() {
    if (!error_.load(std::memory_order_acquire)) return false;
    error_ = false;
    return true;
  }
  ProbePolicy probe_policy(Driver driver) const;
  // See SharedStream.
  bool give_back_idle_memory();

  // ---- These take the sender's lock by themselves ----
  // Whether the peer's TCP has acknowledged all that has been sent.
  bool all_acknowledged() const;
  // Whether there is work that could not be sent.
  bool has_failed();
  // Whether work of ours or a request of the peer would be left unfinished if the peer closed now.
  bool awaits_peer();
  // The connection is lost. By the remote rule: completes unsignaled work at the head of the queue, and returns the
  // first entry that the peer has not confirmed. By the local rule: nothing.
  std::optional<std::uint64_t> first_unconfirmed();

 private:
  enum class SendState : std::uint8_t {
    idle,         // no thread is sending
    sending,      // a thread is sending, with the sender's lock held
    send_again,   // as `sending`, and another thread has delegated a request to that thread
    socket_full,  // no thread is sending, since the socket takes no more for now
  };

  bool try_stop(SendState to);
  void note_error();
  void finish_sending();

  StreamState& state_;
  rdmap::Transmitter transmitter_;
  std::atomic<SendState> send_state_{SendState::idle};
  SendScheduler scheduler_;
  bool dead_ = false;  // nothing may be written to the socket any more
  bool fin_sent_ = false;
  StreamTraffic counted_;  // by count_traffic()
  std::atomic<bool> error_{false};
  std::uint64_t moved_ = 0;  // octets of the stream, both ways, when unanswered() looked last
  std::chrono::steady_clock::time_point unmoved_since_;
};

}  // namespace uiw::provider
