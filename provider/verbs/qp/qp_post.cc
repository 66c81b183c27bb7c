// SPDX-License-Identifier: MIT
// Posting: from ibv_send_wr and ibv_recv_wr to the work of a stream, and from its completions to ibv_wc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "provider/connect/manual/pairs.h"
#include "provider/memory/grace_period.h"
#include "provider/progress/clock.h"
#include "provider/verbs/context.h"
#include "provider/verbs/limits.h"
#include "provider/verbs/qp/posting.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/srq.h"

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

}  // namespace

bool Qp::posts() const {
  const ibv_qp_state state = this->state();
  // An RNIC has no RTR: its queue pair sends as soon as it has a stream (Verbs draft section 6.2), and programs that take
  // the device for one do (ib_send_bw: the credits of its receiver).
  const bool rnic = context_->device().transport == Transport::iwarp;
  const bool sends = state == IBV_QPS_RTS || (state == IBV_QPS_RTR && manual_ && rnic);
  return sends || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

WorkBuilder::Abilities Qp::abilities() const {
  if (stream_ == nullptr) return {};
  return {stream_->agreed().agreement.send_with_immediate, attributes_.max_rd_atomic > 0};
}

// For the entry `sequence`. What waits to be sent with it makes room where that is in the way, and so does unsignaled work
// that is sent.
bool Qp::make_room(std::uint64_t sequence) {
  if (send_queue_.has_room(sequence)) return true;
  if (stream_ == nullptr) return false;
  if (stream_->sender().coalescing().waiting()) stream_->sender().send(probe_policy_of_program());
  if (!send_queue_.has_room(sequence)) stream_->transmitter().release_unsignaled();
  return send_queue_.has_room(sequence);
}

// Where an error of the sender is yet to end the stream, the queue is flushed then, in order.
bool Qp::too_late() const {
  const ibv_qp_state state = this->state();
  if (state == IBV_QPS_ERR) return true;
  const bool running = runs(Stream::Phase::running);
  if (stream_ != nullptr && stream_->sender().fin_sent() && !running) return true;
  // Running still in SQD: another thread is at that step. What is posted now stands behind earlier work, and goes out with it.
  return state == IBV_QPS_SQD && !running && !runs(Stream::Phase::closing) && !manual_;
}

// What has been filled in behind the tail is posted, or completes as flushed where it is too late for anything else.
void Qp::push_prepared(std::uint32_t count) {
  if (!too_late()) return send_queue_.push(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    send_complete(send_queue_.at(send_queue_.tail() + i), rdmap::Status::flushed);
  }
}

int Qp::post_send(ibv_send_wr* requests, ibv_send_wr** bad) {
  std::unique_lock lock(locks_.send);
  const bool waits = batch_.open.load(std::memory_order_relaxed);
  int error = (waits && !await_batch(lock)) || !posts() ? EINVAL : 0;
  const WorkBuilder::Abilities able = abilities();
  const std::uint64_t first = send_queue_.tail();
  ibv_send_wr* request = requests;
  for (; request != nullptr && error == 0; request = request->next) {
    const std::uint64_t sequence = send_queue_.tail();
    error = send_queue_.has_room(sequence) || make_room(sequence) ? builder_.build(sequence, *request, able) : ENOMEM;
    if (error != 0) break;
    if (too_late()) {
      push_prepared(1);
    } else {
      send_queue_.push();
    }
  }
  if (error != 0 && bad != nullptr) *bad = request;
  send_what_is_posted(first, lock);
  return error;
}

// May what has been posted from `first` on wait for the posts behind it? There is a stream.
bool Qp::coalesces(std::uint64_t first) {
  const std::uint64_t end = send_queue_.tail();
  std::size_t octets = 0;
  for (std::uint64_t i = std::max(first, send_queue_.head()); i < end && octets < Coalescing::kMostOctets; ++i) {
    octets += send_queue_.at(i).length;
  }
  Coalescing& coalescing = stream_->sender().coalescing();
  if (!coalescing.posted(static_cast<unsigned>(end - first), octets, send_cq_->taken())) return false;
  if (!stream_->runs() || stream_->sender().full() || send_queue_.full()) return false;
  if (context_->engine().event_awaited() || context_->engine().drives_many()) return false;
  return coalescing.may_wait(raw_clock(), context_->engine().last_active_here());
}

// Leaves the lock open.
void Qp::send_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) {
  if (manual_.load(std::memory_order_relaxed)) manual::start_retry_timers();
  if (stream_ == nullptr) return lock.unlock();
  stream_->receiver().note_post();
  Coalescing& coalescing = stream_->sender().coalescing();
  const bool waited = coalescing.waiting();
  if (coalesces(first)) {
    const std::uint64_t now = coalescing.last_post();
    signals_.poster.store(pthread_self(), std::memory_order_relaxed);
    stream_->sender().note_deferred();
    lock.unlock();
    if (!waited) context_->engine().watch_posts();
    if (context_->engine().note_post(now)) resume_posting();
    return;
  }
  // With a queue of work whose completions come from the peer, it polls soon; with less it may be waiting for memory.
  const bool remote = stream_->transmitter().completion() == rdmap::Completion::remote;
  const bool streams = coalescing.without_pause() || (remote && send_queue_.size() >= kStream);
  if (streams) context_->engine().begin_posting();
  stream_->sender().send(probe_policy_of_program());
  std::uint64_t now = 0;
  if (streams || coalescing.in_stream()) {
    now = raw_clock();
    coalescing.resume(now);
  }
  lock.unlock();
  if (streams && context_->engine().end_posting(now)) resume_posting();
}

