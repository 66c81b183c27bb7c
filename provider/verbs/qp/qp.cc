// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>

#include "base/grace_period.h"
#include "provider/connect/manual/pairs.h"
#include "provider/connect/qp_table.h"
#include "provider/process/limits.h"
#include "provider/verbs/context.h"
#include "provider/verbs/fork.h"
#include "provider/verbs/inventory_source.h"
#include "provider/verbs/qp/qp_attributes.h"

namespace uiw::provider {

std::unique_ptr<Qp> Qp::create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                               ibv_qp* handle, Srq* srq) {
  const bool has_receive_queue = srq == nullptr;
  if (attributes.qp_type != IBV_QPT_RC && attributes.qp_type != IBV_QPT_UC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (send_cq == nullptr || receive_cq == nullptr ||
      !grant(attributes.cap, has_receive_queue, context.device().transport)) {
    errno = EINVAL;
    return nullptr;
  }
  std::unique_ptr<Qp> qp(new Qp(context, pd, *send_cq, *receive_cq, attributes, handle, srq));
  if (qp->number() == 0) {
    const int error = errno == EMFILE || errno == ENFILE ? errno : ENOMEM;
    qp.reset();
    errno = error;
  }
  return qp;
}

Qp::Qp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
       Srq* srq)
    : generation_(fork_generation()),
      init_(attributes),
      common_(context, pd, send_cq, receive_cq, handle, attributes.qp_type),
      queues_(common_, attributes.cap, srq),
      posting_(common_, queues_, attributes.sq_sig_all != 0) {
  common_.connection.serve(queues_, *this, queues_.sends(), queues_.memory());
  channel = receive_cq.channel_number();
  common_.state = idle();
  // The default until the program sets flags.
  common_.attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  common_.add_users();
  try {
    common_.number = take_qp_number(*this);  // the last step: from here on the queue pair can be found
  } catch (const std::exception&) {
    errno = ENOMEM;
  }
  queues_.number_is_known();
}

void Qp::stop() {
  {
    // What others see of the queue pair is not to vanish before it is counted elsewhere.
    const std::lock_guard lock(common_.connection.locks.send);
    common_.connection.count_traffic(false);
  }
  hide_qp(number());
  send_posts_before_end();
  {
    const std::lock_guard lock(common_.connection.locks.receive);
    common_.connection.leave();
    common_.manual = false;
    // A thread that sets a connection up may have found the queue pair before it was hidden. The engine would drive it
    // again after remove() if it were attached then.
    common_.stopped = true;
  }
  manual::stop(number());
  common_.context->engine().remove(*this);
  wait_for_readers();
  const std::lock_guard receive_lock(common_.connection.locks.receive);
  const std::lock_guard send_lock(common_.connection.locks.send);
  common_.connection.abandon(false);
  end_attempt();
  queues_.leave_shared();
  queues_.release_windows();
}

Qp::~Qp() {
  stop();
  queues_.forget_completions();
  if (number() != 0) free_qp_number(number());
  common_.remove_users();
}

bool Qp::inherited() const { return generation_ != fork_generation(); }

// Uses only state that is consistent at any time.
void Qp::after_fork_in_child() { common_.connection.after_fork_in_child(); }

void Qp::leave_to_parent() {
  queues_.leave_to_parent();
  common_.remove_users();
}

int Qp::post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  if (queues_.is_shared() || state() == IBV_QPS_RESET) {
    if (bad != nullptr) *bad = requests;
    return EINVAL;
  }
  const int error = queues_.post_receive(requests, bad);
  // The receives are posted first and the state is checked then. A stream that pauses, and a flush, first store that
  // and then look at the queue. So one side sees the other.
  if (state() == IBV_QPS_ERR) {
    const std::lock_guard lock(common_.connection.locks.receive);
    // A stream that has not ended yet flushes them when it ends, after the message in progress.
    if (!common_.connection.runs_or_closes()) queues_.flush_receives();
  } else if (common_.connection.signals.receive_stalled) {
    progress(Driver::event);
  }
  return error;
}

// Step to RESET: empties the queues and drops completions that were not polled, as adapters do.
void Qp::reset() {
  {
    const std::lock_guard receive_lock(common_.connection.locks.receive);
    common_.connection.leave();
    const std::lock_guard send_lock(common_.connection.locks.send);
    common_.connection.send_posts_before_end();
    if (common_.manual.exchange(false)) manual::stop(number());
    queues_.empty();
    reset_connection();
    common_.attributes = {};
    common_.steps_reached = IBV_QPS_UNKNOWN;
    common_.state = idle();
  }
  // Not with those locks held: between ibv_start_poll and ibv_end_poll a program holds the consumer's lock, and may
  // post.
  queues_.forget_completions();
}

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
  if (inherited()) return EIO;
  if (connects(attributes, mask) && (mask & IBV_QP_STATE) != 0 && number_in(attributes.qp_state) == IBV_QPS_RTR &&
      state() == IBV_QPS_INIT) {
    if (const int error = find_peer(attributes); error != 0) return error;
  }
  const ReadSection section;
  const ibv_qp_state from = common_.stepped();
  const int to = (mask & IBV_QP_STATE) != 0 ? number_in(attributes.qp_state) : static_cast<int>(from);
  int error = check(from, to, attributes, mask);
  if (error == 0 && (mask & IBV_QP_STATE) != 0) {
    error = take_step(from, static_cast<ibv_qp_state>(to), attributes, mask);
  }
  if (error == 0) change_attributes(attributes, mask);
  return error;
}

