// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/send_posting.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "provider/connect/manual/pairs.h"
#include "provider/memory/memory.h"
#include "provider/progress/clock.h"
#include "provider/verbs/context.h"

namespace uiw::provider {

namespace {
constexpr std::uint32_t kStream = 4;  // entries in the queue: the program is likely to poll soon
}  // namespace

bool SendPosting::posts() const {
  const ibv_qp_state state = qp_.state.load();
  // An RNIC has no RTR: its queue pair sends as soon as it has a stream (Verbs draft section 6.2), and programs that
  // take the device for one do (ib_send_bw: the credits of its receiver).
  const bool rnic = qp_.context->device().transport == Transport::iwarp;
  const bool sends = state == IBV_QPS_RTS || (state == IBV_QPS_RTR && qp_.manual && rnic);
  return sends || state == IBV_QPS_SQD || state == IBV_QPS_ERR;
}

WorkBuilder::Abilities SendPosting::abilities() const {
  if (qp_.stream == nullptr) return {};
  return {qp_.stream->agreed().agreement.send_with_immediate, qp_.attributes.max_rd_atomic > 0};
}

// For the entry `sequence`. What waits to be sent with it makes room where that is in the way, and so does unsignaled
// work that is sent.
bool SendPosting::make_room(std::uint64_t sequence) {
  if (sends_.has_room(sequence)) return true;
  if (qp_.stream == nullptr) return false;
  if (qp_.stream->sender().coalescing().waiting()) qp_.stream->sender().send(probe_policy());
  if (!sends_.has_room(sequence)) qp_.stream->sender().transmitter().release_unsignaled();
  return sends_.has_room(sequence);
}

// Where an error of the sender is yet to end the stream, the queue is flushed then, in order.
bool SendPosting::too_late() const {
  const ibv_qp_state state = qp_.state.load();
  if (state == IBV_QPS_ERR) return true;
  const bool running = qp_.runs(Stream::Phase::running);
  if (qp_.stream != nullptr && qp_.stream->sender().fin_sent() && !running) return true;
  // Running still in SQD: another thread is at that step. What is posted now stands behind earlier work, and goes out
  // with it.
  return state == IBV_QPS_SQD && !running && !qp_.runs(Stream::Phase::closing) && !qp_.manual;
}

// What has been filled in behind the tail is posted, or completes as flushed where it is too late for anything else.
void SendPosting::push_prepared(std::uint32_t count) {
  if (!too_late()) return sends_.push(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    queues_.send_complete(sends_.at(sends_.tail() + i), rdmap::Status::flushed);
  }
}

int SendPosting::post(ibv_send_wr* requests, ibv_send_wr** bad) {
  std::unique_lock lock(qp_.locks.send);
  const bool waits = batch_.open.load(std::memory_order_relaxed);
  int error = (waits && !await_batch(lock)) || !posts() ? EINVAL : 0;
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

// May what has been posted from `first` on wait for the posts behind it? There is a stream.
bool SendPosting::coalesces(std::uint64_t first) {
  const std::uint64_t end = sends_.tail();
  std::size_t octets = 0;
  for (std::uint64_t i = std::max(first, sends_.head()); i < end && octets < Coalescing::kMostOctets; ++i) {
    octets += sends_.at(i).length;
  }
  Coalescing& coalescing = qp_.stream->sender().coalescing();
  if (!coalescing.posted(static_cast<unsigned>(end - first), octets, qp_.send_cq.taken())) return false;
  if (!qp_.stream->runs() || qp_.stream->sender().full() || sends_.full()) return false;
  if (qp_.context->engine().activity().event_awaited() || qp_.context->engine().drives_many()) return false;
  return coalescing.may_wait(raw_clock(), qp_.context->engine().activity().last_here());
}

// Leaves the lock open.
void SendPosting::send_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) {
  if (qp_.manual.load(std::memory_order_relaxed)) manual::start_retry_timers();
  if (qp_.stream == nullptr) return lock.unlock();
  qp_.stream->receiver().note_post();
  Coalescing& coalescing = qp_.stream->sender().coalescing();
  const bool waited = coalescing.waiting();
  if (coalesces(first)) {
    const std::uint64_t now = coalescing.last_post();
    qp_.signals.poster.store(pthread_self(), std::memory_order_relaxed);
    qp_.stream->sender().note_deferred();
    lock.unlock();
    if (!waited) qp_.context->engine().watch_posts();
    if (qp_.context->engine().note_post(now)) resume_posting();
    return;
  }
  // With a queue of work whose completions come from the peer, it polls soon; with less it may be waiting for memory.
  const bool remote = qp_.stream->sender().transmitter().completion() == rdmap::Completion::remote;
  const bool streams = coalescing.without_pause() || (remote && sends_.size() >= kStream);
  if (streams) qp_.context->engine().begin_posting();
  qp_.stream->sender().send(probe_policy());
  std::uint64_t now = 0;
  if (streams || coalescing.in_burst()) {
    now = raw_clock();
    coalescing.resume(now);
  }
  lock.unlock();
  if (streams && qp_.context->engine().end_posting(now)) resume_posting();
}

// Work that is posted already is not taken back: where it cannot be sent for lack of memory, its stream ends.
void SendPosting::send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept {
  try {
    send_posted(first, lock);
  } catch (const std::exception&) {
    if (lock.owns_lock()) lock.unlock();
    qp_.no_memory();
  }
}

// What the engine has done since is not the program's time.
void SendPosting::resume_posting() {
  const std::lock_guard lock(qp_.locks.send);
  if (qp_.stream != nullptr) qp_.stream->sender().coalescing().resume(raw_clock());
}

// Until no other thread has a batch open. False where this one has.
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
  std::unique_lock lock(qp_.locks.send);
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

void SendPosting::add(const ibv_send_wr& request) {
  const Extension extension = std::exchange(batch_.extension, {});
  if (batch_.error != 0) return;
  const std::uint64_t sequence = sends_.tail() + batch_.size;
  if (!sends_.has_room(sequence)) {
    const std::lock_guard lock(qp_.locks.send);
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
  std::unique_lock lock(qp_.locks.send);
  const int error = batch_.error != 0 || posts() ? batch_.error : EINVAL;
  const std::uint64_t first = sends_.tail();
  if (error == 0) push_prepared(batch_.size);
  close_batch();
  if (error == 0) send_what_is_posted(first, lock);
  return error;
}

void SendPosting::abort_batch() {
  const std::lock_guard lock(qp_.locks.send);
  close_batch();
}

void SendPosting::close_batch() {
  batch_.open.store(false, std::memory_order_relaxed);
  batch_.open.notify_all();
}

int SendPosting::post_bind(ibv_mw& mw, const ibv_mw_bind& bind) {
  if (mw.type != IBV_MW_TYPE_1) return EINVAL;
  std::unique_lock lock(qp_.locks.send);
  if (!await_batch(lock) || !posts()) return EINVAL;
  const std::uint64_t sequence = sends_.tail();
  if (!make_room(sequence)) return ENOMEM;
  const auto rkey = static_cast<std::uint32_t>(stag_table().next_key(static_cast<ddp::Stag>(mw.rkey)));
  const int error = builder_.build_bind(sequence, bind.wr_id, bind.send_flags, mw, rkey, bind.bind_info);
  if (error != 0) return error;
  push_prepared(1);
  mw.rkey = rkey;
  if (qp_.manual) manual::start_retry_timers();
  qp_.transmit();
  return 0;
}

// One that has completions to poll for does not wait for those of what it posts. (Deferred sends are looked for among
// few.)
rdmap::Transmitter::ProbePolicy SendPosting::probe_policy() const {
  using ProbePolicy = rdmap::Transmitter::ProbePolicy;
  const ProbePolicy policy = qp_.stream->sender().probe_policy(Driver::poll);
  const bool waits = qp_.send_cq.empty() || qp_.context->engine().drives_many();
  return policy == ProbePolicy::if_none_due && !waits ? ProbePolicy::by_stride : policy;
}

// A thread that only polls leaves the sending to the one that posts, as long as that is at it.
bool SendPosting::awaited_elsewhere() const {
  constexpr std::uint64_t kAtIt = 5'000;
  const std::uint64_t since = qp_.signals.posts_deferred_since.load();
  if (since == 0 || pthread_equal(qp_.signals.poster.load(std::memory_order_relaxed), pthread_self()) != 0)
    return false;
  return raw_clock() < since + kAtIt;
}

void SendPosting::send_deferred() {
  if (awaited_elsewhere()) return;
  const std::unique_lock lock(qp_.locks.send, std::try_to_lock);
  if (lock.owns_lock() && qp_.stream != nullptr) qp_.stream->sender().send_deferred();
}

void SendPosting::send_posts() {
  if (awaited_elsewhere()) return;
  const std::unique_lock lock(qp_.locks.send, std::try_to_lock);
  if (!lock.owns_lock() || qp_.stream == nullptr || !qp_.stream->sender().coalescing().waiting()) return;
  qp_.stream->sender().send(probe_policy());
}

void SendPosting::send_waiting() {
  if (!posts_deferred()) return;
  const std::lock_guard lock(qp_.locks.send);
  if (qp_.stream != nullptr) qp_.stream->sender().send_waiting();
}

void SendPosting::send_overdue() {
  const std::unique_lock lock(qp_.locks.send, std::try_to_lock);
  if (lock.owns_lock() && qp_.stream != nullptr) qp_.stream->sender().send_overdue();
}

}  // namespace uiw::provider
