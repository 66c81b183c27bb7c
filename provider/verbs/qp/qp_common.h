// SPDX-License-Identifier: MIT
// The state that the parts of a queue pair share: its identity, its state, its connection, and with that its locks. The
// posters of the receive queue have a lock of their own.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

#include "provider/connection/connection.h"
#include "provider/connection/retry_timer.h"
#include "provider/verbs/qp_identity.h"

namespace uiw::provider {

// As Connection::Find.
Connection* find_connection(std::uint32_t qp_number);

struct QpCommon : QpIdentity {
  QpCommon(Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program, ibv_qp_type of_type);

  const bool rnic;  // the iWARP view

  std::atomic<bool> manual{false};   // a manual connection, from RTR on; written with the receiver's lock
  std::atomic<bool> stopped{false};  // it gets no stream any more; written with the receiver's lock
  // RoCE view: rdma_cm has connected, and the program still makes its steps: the state to which these have led so far.
  // IBV_QPS_UNKNOWN: no such steps are due. Written with the sender's lock.
  std::atomic<ibv_qp_state> steps_reached{IBV_QPS_UNKNOWN};

  Connection connection;

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

  // Starts the time of the oldest entry, `head`, from `now`.
  void start_retry_timer(std::uint64_t head, RetryTimer::Clock::time_point now) {
    retry_timer.work_at(head, now);
    connection.note_progress(now);
  }
  // There is no memory for something that the stream needs: ends the stream by RST.
  void no_memory() noexcept;
};

}  // namespace uiw::provider
