// SPDX-License-Identifier: MIT
// What the parts of a queue pair share: who it is, its state, its locks, and the stream that carries out its work.
//
// Locks: those of StreamLocks; the receive queue has one of its own for its posters. The sender's lock is never held
// while the receiver's is taken. Work is flushed with both, so that nothing is placed for it any more.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "provider/stream/retry_timer.h"
#include "provider/stream/stream.h"
#include "provider/verbs/cq.h"

namespace uiw::provider {

class Context;
class Pd;
class Qp;

// The context is kept; domain, completion queues and the program's `handle` must remain live as long as this.
struct QpCommon {
  QpCommon(Qp& of, Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program,
           ibv_qp_type of_type);

  Qp& whole;
  const std::shared_ptr<Context> context;
  Pd& pd;
  Cq& send_cq;
  Cq& receive_cq;
  ibv_qp* const handle;  // which events carry
  const ibv_qp_type type;
  std::uint32_t number = 0;  // 0 where all are taken

  std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
  std::atomic<bool> manual{false};     // connected by its program, from RTR on; written with both locks held
  std::atomic<bool> steps_due{false};  // on RoCE, while the program has yet to go through the states of its stream
  std::atomic<unsigned> events_reported{0};  // that went into the context's pipe

  StreamLocks locks;
  StreamSignals signals;
  // None before it is connected, and after RESET. It changes with both locks held.
  std::shared_ptr<Stream> stream;

  // With the sender's lock.
  ibv_qp_attr attributes{};
  RetryTimer retry_timer;

  bool is_reliable() const { return type == IBV_QPT_RC; }
  // Changes the state, unless the stream has ended meanwhile and put it into ERR.
  bool step(ibv_qp_state from, ibv_qp_state to) { return state.compare_exchange_strong(from, to) || from == to; }
  void report(ibv_event_type which);

  // With one of the two locks.
  bool runs(StreamPhase phase) const { return stream != nullptr && stream->phase() == phase; }
  // With the sender's lock: what can be sent is.
  void transmit() {
    if (stream != nullptr) stream->sender().send();
  }
  // From here on it is the oldest work's time that counts.
  void start_retry_timer(std::uint64_t head, RetryTimer::Clock::time_point now) {
    retry_timer.work_at(head, now);
    if (stream != nullptr) stream->sender().note_progress(now);
  }
  // Something about the stream needed memory that is not to be had: the stream ends, by a reset.
  void no_memory() noexcept;
};

}  // namespace uiw::provider
