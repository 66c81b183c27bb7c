// SPDX-License-Identifier: MIT
// A queue pair that its program connects with ibv_modify_qp: the steps to RTR and RTS; and, for such queue pairs and
// for those that rdma_cm connects in the RoCE view, when work fails because the peer cannot be reached, does not
// answer, posts no receive or has left.
//
// Such programs are written for InfiniBand. There nothing but work that cannot be delivered shows that a peer has gone:
// until work is posted, the queue pair stays as it is, with its receives.
//
// Thread-safe: each function takes the locks that it needs.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <optional>

#include "provider/verbs/qp/qp_connection.h"

namespace uiw::provider {

class ManualConnection {
 public:
  // All arguments must remain live as long as this object.
  ManualConnection(QpCommon& qp, WorkQueues& queues, QpConnection& connection)
      : qp_(qp), queues_(queues), connection_(connection) {}

  // What comes before a step to RTR on RoCE: the way to the peer's GID is looked for, for a second at most. 0, or
  // ETIMEDOUT, ENETUNREACH or EHOSTUNREACH. For callers in no ReadSection. An argument that the step itself refuses is
  // no error here.
  int find_peer(const ibv_qp_attr& attributes) const;
  // INIT to RTR: from here on the two ends look for each other. Returns 0, or an errno and nothing has changed.
  int ready_to_receive(const ibv_qp_attr& attributes, int mask);
  // RTR to RTS: from here on the queue pair sends.
  void ready_to_send(const ibv_qp_attr& attributes);

  // As Attachable says: fails work that has waited for too long (RetryTimer). False if no work is posted.
  bool check_retry_timer(std::chrono::nanoseconds late);
  void restart_retry_timer();

 private:
  std::optional<rdmap::Status> check_oldest_work(RetryTimer::Clock::time_point now);

  QpCommon& qp_;
  WorkQueues& queues_;
  QpConnection& connection_;
};

}  // namespace uiw::provider
