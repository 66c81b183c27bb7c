// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/work_queues.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/mutex.h"
#include "provider/memory/memory.h"
#include "provider/verbs/context.h"
#include "provider/verbs/fault_effects.h"
#include "provider/verbs/qp/receive_posting.h"
#include "provider/verbs/qp_identity.h"
#include "provider/verbs/srq.h"
#include "provider/verbs/xrc_domain.h"

namespace uiw::provider {

namespace {

ibv_wc_status status_of(rdmap::Status status) {
  switch (status) {
    case rdmap::Status::success: return IBV_WC_SUCCESS;
    case rdmap::Status::local_length: return IBV_WC_LOC_LEN_ERR;
    case rdmap::Status::local_protection: return IBV_WC_LOC_PROT_ERR;
    case rdmap::Status::local_operation: return IBV_WC_LOC_QP_OP_ERR;
    case rdmap::Status::flushed: return IBV_WC_WR_FLUSH_ERR;
    case rdmap::Status::remote_access: return IBV_WC_REM_ACCESS_ERR;
    case rdmap::Status::remote_invalid_request: return IBV_WC_REM_INV_REQ_ERR;
    case rdmap::Status::remote_operation: return IBV_WC_REM_OP_ERR;
    case rdmap::Status::fatal: return IBV_WC_FATAL_ERR;
    case rdmap::Status::retry_exceeded: return IBV_WC_RETRY_EXC_ERR;
    case rdmap::Status::rnr_exceeded: return IBV_WC_RNR_RETRY_EXC_ERR;
    case rdmap::Status::window_bind: return IBV_WC_MW_BIND_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

// IBV_WC_FLUSH and IBV_WC_ATOMIC_WRITE, which headers of older releases of rdma-core do not define.
constexpr int kWcFlush = 8, kWcAtomicWrite = 9;

ibv_wc_opcode opcode_of(const rdmap::SendWork& work) {
  switch (work.kind) {
    case rdmap::WorkKind::send: return IBV_WC_SEND;
    case rdmap::WorkKind::write:
    case rdmap::WorkKind::immediate: return IBV_WC_RDMA_WRITE;
    case rdmap::WorkKind::read: return IBV_WC_RDMA_READ;
    case rdmap::WorkKind::atomic:
      switch (work.atomic) {
        case rdmap::AtomicOpcode::fetch_add: return IBV_WC_FETCH_ADD;
        case rdmap::AtomicOpcode::compare_swap: return IBV_WC_COMP_SWAP;
        case rdmap::AtomicOpcode::write: return static_cast<ibv_wc_opcode>(kWcAtomicWrite);
        case rdmap::AtomicOpcode::flush: return static_cast<ibv_wc_opcode>(kWcFlush);
      }
      break;
    case rdmap::WorkKind::local_invalidate: return IBV_WC_LOCAL_INV;
    case rdmap::WorkKind::bind: return IBV_WC_BIND_MW;
    case rdmap::WorkKind::choice: break;
  }
  return IBV_WC_SEND;
}

}  // namespace

WorkQueues::WorkQueues(QpIdentity& qp, const ibv_qp_init_attr& granted, Srq* srq)
    : qp_(qp),
      memory_(stag_table(), qp.type == IBV_QPT_XRC_RECV ? ddp::kAnyDomain : &qp.pd, this),
      signal_all_(granted.sq_sig_all != 0),
      sends_(granted.cap.max_send_wr * (qp.type == IBV_QPT_XRC_SEND ? 2 : 1), granted.cap.max_send_sge,
             granted.cap.max_inline_data),  // each request may need a second entry (choose_before())
      receives_(granted.cap.max_recv_wr, granted.cap.max_recv_sge),
      shared_(srq != nullptr ? std::make_unique<SrqUser>(*srq) : nullptr) {}

WorkQueues::~WorkQueues() = default;

void WorkQueues::number_is_known() {
  if (shared_ != nullptr) shared_->set_qp_number(qp_.number);
}

void WorkQueues::leave_shared() {
  if (shared_ != nullptr) shared_->leave();
}

void WorkQueues::leave_to_parent() {
  if (shared_ != nullptr) shared_->leave_to_parent();
}

void WorkQueues::forget_completions() {
  qp_.send_cq.forget(qp_.number);
  if (&qp_.receive_cq != &qp_.send_cq) qp_.receive_cq.forget(qp_.number);
}

void WorkQueues::empty() {
  while (!sends_.empty()) sends_.pop();
  while (!receives_.empty()) receives_.pop();
  release_windows();
  last_receive_reported_ = send_failed_ = receive_failed_ = false;
}

int WorkQueues::post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const LockGuard lock(post_receive_mutex_);
  return post_receives(receives_, memory_, known_, requests, bad);
}

void WorkQueues::send_complete(const rdmap::SendWork& work, rdmap::Status status) {
  ibv_wc_status shown = status_of(status);
  if (Faults* const faults = Faults::active(); faults != nullptr) [[unlikely]] {
    if (work.kind == rdmap::WorkKind::choice) return;
    shown = status_with_faults(*faults, FaultKind::send, qp_, shown, send_failed_);
  }
  if (!work.signaled && (shown == IBV_WC_SUCCESS || work.kind == rdmap::WorkKind::choice)) return;
  ibv_wc completion{};
  completion.wr_id = work.id;
  completion.status = shown;
  completion.opcode = opcode_of(work);
  completion.byte_len = work.length;
  completion.qp_num = qp_.number;
  qp_.send_cq.push(completion, false);
}

bool WorkQueues::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (shared_ != nullptr) return shared_->take(buffer);
  if (receives_.empty()) return false;
  const rdmap::ReceiveWork& work = receives_.front();
  buffer = {work.id, work.length, receives_.front_sges(), &qp_.pd};
  return true;
}

void WorkQueues::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                  const rdmap::ReceiveHost::Message& message) {
  ibv_wc completion{};
  completion.wr_id = buffer.id;
  completion.status = status_of(status);
  completion.opcode = message.is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_len = message.length;
  if (message.has_immediate) {
    completion.wc_flags = IBV_WC_WITH_IMM;
    std::memcpy(&completion.imm_data, message.immediate.data(), sizeof completion.imm_data);
    // Verbs have no field for the other four octets of Immediate Data. These octets go into src_qp, which verbs use for
    // datagrams only (uiwdv.h).
    std::memcpy(&completion.src_qp, message.immediate.data() + sizeof completion.imm_data, sizeof completion.src_qp);
  }
  if (message.invalidated) {
    completion.wc_flags = IBV_WC_WITH_INV;
    completion.invalidated_rkey = static_cast<std::uint32_t>(message.stag);
  }
  receive_complete(completion, message.solicited);
}

