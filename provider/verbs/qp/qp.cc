// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp.h"

#include <algorithm>
#include <cerrno>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "provider/connect/manual/pairs.h"
#include "provider/connect/qp_table.h"
#include "provider/process/limits.h"
#include "provider/verbs/context.h"
#include "provider/verbs/fork.h"
#include "provider/verbs/inventory_source.h"
#include "provider/verbs/qp/qp_attributes.h"
#include "provider/verbs/srq.h"
#include "provider/verbs/xrc_domain.h"

namespace uiw::provider {

namespace {

bool is_known(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER: return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Qp> Qp::create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                               ibv_qp* handle, Srq* srq) {
  const Transport transport = context.device().transport;
  const bool sends_xrc = attributes.qp_type == IBV_QPT_XRC_SEND && transport == Transport::roce;
  if (attributes.qp_type != IBV_QPT_RC && attributes.qp_type != IBV_QPT_UC && !sends_xrc) {
    errno = is_known(attributes.qp_type) ? EOPNOTSUPP : EINVAL;  // as the kernel
    return nullptr;
  }
  if (sends_xrc) receive_cq = send_cq;  // it has no receive queue
  const bool other_srq = srq != nullptr && (sends_xrc || srq->is_xrc());
  if (send_cq == nullptr || receive_cq == nullptr || other_srq ||
      !grant(attributes.cap, srq == nullptr && !sends_xrc, transport)) {
    errno = EINVAL;
    return nullptr;
  }
  return with_number(std::unique_ptr<Qp>(new Qp(context, pd, *send_cq, *receive_cq, attributes, handle, srq)));
}

std::unique_ptr<Qp> Qp::create_target(Context& context, XrcDomain& domain, ibv_qp_init_attr& attributes,
                                      ibv_qp* handle) {
  Cq& nowhere = domain.no_completions();
  attributes.cap = {};
  return with_number(std::unique_ptr<Qp>(new Qp(context, domain, nowhere, nowhere, attributes, handle, nullptr)));
}

std::unique_ptr<Qp> Qp::with_number(std::unique_ptr<Qp> qp) {
  if (qp->take_number()) return qp;
  const int error = errno == EMFILE || errno == ENFILE ? errno : ENOMEM;
  qp.reset();
  errno = error;
  return nullptr;
}

Qp::Qp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
       Srq* srq)
    : QueuePair(context, pd, send_cq, receive_cq, attributes, handle, srq),
      rnic_(context.device().transport == Transport::iwarp),
      connection_(context.engine(), [](std::uint32_t number) {
        Qp* const qp = find_qp(number);
        return qp != nullptr ? &qp->connection() : nullptr;
      }) {
  if (auto* const checker = check::Checker::active()) {
    checked_ = std::make_unique<CheckedWork>(queues_, *handle, *checker, [this] { return patience_for_receives(); });
  }
  connection_.serve(checked_ ? static_cast<ConnectionWork&>(*checked_) : queues_, *this, sends(), queues_.memory());
  channel = receive_cq.channel_number();
  qp_.state = idle();
  // The default until the program sets flags.
  attributes_.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
}

bool Qp::leave_context(const Context& closed) {
  if (qp_.type != IBV_QPT_XRC_RECV) return QueuePair::leave_context(closed);
  return static_cast<XrcDomain&>(qp_.pd).leave(number(), closed);
}

void Qp::stop() {
  {
    // The traffic is counted before the queue pair is hidden, so that it does not vanish from the port's counters
    // meanwhile.
    const LockGuard lock(connection_.locks.send);
    connection_.count_traffic(false);
  }
  hide_qp(number());
  send_posts_before_end();
  {
    const LockGuard lock(connection_.locks.receive);
    connection_.leave();
    manual_ = false;
    // A thread that sets a connection up may have found the queue pair before it was hidden. If that thread attached
    // the connection after remove(), the engine would send and receive for the queue pair again. So attach() fails
    // once `stopped_` is set.
    stopped_ = true;
  }
  manual::stop(number());
  qp_.context->engine().remove(*this);
  wait_for_readers();
  {
    const LockGuard receive_lock(connection_.locks.receive);
    const LockGuard send_lock(connection_.locks.send);
    connection_.abandon(false);
    end_attempt();
    queues_.leave_shared();
    if (qp_.type == IBV_QPT_XRC_RECV) queues_.leave_queues();
    queues_.release_windows();
  }
  if (qp_.type == IBV_QPT_XRC_RECV) static_cast<XrcDomain&>(qp_.pd).forget_qp(number());
}

Qp::~Qp() { stop(); }

// Uses only state that is consistent even if another thread was using the queue pair at the fork.
void Qp::after_fork_in_child() { connection_.after_fork_in_child(); }

int Qp::post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const bool is_xrc = qp_.type > IBV_QPT_UD;  // neither of its two types has a receive queue
  if (is_xrc || queues_.is_shared() || state() == IBV_QPS_RESET) {
    if (bad != nullptr) *bad = requests;
    return EINVAL;
  }
  const int error = queues_.post_receive(requests, bad);
  // This thread posts the receives and then loads the state and `receive_stalled`. A thread that flushes stores the
  // state and then looks at the receive queue; a thread that stalls the stream, since no receive is posted, does the
  // same with `receive_stalled`. So at least one of the two threads sees what the other has written.
  if (state() == IBV_QPS_ERR) {
    const LockGuard lock(connection_.locks.receive);
    // A stream that has not ended yet flushes the receives when it ends, after the message in progress.
    if (!connection_.runs_or_closes()) queues_.flush_receives();
  } else if (connection_.signals.receive_stalled) {
    progress(Driver::event);
  }
  return error;
}

