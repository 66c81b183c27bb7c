// SPDX-License-Identifier: MIT
// The common part of all queue pairs: identity, state, and where events are reported.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "provider/verbs/cq/cq.h"

namespace uiw::provider {

class Context;
class Pd;

// The object shares ownership of the context. Domain, completion queues and the program's `handle` must remain live as
// long as the object.
struct QpIdentity {
  QpIdentity(Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program, ibv_qp_type of_type);

  const std::shared_ptr<Context> context;
  Pd& pd;
  Cq& send_cq;
  Cq& receive_cq;
  ibv_qp* const handle;  // the program's; async events carry it
  const ibv_qp_type type;
  std::uint32_t number = 0;  // 0 until it is taken (QueuePair::take_number), and if none could be taken

  std::atomic<ibv_qp_state> state{IBV_QPS_RESET};
  std::atomic<unsigned> events_reported{0};  // events that were written to the context's pipe

  bool is_reliable() const { return type != IBV_QPT_UC && type != IBV_QPT_UD; }
  // Changes the state from `from` to `to`; true also if it is `to` already. False if another thread has changed the
  // state meanwhile (to ERR, when a stream ended).
  bool step(ibv_qp_state from, ibv_qp_state to) { return state.compare_exchange_strong(from, to) || from == to; }
  void report(ibv_event_type which);
  // A queue pair counts as a user of its domain and its completion queues.
  void add_users();
  void remove_users();
};

}  // namespace uiw::provider