// Work that is posted already is not taken back: where it cannot be sent for lack of memory, its stream ends.
void Qp::send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept {
  try {
    send_posted(first, lock);
  } catch (const std::exception&) {
    if (lock.owns_lock()) lock.unlock();
    no_memory();
  }
}

// What the engine has done since is not the program's time.
void Qp::resume_posting() {
  const std::lock_guard lock(locks_.send);
  if (stream_ != nullptr) stream_->sender().coalescing().resume(raw_clock());
}

// Until no other thread has a batch open. False where this one has.
bool Qp::await_batch(std::unique_lock<SectionMutex>& lock) {
  while (batch_.open.load(std::memory_order_relaxed)) {
    if (pthread_equal(batch_.thread, pthread_self()) != 0) return false;
    lock.unlock();
    batch_.open.wait(true);
    lock.lock();
  }
  return true;
}

void Qp::begin_batch() {
  std::unique_lock lock(locks_.send);
  if (!await_batch(lock)) {
    batch_.error = EINVAL;
    return;
  }
  batch_.open.store(true, std::memory_order_relaxed);
  batch_.thread = pthread_self();
  batch_.error = posts() ? 0 : EINVAL;
  batch_.size = 0;
  batch_.abilities = abilities();
  batch_.extension = {};
}

void Qp::add(const ibv_send_wr& request) {
  const Extension extension = std::exchange(batch_.extension, {});
  if (batch_.error != 0) return;
  const std::uint64_t sequence = send_queue_.tail() + batch_.size;
  if (!send_queue_.has_room(sequence)) {
    const std::lock_guard lock(locks_.send);
    if (!make_room(sequence)) batch_.error = ENOMEM;
  }
  if (batch_.error == 0) {
    const ReadSection section;
    batch_.error = builder_.build(sequence, request, batch_.abilities);
  }
  if (batch_.error == 0 && extension.index() != 0) batch_.error = builder_.extend(sequence, extension);
  if (batch_.error == 0) ++batch_.size;
}

int Qp::end_batch() {
  std::unique_lock lock(locks_.send);
  const int error = batch_.error != 0 || posts() ? batch_.error : EINVAL;
  const std::uint64_t first = send_queue_.tail();
  if (error == 0) push_prepared(batch_.size);
  close_batch();
  if (error == 0) send_what_is_posted(first, lock);
  return error;
}

void Qp::abort_batch() {
  const std::lock_guard lock(locks_.send);
  close_batch();
}

void Qp::close_batch() {
  batch_.open.store(false, std::memory_order_relaxed);
  batch_.open.notify_all();
}

int Qp::post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  if (shared_ != nullptr || state() == IBV_QPS_RESET) {
    if (bad != nullptr) *bad = requests;
    return EINVAL;
  }
  int error;
  {
    const std::lock_guard lock(post_receive_mutex_);
    error = post_receives(receive_queue_, &pd_, requests, bad);
  }
  // Posted first, looked at then; whoever pauses or flushes stores that first and looks at the queue then.
  if (state() == IBV_QPS_ERR) {
    const std::lock_guard lock(locks_.receive);
    // A stream whose end is still to come flushes them then, after the message in progress.
    if (stream_ == nullptr || !stream_->runs_or_closes()) flush_receives();
  } else if (signals_.receive_stalled) {
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

bool Qp::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (shared_ != nullptr) return shared_->take(buffer);
  if (receive_queue_.empty()) return false;
  const rdmap::ReceiveWork& work = receive_queue_.front();
  buffer = {work.id, work.length, receive_queue_.front_sges(), &pd_};
  return true;
}

void Qp::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                          const rdmap::ReceiveHost::Message& message) {
  ibv_wc completion{};
  completion.wr_id = buffer.id;
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
  // Its pieces are the program's again before it can learn of the completion.
  if (shared_ == nullptr) receive_queue_.pop();
  receive_cq_->push(completion, message.solicited);
}

// Without a connection all that is posted waits. The sender's lock is held.
void Qp::flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status) {
  if (stream_ != nullptr) return stream_->transmitter().flush(culprit, status);
  for (; !send_queue_.empty(); send_queue_.pop()) {
    const std::uint64_t head = send_queue_.head();
    send_complete(send_queue_.at(head), culprit == head ? status : rdmap::Status::flushed);
  }
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
    const rdmap::ReceiveBuffer buffer{receive_queue_.front().id};
    receive_complete(buffer, rdmap::Status::flushed, {});
  }
}

}  // namespace uiw::provider
