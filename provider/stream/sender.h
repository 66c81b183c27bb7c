// SPDX-License-Identifier: MIT
// A stream's sender: from the send queue to the socket. With the sender's lock, where not said otherwise.
#pragma once

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
  struct Parameters {
    std::uint32_t most_ord = 0;  // of Reads to send, however the program limits them
    rdmap::Completion completion = rdmap::Completion::local;
    std::uint64_t hold_from = ~std::uint64_t{0};  // SQD: entries from this one on wait
  };
  // `domain` is what the work names memory of; `identity` is what memory windows are bound to.
  StreamSender(StreamState& state, const void* domain, const void* identity, const Parameters& parameters);

  // A turn of who drives.
  void turn(Driver driver);
  // Work has been posted, or may be sent that could not before.
  void send(ProbePolicy policy = ProbePolicy::at_once) {
    if (!full()) transmit(policy);
  }
  // The same, be the socket full or not.
  void transmit(ProbePolicy policy = ProbePolicy::at_once);
  // SendScheduler decides whether these send something. The end of the queue pair or of its stream comes next: posts
  // that wait go out.
  void send_posts_before_end();
  // The program has polled in vain: posts that wait go out, and a probe.
  void send_all_deferred();
  // The progress thread has ticked: posts go out that have waited for too long.
  void send_overdue_posts();
  // Tells other threads, and the engine, whether there are deferred sends.
  void publish_deferred();
  // Nothing of the kind will be sent any more.
  void forget_deferred();

  // Nothing more is sent: the stream is to end by a reset. break_off() has somebody come for that.
  void stop_for_good() { dead_ = true; }
  void break_off();
  bool is_dead() const { return dead_; }
  bool fin_sent() const { return fin_sent_; }
  bool is_done() const { return fin_sent_ || dead_; }

  // Does nobody answer at the other end?
  bool unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now, bool has_to_answer);
  void note_progress(std::chrono::steady_clock::time_point now) { unmoved_since_ = now; }

  SendScheduler& scheduler() { return scheduler_; }
  rdmap::Transmitter& transmitter() { return transmitter_; }

  // ---- With the receiver's lock, or none ----
  // The socket takes no more for now.
  bool full() const { return send_state_.load(std::memory_order_relaxed) == SendState::socket_full; }
  bool is_idle() const { return send_state_ == SendState::idle; }
  // Hands a request to send to the thread that is sending now, which makes another pass before it stops: the caller
  // does not wait for the lock. False if no thread is sending; then the caller takes the lock and sends.
  bool delegate_to_sending_thread();
  // Returns when the thread that is sending now, if there is one, has reported what completes by the local rule.
  void wait_for_sending_thread();
  // Has an error been found while sending that the receiver's side is to end the stream for? Every poll comes here: one
  // that finds nothing does not write. Who sets it has the engine come, so that what this load misses is seen then.
  bool take_error() {
    if (!error_.load(std::memory_order_acquire)) return false;
    error_ = false;
    return true;
  }
  ProbePolicy probe_policy(Driver driver) const;

  // ---- These take the sender's lock by themselves ----
  // Is there work that could not be sent?
  bool has_failed();
  // Is there work that a peer which closes leaves unfinished?
  bool awaits_peer();
  // Remote rule: the work which, where the connection is gone, is the first that the peer has said nothing about.
  std::optional<std::uint64_t> first_unconfirmed();

 private:
  enum class SendState : std::uint8_t {
    idle,         // no thread is sending
    sending,      // a thread is, with the sender's lock
    send_again,   // the same, and another thread has delegated a request to it
    socket_full,  // no thread is, since the socket takes no more for now
  };

  bool try_stop(SendState to);
  void note_error();
  void finish_sending();

  StreamState& state_;
  rdmap::Transmitter transmitter_;
  std::atomic<SendState> send_state_{SendState::idle};
  SendScheduler scheduler_;
  bool dead_ = false;  // the socket takes nothing any more
  bool fin_sent_ = false;
  std::atomic<bool> error_{false};
  std::uint64_t moved_ = 0;  // octets of the stream, both ways, when unanswered() looked last
  std::chrono::steady_clock::time_point unmoved_since_;
};

}  // namespace uiw::provider
