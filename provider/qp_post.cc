// SPDX-License-Identifier: MIT
// Posting: from ibv_send_wr and ibv_recv_wr to the work of a stream, and from its completions to ibv_wc.
#include <cerrno>
#include <cstring>
#include <utility>

#include "provider/clock.h"
#include "provider/context.h"
#include "provider/grace_period.h"
#include "provider/limits.h"
#include "provider/post_receive.h"
#include "provider/qp.h"
#include "provider/srq.h"

namespace uiw::provider {

namespace {
constexpr std::uint32_t kStream = 4;  // entries in the queue: the program is likely to poll soon

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

ibv_wc_opcode opcode_of(const rdmap::SendWork& work) {
  switch (work.kind) {
    case rdmap::WorkKind::send: return IBV_WC_SEND;
    case rdmap::WorkKind::write:
    case rdmap::WorkKind::immediate: return IBV_WC_RDMA_WRITE;
    case rdmap::WorkKind::read: return IBV_WC_RDMA_READ;
    case rdmap::WorkKind::atomic:
      return work.atomic == rdmap::AtomicOpcode::fetch_add ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP;
    case rdmap::WorkKind::local_invalidate: return IBV_WC_LOCAL_INV;
    case rdmap::WorkKind::bind: return IBV_WC_BIND_MW;
  }
  return IBV_WC_SEND;
}

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

// The verbs value, which the program stores in network order, stands first; the rest is zero (as other adapters do).
rdmap::Immediate immediate_of(__be32 value) {
  rdmap::Immediate immediate{};
  std::memcpy(immediate.data(), &value, sizeof value);
  return immediate;
}

}  // namespace

int Qp::postable() {
  const ibv_qp_state state = this->state();
  // An RNIC has no RTR: its queue pair sends as soon as it has a stream (Verbs draft section 6.2), and programs that take
  // the device for one do (ib_send_bw: the credits of its receiver).
  const bool rnic = context_.device().transport == Transport::iwarp;
  const bool sends = state == IBV_QPS_RTS || (state == IBV_QPS_RTR && by_hand_ && rnic);
  if (!sends && state != IBV_QPS_SQD && state != IBV_QPS_ERR) return EINVAL;
  if (send_queue_.full() && reads_ != nullptr) transmitter_.release_unsignaled();
  return send_queue_.full() ? ENOMEM : 0;
}

bool Qp::too_late() const {
  const ibv_qp_state state = this->state();
  return state == IBV_QPS_ERR || fin_sent_ || (state == IBV_QPS_SQD && stream_ != Stream::closing && !by_hand_);
}

// Fills in the queue entry at the tail. 0, or the errno of ibv_post_send, and then nothing was posted. A bad lkey is no
// errno: the request completes with IBV_WC_LOC_PROT_ERR in its turn.
int Qp::prepare(const ibv_send_wr& request) {
  if (request.opcode == IBV_WR_LOCAL_INV) {
    return prepare_invalidate(request.wr_id, request.send_flags, request.invalidate_rkey);
  }
  if (request.opcode == IBV_WR_BIND_MW) {
    const ibv_mw* mw = request.bind_mw.mw;
    if (mw == nullptr || mw->type != IBV_MW_TYPE_2) return EINVAL;  // the others by ibv_bind_mw
    return prepare_bind(request.wr_id, request.send_flags, *mw, request.bind_mw.rkey, request.bind_mw.bind_info);
  }
  if (const int error = postable(); error != 0) return error;
  const bool inlined = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (request.num_sge < 0) return EINVAL;
  if (static_cast<std::uint32_t>(request.num_sge) > send_queue_.max_pieces() && !inlined) return EINVAL;

  // Too late requests are built apart: an entry of the queue may still describe an FPDU that is half sent.
  const bool too_late = this->too_late();
  rdmap::SendWork late;
  rdmap::SendWork& work = too_late ? late : send_queue_.at(send_queue_.tail());
  work = rdmap::SendWork{};
  switch (request.opcode) {
    case IBV_WR_SEND_WITH_INV:
      work.invalidates = true;
      work.invalidate = static_cast<ddp::Stag>(request.invalidate_rkey);
      [[fallthrough]];
    case IBV_WR_SEND: work.kind = rdmap::WorkKind::send; break;
    case IBV_WR_SEND_WITH_IMM:
      if (reads_ != nullptr && !agreed_.agreement.send_with_immediate) return EOPNOTSUPP;  // the peer has no such thing
      work.kind = rdmap::WorkKind::send;
      work.has_immediate = true;
      work.immediate = immediate_of(request.imm_data);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      work.has_immediate = true;
      work.immediate = immediate_of(request.imm_data);
      [[fallthrough]];
    case IBV_WR_RDMA_WRITE: work.kind = rdmap::WorkKind::write; break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_RDMA_READ:
      if (inlined) return EINVAL;
      if (reads_ != nullptr && attributes_.max_rd_atomic == 0) return EINVAL;  // the peer holds none
      work.kind = request.opcode == IBV_WR_RDMA_READ ? rdmap::WorkKind::read : rdmap::WorkKind::atomic;
      break;
    default: return EOPNOTSUPP;
  }
  work.id = request.wr_id;
  work.signaled = signal_all_ || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  work.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  work.fence = (request.send_flags & IBV_SEND_FENCE) != 0;
  if (work.kind == rdmap::WorkKind::atomic) {
    const bool add = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    work.atomic = add ? rdmap::AtomicOpcode::fetch_add : rdmap::AtomicOpcode::compare_swap;
    work.remote_stag = static_cast<ddp::Stag>(request.wr.atomic.rkey);
    work.remote_offset = request.wr.atomic.remote_addr;
    // RFC 7306 figure 5: what an operation does not use is zero, and a mask of it all ones.
    if (!too_late) {
      send_queue_.operands(send_queue_.tail()) =
          add ? rdmap::AtomicOperands{request.wr.atomic.compare_add, 0, 0, kAllBits}
              : rdmap::AtomicOperands{request.wr.atomic.swap, kAllBits, request.wr.atomic.compare_add, kAllBits};
    }
  } else if (work.kind != rdmap::WorkKind::send) {
    work.remote_stag = static_cast<ddp::Stag>(request.wr.rdma.rkey);
    work.remote_offset = request.wr.rdma.remote_addr;
  }

  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  if (length > kMaxMessage) return EINVAL;
  work.length = static_cast<std::uint32_t>(length);
  if (work.kind == rdmap::WorkKind::atomic) {
    if (length < rdmap::kAtomicSize) work.status = rdmap::Status::local_length;
    work.length = rdmap::kAtomicSize;
  }

  if (inlined && length > send_queue_.max_inline()) return EINVAL;
  if (too_late) {
    send_complete(work, rdmap::Status::flushed);
    return 0;
  }

  if (inlined) {
    std::byte* room = send_queue_.inline_room(send_queue_.tail());
    std::byte* to = room;
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& sge = request.sg_list[i];
      if (sge.length > 0) std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
      to += sge.length;
    }
    *send_queue_.piece_room(send_queue_.tail()) = {room, static_cast<std::size_t>(length)};
    work.pieces = length > 0 ? 1 : 0;
  } else {
    const std::uint32_t right = rdmap::is_answered(work.kind) ? ddp::kLocalWrite : ddp::kLocalRead;
    rdmap::Piece* piece = send_queue_.piece_room(send_queue_.tail());
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& sge = request.sg_list[i];
      if (sge.length == 0) continue;
      const ddp::Access access = stag_table().find(static_cast<ddp::Stag>(sge.lkey), &pd_, sge.addr, sge.length, right);
      if (access.error != ddp::AccessError::none) {
        work.status = rdmap::Status::local_protection;
        break;
      }
      work.check_sink = work.pieces == 0 && rdmap::is_answered(work.kind);
      if (work.check_sink) {
        work.sink_stag = static_cast<ddp::Stag>(sge.lkey);
        work.sink_offset = sge.addr;
        // The response names one run of offsets however many pieces there are: it must not wrap.
        if (work.sink_offset + length < work.sink_offset) work.sink_offset = 0;
      }
      piece[work.pieces++] = {access.memory, sge.length};
    }
  }

  send_queue_.push();
  return 0;
}