// Step to RESET: ends the connection, empties the queues, and drops completions that were not polled, as adapters do.
void Qp::reset() {
  {
    const LockGuard receive_lock(connection_.locks.receive);
    connection_.leave();
    const LockGuard send_lock(connection_.locks.send);
    connection_.send_posts_before_end();
    if (manual_.exchange(false)) manual::stop(number());
    queues_.empty();
    reset_connection();
    attributes_ = {};
    steps_reached_ = IBV_QPS_UNKNOWN;
    qp_.state = idle();
  }
  // This takes the consumer's locks of the completion queues, so the receiver's and the sender's lock were released
  // before: a program that holds a consumer's lock, between ibv_start_poll and ibv_end_poll, may post, which takes the
  // sender's lock.
  queues_.forget_completions();
}

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
  if (inherited()) return EIO;
  mask = meant(qp_.type, mask);
  if (connects(attributes, mask) && (mask & IBV_QP_STATE) != 0 && number_in(attributes.qp_state) == IBV_QPS_RTR &&
      state() == IBV_QPS_INIT) {
    if (const int error = find_peer(attributes); error != 0) return error;
  }
  const ReadSection section;
  const ibv_qp_state from = stepped();
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
    // libibverbs says RESET for a new queue pair, even if the adapter says INIT.
    const int said = number_in(attributes.cur_qp_state);
    if (said != from && !(said == IBV_QPS_RESET && from == idle())) return EINVAL;
  }
  const int error = rnic_ ? check_rnic_step(from, to, init_.qp_type, attributes, mask, manual_, is_connected())
                          : check_step(from, to, init_.qp_type, mask);
  return error != 0 ? error : check_values(*qp_.context, attributes, mask);
}

// check() has accepted the step.
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

// Steps to INIT, RTR and RTS. If rdma_cm has connected already, these steps change only the state that the program
// sees, even if the connection has ended since; the program learns of the end in other ways.
void Qp::advance(ibv_qp_state from, ibv_qp_state to) {
  const LockGuard lock(connection_.locks.send);
  if (steps_reached_ != IBV_QPS_UNKNOWN) {
    steps_reached_ = to == IBV_QPS_RTS ? IBV_QPS_UNKNOWN : to;
  } else if (from != IBV_QPS_RTS) {
    qp_.step(from, to);
  }
}

int Qp::to_rtr(ibv_qp_state from, const ibv_qp_attr& attributes, int mask) {
  const bool names_peer = connects(attributes, mask) && from == IBV_QPS_INIT;
  if (names_peer && steps_reached_ == IBV_QPS_UNKNOWN) return ready_to_receive(attributes, mask);
  advance(from, IBV_QPS_RTR);
  return 0;
}

