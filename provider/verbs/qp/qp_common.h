// SPDX-License-Identifier: MIT
// The state that the parts of a queue pair share: its identity, its state, its locks, and the stream that carries out
// its work.
//
// Locks: those of StreamLocks; and the posters of the receive queue have a lock of their own. The receiver's lock is
// never taken while the sender's is held. Work is flushed with both locks held, so that nothing is placed for it any
// more.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "provider/stream/retry_timer.h"
#include "provider/stream/stream.h"
#include "provider/verbs/qp_identity.h"

namespace uiw::provider {

class Qp;

struct QpCommon : QpIdentity {
  QpCommon(Qp& of, Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program,
           ibv_qp_type of_type);

  Qp& whole;
  const bool rnic;  // the iWARP view

  std::atomic<bool> manual{false};   // a manual connection, from RTR on; written with the receiver's lock
  std::atomic<bool> stopped{false};  // it gets no stream any more; written with the receiver's lock
  // RoCE view: rdma_cm has connected, and the program still makes its steps: the state to which these have led so far.
  // IBV_QPS_UNKNOWN: no such steps are due. Written with the sender's lock.
  std::atomic<ibv_qp_state> steps_reached{IBV_QPS_UNKNOWN};

  StreamLocks locks;
  StreamSignals signals;
  // Null before the queue pair is connected and after RESET. Changes with both locks held.
  std::shared_ptr<Stream> stream;

  // With the sender's lock.
  ibv_qp_attr attributes{};
  RetryTimer retry_timer;

  bool is_reliable() const { return type == IBV_QPT_RC; }
  // Whether it keeps to the rules of InfiniBand from RTS on.
  bool follows_infiniband() const { return manual.load(std::memory_order_relaxed) || !rnic; }
  // Whether its work fails once it has waited for its peer for too long. rdma_cm's numbers come with the step to RTS.
  bool retries() const {
    return manual.load(std::memory_order_relaxed) ||
           (!rnic && steps_reached.load(std::memory_order_relaxed) == IBV_QPS_UNKNOWN);
  }
  // The state as the steps of the program have made it.
  ibv_qp_state stepped() const {
    const ibv_qp_state reached = steps_reached.load();
    return reached == IBV_QPS_UNKNOWN ? state.load() : reached;
  }

  // Called with one of the two locks held.
  bool runs(StreamPhase phase) const { return stream != nullptr && stream->phase() == phase; }
  // The same: whether there is a stream that carries out work, or flushes it.
  bool has_carrier() const { return stream != nullptr && stream->phase() != StreamPhase::gone; }
  // Called with the sender's lock held: sends what can be sent.
  void transmit() {
    if (stream != nullptr) stream->sender().send();
  }
  // Starts the time of the oldest entry, `head`, from `now`.
  void start_retry_timer(std::uint64_t head, RetryTimer::Clock::time_point now) {
    retry_timer.work_at(head, now);
    if (stream != nullptr) stream->sender().note_progress(now);
  }
  // There is no memory for something that the stream needs: ends the stream by RST.
  void no_memory() noexcept;
};

}  // namespace uiw::provider