int Qp::post_send(ibv_send_wr* requests, ibv_send_wr** bad) {
  const ReadSection section;
  int error = 0;
  send_mutex_.lock();
  const std::uint64_t first = send_queue_.tail();
  for (ibv_send_wr* request = requests; request != nullptr; request = request->next) {
    if (send_queue_.full() && coalescing_.waiting()) transmit(patience_of_program());
    error = prepare(*request);
    if (error != 0) {
      if (bad != nullptr) *bad = request;
      break;
    }
  }
  send_posted(first);
  return error;
}

// May what has been posted from `first` on wait for the posts behind it?
bool Qp::coalesces(std::uint64_t first) {
  const std::uint64_t end = send_queue_.tail();
  std::size_t octets = 0;
  for (std::uint64_t i = first; i < end && octets < Coalescing::kMostOctets; ++i) octets += send_queue_.at(i).length;
  if (!coalescing_.posted(static_cast<unsigned>(end - first), octets, send_cq_->taken())) return false;
  if (stream_ != Stream::running || full() || send_queue_.full()) return false;
  if (context_.engine().event_awaited() || context_.engine().drives_many()) return false;
  return coalescing_.may_wait(raw_clock(), context_.engine().last_active_here());
}

// Leaves the sender's lock open.
void Qp::send_posted(std::uint64_t first) {
  if (ride_open_.load(std::memory_order_relaxed)) ride_open_.store(false, std::memory_order_relaxed);
  const bool waited = coalescing_.waiting();
  if (coalesces(first)) {
    const std::uint64_t now = coalescing_.last_post();
    poster_.store(pthread_self(), std::memory_order_relaxed);
    note_held();
    send_mutex_.unlock();
    if (!waited) context_.engine().watch_posts();
    if (context_.engine().note_post(now)) resume_posting();
    return;
  }
  // With a queue of work whose completions come from the peer, it polls soon; with less it may be waiting for memory.
  const bool streams = coalescing_.without_pause() || (transmitter_.completion() == rdmap::Completion::remote &&
                                                       send_queue_.size() >= kStream);
  if (streams) context_.engine().begin_posting();
  if (!full()) transmit(patience_of_program());
  std::uint64_t now = 0;
  if (streams || coalescing_.in_stream()) {
    now = raw_clock();
    coalescing_.resume(now);
  }
  send_mutex_.unlock();
  if (streams && context_.engine().end_posting(now)) resume_posting();
}

