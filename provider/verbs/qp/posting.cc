// SPDX-License-Identifier: MIT
// How send requests are posted: by ibv_post_send, as a batch, or as the bind of a memory window; and whether they are
// sent at once or with the next posts (provider/progress/send_scheduler.h). Each function takes the sender's lock if it
// needs it, unless its declaration in qp.h says that the lock is held.
#include "base/mutex.h"
#include "provider/verbs/qp/qp.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "provider/connect/retry_timers.h"
#include "provider/memory/memory.h"
#include "provider/progress/clock.h"
#include "provider/verbs/context.h"

namespace uiw::provider {

bool Qp::state_allows_posts() const {
  const ibv_qp_state state = qp_.state.load();
  // An RNIC has no state RTR: its queue pair sends as soon as it has a stream (Verbs draft section 6.2). So some
  // programs post before the step to RTS if they see an RNIC: ib_send_bw's receiver posts its credits in RTR.
  const bool ready = state == IBV_QPS_RTS || (state == IBV_QPS_RTR && manual_ && rnic_);
  return ready || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

WorkQueues::Abilities Qp::abilities() const {
  if (connection_.is_idle()) return {};
  return {connection_.peer() != mpa::PeerKind::other, attributes_.max_rd_atomic > 0};
}

// Makes room for the entry `sequence`, if the send queue is full: sends posts that wait for later posts, and completes
// unsignaled work that has been sent. False if there is still no room.
bool Qp::make_room(std::uint64_t sequence) {
  if (sends().has_room(sequence)) return true;
  if (connection_.is_idle()) return false;
  if (const auto policy = connection_.scheduler().polled(probe_policy())) connection_.send(*policy);
  if (!sends().has_room(sequence)) connection_.transmitter().release_unsignaled();
  return sends().has_room(sequence);
}

// Whether new work can only be flushed. After a send error that has not ended the stream yet the answer is false: the
// end of the stream flushes the whole queue in order.
bool Qp::too_late() const {
  const ibv_qp_state state = qp_.state.load();
  if (state == IBV_QPS_ERR) return true;
  const bool running = connection_.runs();
  if (connection_.fin_sent() && !running) return true;
  // If the stream still runs in SQD, another thread is making the step to SQD now. Work that is posted now is sent
  // after the earlier work.
  return state == IBV_QPS_SQD && !running && connection_.phase() != Connection::Phase::closing && !follows_infiniband();
}

// Posts the first `count` entries from the tail of the send queue on, which have been filled in. If too_late() is true,
// they complete as flushed instead.
void Qp::push_prepared(std::uint32_t count) {
  if (!too_late()) return sends().push(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    queues_.send_complete(sends().at(sends().tail() + i), rdmap::Status::flushed);
  }
}

int Qp::post_send(ibv_send_wr* requests, ibv_send_wr** bad) {
  UniqueLock lock(connection_.locks.send);
  int error = !batch_.await_end(lock) || !state_allows_posts() ? EINVAL : 0;
  const WorkQueues::Abilities able = abilities();
  const std::uint64_t first = sends().tail();
  bool late = too_late();
  ibv_send_wr* request = requests;
  for (; request != nullptr && error == 0; request = request->next) {
    const std::uint64_t sequence = sends().tail();
    if (!sends().has_room(sequence)) {
      error = make_room(sequence) ? 0 : qp_.type == IBV_QPT_XRC_RECV ? EINVAL : ENOMEM;
      late = too_late();  // make_room() may have sent the last octets and FIN
    }
    if (error == 0) error = queues_.build(sequence, *request, able);
    if (error == 0 && names_queue(*request)) {
      error = name_queue(sequence, request->qp_type.xrc.remote_srqn, able);
      late = too_late();
    }
    if (error != 0) break;
    if (late) {
      push_prepared(1);
    } else {
      sends().push();
    }
  }
  if (error != 0 && bad != nullptr) *bad = request;
  send_what_is_posted(first, lock);
  return error;
}

// The request that has been built as the entry `sequence`, the tail, is for this shared receive queue of the peer. If
// the request can only be flushed, its queue does not matter.
int Qp::name_queue(std::uint64_t sequence, std::uint32_t queue, const WorkQueues::Abilities& able) {
  if (queue == named_queue_ || too_late()) return 0;
  if (!able.uiws_own) return EOPNOTSUPP;
  if (!make_room(sequence + 1)) return ENOMEM;
  if (too_late()) return 0;  // make_room() may have sent the last octets and FIN
  if (const int error = queues_.choose_before(sequence, queue); error != 0) return error;
  sends().push();
  named_queue_ = queue;
  return 0;
}

// Whether the posts from `first` on are sent now, or wait for the next posts. There must be a stream.
SendScheduler::PostDecision Qp::decide(std::uint64_t first) {
  const std::uint64_t end = sends().tail();
  const Engine& engine = qp_.context->engine();
  const SendScheduler::Post post{static_cast<unsigned>(end - first), qp_.send_cq.taken(),
                                 connection_.transmitter().completion() == rdmap::Completion::remote, sends().size()};
  const auto conditions = [&] {
    assume_held(connection_.locks.send);
    SendScheduler::PostConditions now;
    now.most_octets = connection_.octets_in_one_send();
    for (std::uint64_t i = std::max(first, sends().head()); i < end && now.octets < now.most_octets; ++i) {
      now.octets += sends().at(i).length;
    }
    now.running = connection_.runs();
    now.socket_full = connection_.full();
    now.queue_full = sends().full();
    now.awaits_event = engine.activity().event_awaited();
    return now;
  };
  return connection_.scheduler().posted(post, conditions, [&engine] {
    return SendScheduler::PostTime{raw_clock(), engine.activity().last_here()};
  });
}

// Sends the posts from `first` on, or lets them wait (decide()), and releases the lock. Functions that release a lock
// of their caller are left out of the thread safety analysis.
void Qp::send_or_defer(std::uint64_t first, Lock& lock) UIW_NO_THREAD_SAFETY_ANALYSIS {
  using Decision = SendScheduler::PostDecision;
  if (retries()) start_retry_timers();
  if (!connection_.carries_work()) return carry_out_local(lock);
  connection_.note_post();
  Engine& engine = qp_.context->engine();
  SendScheduler& scheduler = connection_.scheduler();
  const Decision decision = decide(first);
  if (decision == Decision::defer || decision == Decision::defer_first) {
    const std::uint64_t now = scheduler.last_post();
    connection_.signals.poster.store(pthread_self(), std::memory_order_relaxed);
    connection_.publish_deferred();
    lock.unlock();
    if (decision == Decision::defer_first) engine.watch_posts();
    if (engine.note_post(now)) note_return_to_program();
    return;
  }
  const bool looks = decision == Decision::send_and_look;
  if (looks) engine.begin_posting();
  connection_.send(probe_policy());
  std::uint64_t now = 0;
  if (decision != Decision::send) {
    now = raw_clock();
    scheduler.resume(now);
  }
  lock.unlock();
  if (looks && engine.end_posting(now)) note_return_to_program();
}

void Qp::carry_out_local() {
  UniqueLock lock(connection_.locks.send);
  if (!connection_.carries_work()) carry_out_local(lock);
}

// Called if there is no stream yet, or its peer has left: carries out binds and local invalidates at the head of the
// send queue, which need no stream. Releases the lock.
void Qp::carry_out_local(Lock& lock) UIW_NO_THREAD_SAFETY_ANALYSIS {
  const ibv_qp_state state = qp_.state.load();
  if ((state != IBV_QPS_RTS && state != IBV_QPS_RTR) || queues_.carry_out_local()) return lock.unlock();
  const std::uint64_t culprit = sends().head();
  lock.unlock();
  const LockGuard receive_lock(connection_.locks.receive);
  {
    const LockGuard send_lock(connection_.locks.send);
    // If a stream has been attached meanwhile, the stream completes this work in error.
    if (connection_.carries_work() || sends().empty() || sends().head() != culprit) return;
    qp_.state = IBV_QPS_ERR;
    queues_.flush_sends(culprit, sends().at(culprit).status);
  }
  queues_.flush_receives();
}

// Work that is posted cannot be taken back: if there is no memory to send the work, the stream ends.
void Qp::send_what_is_posted(std::uint64_t first, Lock& lock) noexcept UIW_NO_THREAD_SAFETY_ANALYSIS {
  try {
    send_or_defer(first, lock);
  } catch (const std::exception&) {
    if (lock.owns_lock()) lock.unlock();
    no_memory();
  }
}

// The call that posted has also handled what has arrived. The time for that is no pause between two posts of the
// program, so the scheduler measures the pause from now on.
void Qp::note_return_to_program() {
  const LockGuard lock(connection_.locks.send);
  connection_.note_return_to_program(raw_clock());
}

void Qp::delay_posts() {
  const LockGuard lock(connection_.locks.send);
  connection_.delay_from(sends().tail());
}

void Qp::begin_batch() {
  Lock lock(connection_.locks.send);
  if (!batch_.begin(lock, state_allows_posts() ? 0 : EINVAL)) return;
  batch_abilities_ = abilities();
  batch_.named_queue = named_queue_;
  extension_ = {};
}

void Qp::add(const ibv_send_wr& request) {
  const WorkQueues::Extension extension = std::exchange(extension_, {});
  if (batch_.error != 0) return;
  const std::uint64_t sequence = sends().tail() + batch_.size;
  if (!sends().has_room(sequence)) {
    const LockGuard lock(connection_.locks.send);
    if (!make_room(sequence)) batch_.error = ENOMEM;
  }
  if (batch_.error == 0) {
    const ReadSection section;
    batch_.error = queues_.build(sequence, request, batch_abilities_);
  }
  if (batch_.error == 0 && extension.index() != 0) batch_.error = queues_.extend(sequence, extension, batch_abilities_);
  if (batch_.error == 0) ++batch_.size;
  if (names_queue(request) && request.qp_type.xrc.remote_srqn != 0) name_last_queue(request.qp_type.xrc.remote_srqn);
}

// The program may name the queue before the data of the request or after the data; so the last request has been added
// already.
void Qp::name_last_queue(std::uint32_t queue) {
  if (batch_.error != 0 || batch_.size == 0 || queue == batch_.named_queue || qp_.type != IBV_QPT_XRC_SEND) return;
  const std::uint64_t last = sends().tail() + batch_.size - 1;
  if (rdmap::is_local(sends().at(last).kind)) return;  // it is for no queue
  if (!batch_abilities_.uiws_own) batch_.error = EOPNOTSUPP;
  if (batch_.error == 0 && !sends().has_room(last + 1)) {
    const LockGuard lock(connection_.locks.send);
    if (!make_room(last + 1)) batch_.error = ENOMEM;
  }
  if (batch_.error == 0) batch_.error = queues_.choose_before(last, queue);
  if (batch_.error != 0) return;
  ++batch_.size;
  batch_.named_queue = queue;
}

int Qp::end_batch() {
  UniqueLock lock(connection_.locks.send);
  const int error = batch_.error != 0 || state_allows_posts() ? batch_.error : EINVAL;
  const std::uint64_t first = sends().tail();
  if (error == 0) {
    push_prepared(batch_.size);
    named_queue_ = batch_.named_queue;
  }
  batch_.end();
  if (error == 0) send_what_is_posted(first, lock);
  return error;
}

void Qp::abort_batch() {
  const LockGuard lock(connection_.locks.send);
  batch_.end();
}

int Qp::post_bind(ibv_mw& mw, const ibv_mw_bind& bind) {
  if (mw.type != IBV_MW_TYPE_1) return EINVAL;
  UniqueLock lock(connection_.locks.send);
  if (!batch_.await_end(lock) || !state_allows_posts()) return EINVAL;
  const std::uint64_t sequence = sends().tail();
  if (!make_room(sequence)) return ENOMEM;
  const auto rkey = static_cast<std::uint32_t>(stag_table().next_key(static_cast<ddp::Stag>(mw.rkey)));
  const int error = queues_.build_bind(sequence, bind.wr_id, bind.send_flags, mw, rkey, bind.bind_info);
  if (error != 0) return error;
  push_prepared(1);
  send_what_is_posted(sequence, lock);
  return 0;
}

SendScheduler::ProbePolicy Qp::probe_policy() {
  if (!connection_.transmitter().needs_probes()) return SendScheduler::ProbePolicy::at_once;  // it has no effect
  return SendScheduler::posters_probe_policy(qp_.context->engine().program(), !qp_.send_cq.empty());
}

}  // namespace uiw::provider