void WorkQueues::receive_complete(ibv_wc& completion, bool solicited) {
  completion.qp_num = qp_.number;
  if (Faults* const faults = Faults::active(); faults != nullptr) [[unlikely]] {
    completion.status = status_with_faults(*faults, FaultKind::receive, qp_, completion.status, receive_failed_);
  }
  // The entry is freed before the program can learn of the completion and post again.
  if (shared_ == nullptr) {
    receives_.pop();
    return qp_.receive_cq.push(completion, solicited);
  }
  shared_->cq_or(qp_.receive_cq).push(completion, solicited);
}

const void* WorkQueues::choose_queue(std::uint64_t number) {
  shared_ = static_cast<XrcDomain&>(qp_.pd).use(number, std::move(shared_), qp_.number);
  return shared_ != nullptr ? &shared_->pd() : nullptr;
}

bool WorkQueues::receives_from(const Srq& queue) const { return shared_ != nullptr && shared_->is_of(queue.number()); }

bool WorkQueues::completes_to(const Cq* cq) const { return shared_ != nullptr && shared_->completes_to(cq); }

void WorkQueues::leave_queues() { shared_.reset(); }

void WorkQueues::leave_queue(const Srq& queue) {
  // If it is the one that the peer has named last, the peer has to name another one, and the places are made anew.
  shared_ = receives_from(queue) ? nullptr : SrqUser::without(queue, std::move(shared_));
}