// What the engine has done since is not the program's time.
void Qp::resume_posting() {
  const std::lock_guard lock(send_mutex_);
  coalescing_.resume(raw_clock());
}

void Qp::begin_batch() {
  send_mutex_.lock();
  // Within the batch nothing can be sent.
  if (coalescing_.waiting() && 2 * send_queue_.size() > send_queue_.depth()) transmit(patience_of_program());
  batch_error_ = 0;
  batch_start_ = send_queue_.tail();
  extension_ = {};
}

void Qp::add(const ibv_send_wr& request) {
  const ReadSection section;
  const std::uint64_t sequence = send_queue_.tail();
  if (batch_error_ == 0) batch_error_ = prepare(request);
  if (extension_.index() != 0) {
    // Nothing stands there where it was too late, and has completed so.
    if (send_queue_.tail() != sequence) batch_error_ = apply_extension(sequence);
    extension_ = {};
  }
}

int Qp::apply_extension(std::uint64_t sequence) {
  rdmap::SendWork& work = send_queue_.at(sequence);
  if (const auto* operands = std::get_if<rdmap::AtomicOperands>(&extension_)) {
    send_queue_.operands(sequence) = *operands;
  } else if (const auto* immediate = std::get_if<rdmap::Immediate>(&extension_)) {
    if (work.length != 0) return EINVAL;
    work.kind = rdmap::WorkKind::immediate;
    work.has_immediate = false;
    work.immediate = *immediate;
  }
  return 0;
}