void Qp::to_rts(ibv_qp_state from, const ibv_qp_attr& attributes) {
  if (manual_ && from == IBV_QPS_RTR) return ready_to_send(attributes);
  advance(from, IBV_QPS_RTS);
  if (from != IBV_QPS_SQD) return;
  stop_draining();
  carry_out_local();
}

void Qp::to_sqd(ibv_qp_state from, const ibv_qp_attr& attributes, int mask) {
  if (from != IBV_QPS_RTS) return;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) notify_when_drained(attributes.en_sqd_async_notify != 0);
  if (!qp_.step(from, IBV_QPS_SQD)) return;
  if (follows_infiniband()) {
    drain();
  } else {
    // On iWARP SQD is the Closing state of the Verbs draft (section 6.2.5): the orderly end of the stream.
    disconnect(nullptr);
  }
}

void Qp::to_error() {
  const LockGuard lock(connection_.locks.receive);
  {
    const LockGuard send_lock(connection_.locks.send);
    steps_reached_ = IBV_QPS_UNKNOWN;
  }
  connection_.leave();
  send_posts_before_end();
  if (connection_.runs_or_closes()) return connection_.flush_work();
  {
    const LockGuard send_lock(connection_.locks.send);
    qp_.state = IBV_QPS_ERR;
    flush_sends(std::nullopt, rdmap::Status::flushed);
  }
  queues_.flush_receives();
}

// check() has accepted the attributes.
void Qp::change_attributes(const ibv_qp_attr& attributes, int mask) {
  const LockGuard lock(connection_.locks.send);
  copy_attributes(attributes_, attributes, mask);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) deny_rights(denied_rights(attributes.qp_access_flags));
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && (connection_.is_idle() || manual_)) {
    // With rdma_cm this value is negotiated, and afterwards it is fixed. Without rdma_cm the program sets it in the
    // step to RTR, and the connection may be established before that step has returned.
    attributes_.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) limit_ord(attributes.max_rd_atomic);
}

// Once the stream has ended, the program sees ERR, even if it has not made all steps to RTS yet.
ibv_qp_state Qp::shown_state() const { return state() == IBV_QPS_ERR ? IBV_QPS_ERR : stepped(); }

// How long a message waits at an adapter until a receive is posted; nothing: for ever. On iWARP it does not wait.
std::optional<std::chrono::microseconds> Qp::patience_for_receives() {
  if (!follows_infiniband()) return std::chrono::microseconds{0};
  if (shown_state() != IBV_QPS_RTS) return std::nullopt;  // the program has not set rnr_retry yet
  const LockGuard lock(connection_.locks.send);
  return RetryTimer::adapters_rnr_time(attributes_);
}

void Qp::query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
  const LockGuard lock(connection_.locks.send);
  attributes = attributes_;
  attributes.qp_state = attributes.cur_qp_state = shown_state();
  attributes.sq_draining = attributes.qp_state == IBV_QPS_SQD && !drained() ? 1 : 0;
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  attributes.cap = init_.cap;
  init = init_;
}

void Qp::show(ShownQp& shown, PortCounts& traffic) {
  const LockGuard lock(connection_.locks.send);
  show_identity(qp_, shown_state(), attributes_, shown);
  shown.remote = attributes_.dest_qp_num;
  add_traffic(connection_.uncounted_traffic(), traffic);
}

std::uint32_t Qp::sends_outstanding() {
  const LockGuard lock(connection_.locks.send);
  return sends().size();
}

std::uint32_t Qp::receives_outstanding() {
  const LockGuard lock(connection_.locks.receive);
  return queues_.receives();
}

Qp* find_qp(std::uint32_t number) { return static_cast<Qp*>(find_attachable(number)); }

void for_each_qp(const std::function<void(Qp&)>& function) {
  for_each_numbered([&function](std::uint32_t, Numbered& found) {
    if (Attachable* qp = found.attachable()) function(static_cast<Qp&>(*qp));
  });
}

}  // namespace uiw::provider