int Qp::check(ibv_qp_state from, int to, const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_CUR_STATE) != 0) {
    // libibverbs says RESET of a new queue pair, also where the adapter says INIT.
    const int said = number_in(attributes.cur_qp_state);
    if (said != from && !(said == IBV_QPS_RESET && from == idle())) return EINVAL;
  }
  const int error = common_.rnic
                        ? check_rnic_step(from, to, init_.qp_type, attributes, mask, common_.manual, is_connected())
                        : check_step(from, to, init_.qp_type, mask);
  return error != 0 ? error : check_values(*common_.context, attributes, mask);
}

// The step is possible.
int Qp::take_step(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes, int mask) {
  switch (to) {
    case IBV_QPS_RESET: reset(); break;
    case IBV_QPS_INIT: advance(from, to); break;
    case IBV_QPS_RTR: return to_rtr(from, attributes, mask);
    case IBV_QPS_RTS: to_rts(from, attributes); break;
    case IBV_QPS_SQD: to_sqd(from, attributes, mask); break;
    default: to_error(); break;
  }
  return 0;
}

// INIT, RTR and RTS. Where the connection manager has connected already, these steps lead nowhere, even if the stream
// has ended meanwhile, which is reported in other ways.
void Qp::advance(ibv_qp_state from, ibv_qp_state to) {
  const std::lock_guard lock(common_.connection.locks.send);
  if (common_.steps_reached != IBV_QPS_UNKNOWN) {
    common_.steps_reached = to == IBV_QPS_RTS ? IBV_QPS_UNKNOWN : to;
  } else if (from != IBV_QPS_RTS) {
    common_.step(from, to);
  }
}

int Qp::to_rtr(ibv_qp_state from, const ibv_qp_attr& attributes, int mask) {
  const bool names_peer = connects(attributes, mask) && from == IBV_QPS_INIT;
  if (names_peer && common_.steps_reached == IBV_QPS_UNKNOWN) return ready_to_receive(attributes, mask);
  advance(from, IBV_QPS_RTR);
  return 0;
}

void Qp::to_rts(ibv_qp_state from, const ibv_qp_attr& attributes) {
  if (common_.manual && from == IBV_QPS_RTR) return ready_to_send(attributes);
  advance(from, IBV_QPS_RTS);
  if (from != IBV_QPS_SQD) return;
  stop_draining();
  posting_.carry_out_local();
}

void Qp::to_sqd(ibv_qp_state from, const ibv_qp_attr& attributes, int mask) {
  if (from != IBV_QPS_RTS) return;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) notify_when_drained(attributes.en_sqd_async_notify != 0);
  if (!common_.step(from, IBV_QPS_SQD)) return;
  if (common_.follows_infiniband()) {
    drain();
  } else {
    // On iWARP SQD is the Closing state of the Verbs draft (section 6.2.5): the orderly end of the stream.
    disconnect(nullptr);
  }
}

void Qp::to_error() {
  const std::lock_guard lock(common_.connection.locks.receive);
  {
    const std::lock_guard send_lock(common_.connection.locks.send);
    common_.steps_reached = IBV_QPS_UNKNOWN;
  }
  common_.connection.leave();
  send_posts_before_end();
  if (common_.connection.runs_or_closes()) return common_.connection.flush_work();
  {
    const std::lock_guard send_lock(common_.connection.locks.send);
    common_.state = IBV_QPS_ERR;
    flush_sends(std::nullopt, rdmap::Status::flushed);
  }
  queues_.flush_receives();
}

// The attributes have been checked.
void Qp::change_attributes(const ibv_qp_attr& attributes, int mask) {
  const std::lock_guard lock(common_.connection.locks.send);
  copy_attributes(common_.attributes, attributes, mask);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) deny_rights(denied_rights(attributes.qp_access_flags));
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && (common_.connection.is_idle() || common_.manual)) {
    // With rdma_cm the connection manager negotiates this value, and afterwards it is fixed. A manual connection may be
    // established before the step to RTR that began it has returned.
    common_.attributes.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) limit_ord(attributes.max_rd_atomic);
}

// A stream that has ended shows at once, whatever steps are due.
ibv_qp_state Qp::shown_state() const { return state() == IBV_QPS_ERR ? IBV_QPS_ERR : common_.stepped(); }

void Qp::query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
  const std::lock_guard lock(common_.connection.locks.send);
  attributes = common_.attributes;
  attributes.qp_state = attributes.cur_qp_state = shown_state();
  attributes.sq_draining = attributes.qp_state == IBV_QPS_SQD && !drained() ? 1 : 0;
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  attributes.cap = init_.cap;
  init = init_;
}

void Qp::show(ShownQp& shown, PortCounts& traffic) {
  const std::lock_guard lock(common_.connection.locks.send);
  show_identity(common_, shown_state(), common_.attributes, shown);
  shown.remote = common_.attributes.dest_qp_num;
  add_traffic(common_.connection.uncounted_traffic(), traffic);
}

std::uint32_t Qp::sends_outstanding() {
  const std::lock_guard lock(common_.connection.locks.send);
  return queues_.sends().size();
}

std::uint32_t Qp::receives_outstanding() {
  const std::lock_guard lock(common_.connection.locks.receive);
  return queues_.receives();
}

Connection* find_connection(std::uint32_t number) {
  Qp* const qp = find_qp(number);
  return qp != nullptr ? &static_cast<QpCommon&>(qp->identity()).connection : nullptr;
}

Qp* find_qp(std::uint32_t number) { return static_cast<Qp*>(find_attachable(number)); }

void for_each_qp(const std::function<void(Qp&)>& function) {
  for_each_numbered([&function](std::uint32_t, Numbered& found) {
    if (Attachable* qp = found.attachable()) function(static_cast<Qp&>(*qp));
  });
}

}  // namespace uiw::provider