int Qp::end_batch() {
  const ReadSection section;
  const int error = batch_error_;
  if (error != 0) {
    send_queue_.retract(batch_start_);
    send_mutex_.unlock();
  } else {
    send_posted(batch_start_);
  }
  return error;
}

void Qp::abort_batch() {
  send_queue_.retract(batch_start_);
  send_mutex_.unlock();
}

int Qp::post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const ReadSection section;
  if (shared_ != nullptr || state() == IBV_QPS_RESET) {
    if (bad != nullptr) *bad = requests;
    return EINVAL;
  }
  int error;
  {
    const std::lock_guard lock(post_receive_mutex_);
    error = post_receives(receive_queue_, &pd_, requests, bad);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (state() == IBV_QPS_ERR) {
    const std::lock_guard lock(receive_mutex_);
    // A stream whose end is still to come flushes them then, after the message in progress.
    if (stream_ != Stream::running && stream_ != Stream::closing) flush_receives();
  } else if (paused_.load(std::memory_order_seq_cst)) {
    progress(Driver::event);
  }
  return error;
}

void Qp::send_complete(const rdmap::SendWork& work, rdmap::Status status) {
  if (status == rdmap::Status::success && !work.signaled) return;
  ibv_wc completion{};
  completion.wr_id = work.id;
  completion.status = status_of(status);
  completion.opcode = opcode_of(work);
  completion.byte_len = work.length;
  completion.qp_num = number_;
  send_cq_->push(completion, false);
}

bool Qp::next_receive(rdmap::Landing& landing) {
  if (shared_ != nullptr) return shared_->take(landing);
  if (receive_queue_.empty()) return false;
  landing = {receive_queue_.front().id, receive_queue_.front().length, receive_queue_.front_pieces()};
  return true;
}

void Qp::receive_complete(const rdmap::Landing& landing, rdmap::Status status, const Message& message) {
  ibv_wc completion{};
  completion.wr_id = landing.id;
  completion.status = status_of(status);
  completion.opcode = message.is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.byte_len = message.length;
  if (message.has_immediate) {
    completion.wc_flags = IBV_WC_WITH_IMM;
    std::memcpy(&completion.imm_data, message.immediate.data(), sizeof completion.imm_data);
    // The other octets, which verbs do not know, stand where a reliable connection has nothing to say (uiwdv.h).
    std::memcpy(&completion.src_qp, message.immediate.data() + sizeof completion.imm_data, sizeof completion.src_qp);
  }
  completion.qp_num = number_;
  if (message.invalidated) {
    completion.wc_flags = IBV_WC_WITH_INV;
    completion.invalidated_rkey = static_cast<std::uint32_t>(message.stag);
  }
  if (status != rdmap::Status::success && status != rdmap::Status::flushed) receive_error_told_ = true;
  // Its pieces are the program's again before it can learn of the completion.
  if (shared_ == nullptr) receive_queue_.pop();
  receive_cq_->push(completion, message.solicited);
}

bool Qp::receive_there() const { return shared_ != nullptr ? shared_->promised() : !receive_queue_.empty(); }

void Qp::flush_receives() {
  if (shared_ != nullptr) {
    // What no message has used is still there for others (Verbs draft section 6.3.6); what one has, is complete.
    shared_->leave();
    if (!std::exchange(last_receive_reported_, true)) report(IBV_EVENT_QP_LAST_WQE_REACHED);
    return;
  }
  while (!receive_queue_.empty()) {
    const rdmap::Landing landing{receive_queue_.front().id, 0, {}};
    receive_complete(landing, rdmap::Status::flushed, {});
  }
}

}  // namespace uiw::provider
