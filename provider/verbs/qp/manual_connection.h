// SPDX-License-Identifier: MIT
// A queue pair that its program connects with ibv_modify_qp: the steps to RTR and RTS, and when its work fails because
// the peer cannot be reached, does not answer or has left.
//
// Such programs are written for InfiniBand. A peer that has gone is noticed by the work that cannot get to it, and by
// nothing else: until some is posted the queue pair stays as it is, with its receives.
//
// Thread-safe: all of it takes the locks by itself.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

#include "provider/verbs/qp/qp_connection.h"

namespace uiw::provider {

class ManualConnection {
 public:
  // All three must remain live as long as this.
  ManualConnection(QpCommon& qp, WorkQueues& queues, QpConnection& connection)
      : qp_(qp), queues_(queues), connection_(connection) {}

  // INIT to RTR: the two ends look for each other from here on. 0, or an errno, and nothing has changed.
  int ready_to_receive(const ibv_qp_attr& attributes, int mask);
  // RTR to RTS: nothing is sent before.
  void ready_to_send(const ibv_qp_attr& attributes);

  // Work posted to a queue pair that its program has connected fails once it has waited for too long (RetryTimer).
  // False if there is none.
  bool check_retry_timer();

 private:
  std::optional<rdmap::Status> check_oldest_work(RetryTimer::Clock::time_point now);

  QpCommon& qp_;
  WorkQueues& queues_;
  QpConnection& connection_;
};

}  // namespace uiw::provider