void WorkQueues::flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status) {
  if (culprit) culprit = sends_.request_of(*culprit);
  for (; !sends_.empty(); sends_.pop()) {
    const std::uint64_t head = sends_.head();
    send_complete(sends_.at(head), culprit == head ? status : rdmap::Status::flushed);
  }
}

bool WorkQueues::carry_out_local() {
  for (; !sends_.empty(); sends_.pop()) {
    rdmap::SendWork& work = sends_.at(sends_.head());
    if (!rdmap::is_local(work.kind)) return true;
    const bool binds = work.kind == rdmap::WorkKind::bind;
    work.status = carry_out(work, binds ? sends_.binding(sends_.head()) : ddp::Binding{});
    if (work.status != rdmap::Status::success) return false;
    send_complete(work, rdmap::Status::success);
  }
  return true;
}

bool WorkQueues::receive_there() const {
  if (shared_ != nullptr) return shared_->promised();
  // A message to a queue that has ended need not wait: the receiver refuses it.
  return !receives_.empty() || qp_.type == IBV_QPT_XRC_RECV;
}

void WorkQueues::flush_receives() {
  if (shared_ != nullptr) {
    // Receives that no message has used stay in the shared queue (Verbs draft section 6.3.6); the others have
    // completed.
    shared_->leave();
    // The event is about the shared queue of a queue pair, and an XRC_RECV queue pair has none of its own.
    if (!std::exchange(last_receive_reported_, true) && qp_.type != IBV_QPT_XRC_RECV)
      qp_.report(IBV_EVENT_QP_LAST_WQE_REACHED);
    return;
  }
  while (!receives_.empty()) {
    const rdmap::ReceiveBuffer buffer{receives_.front().id};
    receive_complete(buffer, rdmap::Status::flushed, {});
  }
}

// Returns a receive to the shared receive queue from which it was taken, so that other queue pairs can use it. If the
// shared queue has no room, the receive completes as flushed or is dropped. For a receive of the queue pair's own queue
// does nothing, since it has not been removed yet.
void WorkQueues::give_back(const rdmap::ReceiveBuffer& buffer, bool completes) {
  if (shared_ == nullptr || shared_->give_back(buffer)) return;
  // Without `completes` the receive is dropped, since the queue pair is being destroyed or reset.
  if (completes) receive_complete(buffer, rdmap::Status::flushed, {});
}

// ---- Memory windows (Verbs draft sections 7.8, 7.10 and 8.1.2.3) ----

// Verbs draft figure 23: errors of binds and of local invalidates are completion errors. InfiniBand has one status for
// all errors of memory management, in verbs IBV_WC_MW_BIND_ERR.
rdmap::Status WorkQueues::carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) {
  if (work.kind == rdmap::WorkKind::bind) {
    if (memory_.bind(binding) != ddp::WindowError::none) return rdmap::Status::window_bind;
    if (binding.type == ddp::WindowType::type2) has_windows_ = true;
    return rdmap::Status::success;
  }
  const ddp::WindowError refused = memory_.invalidate(work.invalidate);
  if (refused == ddp::WindowError::none) return rdmap::Status::success;
  if (qp_.context->device().transport == Transport::roce) return rdmap::Status::window_bind;
  switch (refused) {
    case ddp::WindowError::deallocated: return rdmap::Status::local_operation;  // Verbs draft section 7.8
    default: return rdmap::Status::local_protection;
  }
}

// The peer of a stream may invalidate windows of type 2 that are bound to this stream. To invalidate such a window that
// is not bound is no error, and changes nothing. The peer may invalidate neither memory regions nor windows of type 1.
std::optional<rdmap::ErrorCode> WorkQueues::invalidate(rdmap::Stag stag) {
  switch (memory_.invalidate(stag)) {
    case ddp::WindowError::none: return std::nullopt;
    case ddp::WindowError::deallocated: return rdmap::ErrorCode::invalid_stag;
    case ddp::WindowError::not_associated: return rdmap::ErrorCode::not_associated;
    default: return rdmap::ErrorCode::cannot_invalidate;
  }
}

void WorkQueues::release_windows() {
  if (!has_windows_) return;
  memory_.release_stream();
  has_windows_ = false;
}

}  // namespace uiw::provider
