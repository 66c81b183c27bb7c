// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/send_posting.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "provider/connect/retry_timers.h"
#include "provider/memory/memory.h"
#include "provider/progress/clock.h"
#include "provider/verbs/context.h"

namespace uiw::provider {

bool SendPosting::state_allows_posts() const {
  const ibv_qp_state state = qp_.state.load();
  // An RNIC has no state RTR: its queue pair sends as soon as it has a stream (Verbs draft section 6.2). Programs that
  // see an RNIC post in RTR: the receiver of ib_send_bw sends its credits.
  const bool sends = state == IBV_QPS_RTS || (state == IBV_QPS_RTR && qp_.manual && qp_.rnic);
  return sends || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

WorkBuilder::Abilities SendPosting::abilities() const {
  if (qp_.connection.is_idle()) return {};
  return {qp_.connection.peer() != mpa::PeerKind::other, qp_.attributes.max_rd_atomic > 0};
}

// Makes room for the entry `sequence`, if the queue is full: sends posts that wait, and completes unsignaled work that
// has been sent. False if there is still no room.
bool SendPosting::make_room(std::uint64_t sequence) {
  if (sends_.has_room(sequence)) return true;
  if (qp_.connection.is_idle()) return false;
  Connection& connection = qp_.connection;
  if (const auto policy = connection.scheduler().polled(probe_policy())) connection.send(*policy);
  if (!sends_.has_room(sequence)) connection.transmitter().release_unsignaled();
  return sends_.has_room(sequence);
}

// Whether new work can only be flushed. After an error of the sender that has not ended the stream yet this is false:
// the end of the stream flushes the whole queue in order.
bool SendPosting::too_late() const {
  const ibv_qp_state state = qp_.state.load();
  if (state == IBV_QPS_ERR) return true;
  const bool running = qp_.connection.runs();
  if (qp_.connection.fin_sent() && !running) return true;
  // If the stream still runs in SQD, another thread is making the step to SQD now. What is posted now is behind earlier
  // work, and is sent with it.
  return state == IBV_QPS_SQD && !running && qp_.connection.phase() != Connection::Phase::closing &&
         !qp_.follows_infiniband();
}

// Posts the `count` entries that have been filled in behind the tail; if it is too late for that, they complete as
// flushed.
void SendPosting::push_prepared(std::uint32_t count) {
  if (!too_late()) return sends_.push(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    queues_.send_complete(sends_.at(sends_.tail() + i), rdmap::Status::flushed);
  }
}

int SendPosting::post(ibv_send_wr* requests, ibv_send_wr** bad) {
  std::unique_lock lock(qp_.connection.locks.send);
  const bool waits = batch_.open.load(std::memory_order_relaxed);
  int error = (waits && !await_batch(lock)) || !state_allows_posts() ? EINVAL : 0;
  const WorkBuilder::Abilities able = abilities();
  const std::uint64_t first = sends_.tail();
  ibv_send_wr* request = requests;
  for (; request != nullptr && error == 0; request = request->next) {
    const std::uint64_t sequence = sends_.tail();
    error = sends_.has_room(sequence) || make_room(sequence) ? builder_.build(sequence, *request, able) : ENOMEM;
    if (error != 0) break;
    if (too_late()) {
      push_prepared(1);
    } else {
      sends_.push();
    }
  }
  if (error != 0 && bad != nullptr) *bad = request;
  send_what_is_posted(first, lock);
  return error;
}

// Whether what has been posted from `first` on is sent now, or waits for the posts behind it. There must be a stream.
SendScheduler::PostDecision SendPosting::decide(std::uint64_t first) {
  const std::uint64_t end = sends_.tail();
  Connection& connection = qp_.connection;
  SendScheduler::PostConditions conditions;
  conditions.most_octets = connection.octets_in_one_send();
  SendScheduler::Post post{static_cast<unsigned>(end - first), 0, qp_.send_cq.taken()};
  for (std::uint64_t i = std::max(first, sends_.head()); i < end && post.octets < conditions.most_octets; ++i) {
    post.octets += sends_.at(i).length;
  }
  const Engine& engine = qp_.context->engine();
  conditions.running = qp_.connection.runs();
  conditions.socket_full = connection.full();
  conditions.queue_full = sends_.full();
  conditions.awaits_event = engine.activity().event_awaited();
  conditions.remote_rule = connection.transmitter().completion() == rdmap::Completion::remote;
  conditions.queued = sends_.size();
  return connection.scheduler().posted(post, conditions, [&engine] {
    return SendScheduler::PostTime{raw_clock(), engine.activity().last_here()};
  });
}

// Releases the lock.
void SendPosting::send_or_defer(std::uint64_t first, std::unique_lock<SectionMutex>& lock) {
  using Decision = SendScheduler::PostDecision;
  if (qp_.retries()) start_retry_timers();
  if (!qp_.connection.carries_work()) return carry_out_local(lock);
  qp_.connection.note_post();
  Engine& engine = qp_.context->engine();
  SendScheduler& scheduler = qp_.connection.scheduler();
  const Decision decision = decide(first);
  if (decision == Decision::defer || decision == Decision::defer_first) {
    const std::uint64_t now = scheduler.last_post();
    qp_.connection.signals.poster.store(pthread_self(), std::memory_order_relaxed);
    qp_.connection.publish_deferred();
    lock.unlock();
    if (decision == Decision::defer_first) engine.watch_posts();
    if (engine.note_post(now)) note_return_to_program();
    return;
  }
  const bool looks = decision == Decision::send_and_look;
  if (looks) engine.begin_posting();
  qp_.connection.send(probe_policy());
  std::uint64_t now = 0;
  if (decision != Decision::send) {
    now = raw_clock();
    scheduler.resume(now);
  }
  lock.unlock();
  if (looks && engine.end_posting(now)) note_return_to_program();
}

void SendPosting::carry_out_local() {
  std::unique_lock lock(qp_.connection.locks.send);
  if (!qp_.connection.carries_work()) carry_out_local(lock);
}

// There is no stream yet, or its peer has left. Local work is carried out all the same, once it is the oldest. Releases
// the lock.
void SendPosting::carry_out_local(std::unique_lock<SectionMutex>& lock) {
  const ibv_qp_state state = qp_.state.load();
  if ((state != IBV_QPS_RTS && state != IBV_QPS_RTR) || queues_.carry_out_local()) return lock.unlock();
  const std::uint64_t culprit = sends_.head();
  lock.unlock();
  const std::lock_guard receive_lock(qp_.connection.locks.receive);
  {
    const std::lock_guard send_lock(qp_.connection.locks.send);
    // A stream that has come meanwhile fails it.
    if (qp_.connection.carries_work() || sends_.empty() || sends_.head() != culprit) return;
    qp_.state = IBV_QPS_ERR;
    queues_.flush_sends(culprit, sends_.at(culprit).status);
  }
  queues_.flush_receives();
}

// Work that is posted cannot be taken back: if there is no memory to send it, its stream ends.
void SendPosting::send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept {
  try {
    send_or_defer(first, lock);
  } catch (const std::exception&) {
    if (lock.owns_lock()) lock.unlock();
    qp_.no_memory();
  }
}

// The call that posted has also looked at what has arrived. This time is not a pause of the program.
void SendPosting::note_return_to_program() {
  const std::lock_guard lock(qp_.connection.locks.send);
  qp_.connection.note_return_to_program(raw_clock());
}

// Waits until no other thread has a batch open. False if the calling thread has one open. Releases the lock while it
// waits.
bool SendPosting::await_batch(std::unique_lock<SectionMutex>& lock) {
  while (batch_.open.load(std::memory_order_relaxed)) {
    if (pthread_equal(batch_.thread, pthread_self()) != 0) return false;
    lock.unlock();
    batch_.open.wait(true);
    lock.lock();
  }
  return true;
}

void SendPosting::begin_batch() {
  std::unique_lock lock(qp_.connection.locks.send);
  if (!await_batch(lock)) {
    batch_.error = EINVAL;
    return;
  }
  batch_.open.store(true, std::memory_order_relaxed);
  batch_.thread = pthread_self();
  batch_.error = state_allows_posts() ? 0 : EINVAL;
  batch_.size = 0;
  batch_.abilities = abilities();
  batch_.extension = {};
}

void SendPosting::add(const ibv_send_wr& request) {
  const Extension extension = std::exchange(batch_.extension, {});
  if (batch_.error != 0) return;
  const std::uint64_t sequence = sends_.tail() + batch_.size;
  if (!sends_.has_room(sequence)) {
    const std::lock_guard lock(qp_.connection.locks.send);
    if (!make_room(sequence)) batch_.error = ENOMEM;
  }
  if (batch_.error == 0) {
    const ReadSection section;
    batch_.error = builder_.build(sequence, request, batch_.abilities);
  }
  if (batch_.error == 0 && extension.index() != 0) batch_.error = builder_.extend(sequence, extension);
  if (batch_.error == 0) ++batch_.size;
}

int SendPosting::end_batch() {
  std::unique_lock lock(qp_.connection.locks.send);
  const int error = batch_.error != 0 || state_allows_posts() ? batch_.error : EINVAL;
  const std::uint64_t first = sends_.tail();
  if (error == 0) push_prepared(batch_.size);
  close_batch();
  if (error == 0) send_what_is_posted(first, lock);
  return error;
}

void SendPosting::abort_batch() {
  const std::lock_guard lock(qp_.connection.locks.send);
  close_batch();
}

void SendPosting::close_batch() {
  batch_.open.store(false, std::memory_order_relaxed);
  batch_.open.notify_all();
}

int SendPosting::post_bind(ibv_mw& mw, const ibv_mw_bind& bind) {
  if (mw.type != IBV_MW_TYPE_1) return EINVAL;
  std::unique_lock lock(qp_.connection.locks.send);
  if (!await_batch(lock) || !state_allows_posts()) return EINVAL;
  const std::uint64_t sequence = sends_.tail();
  if (!make_room(sequence)) return ENOMEM;
  const auto rkey = static_cast<std::uint32_t>(stag_table().next_key(static_cast<ddp::Stag>(mw.rkey)));
  const int error = builder_.build_bind(sequence, bind.wr_id, bind.send_flags, mw, rkey, bind.bind_info);
  if (error != 0) return error;
  push_prepared(1);
  if (qp_.retries()) start_retry_timers();
  if (!qp_.connection.carries_work()) {
    carry_out_local(lock);
  } else {
    qp_.connection.send();
  }
  return 0;
}

SendScheduler::ProbePolicy SendPosting::probe_policy() const {
  return SendScheduler::posters_probe_policy(qp_.context->engine().program(), !qp_.send_cq.empty());
}

}  // namespace uiw::provider
