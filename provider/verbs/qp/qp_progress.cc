// SPDX-License-Identifier: MIT
// A queue pair's turns: who drives its stream, and when what waits is sent.
#include <exception>
#include <mutex>
#include <utility>

#include "provider/memory/grace_period.h"
#include "provider/progress/clock.h"
#include "provider/verbs/context.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::provider {

namespace {

// While an event is dealt with, a completion queue tells its program of nothing: it shall find the answers to the peer ahead
// of what it sends next.
class SuppressedNotifications {
 public:
  explicit SuppressedNotifications(Cq* cq) : cq_(cq) {
    if (cq_ != nullptr) cq_->suppress_notifications();
  }
  ~SuppressedNotifications() {
    if (cq_ != nullptr) cq_->release_notifications();
  }
  SuppressedNotifications(const SuppressedNotifications&) = delete;
  SuppressedNotifications& operator=(const SuppressedNotifications&) = delete;

 private:
  Cq* const cq_;
};

}  // namespace

bool Qp::progress(Driver driver) noexcept {
  try {
    return make_progress(driver);
  } catch (const std::exception&) {
    no_memory();
    return true;
  }
}

bool Qp::make_progress(Driver driver) {
  const ReadSection section;
  const SuppressedNotifications suppressed(driver == Driver::event ? receive_cq_ : nullptr);
  bool work = false;
  {
    std::unique_lock lock(locks_.receive, std::defer_lock);
    if (driver == Driver::program) {
      if (!lock.try_lock()) return true;  // somebody is at it
    } else {
      lock.lock();
    }
    if (stream_ == nullptr || !stream_->receive_turn(driver, work)) return work;
  }
  const std::lock_guard lock(locks_.send);
  if (stream_ != nullptr) stream_->sender().turn(driver);
  return work;
}

void Qp::transmit() {
  if (stream_ != nullptr) stream_->sender().send();
}

// One that has completions to poll for does not wait for those of what it posts. (Deferred sends are looked for among few.)
rdmap::Transmitter::ProbePolicy Qp::probe_policy_of_program() const {
  using ProbePolicy = rdmap::Transmitter::ProbePolicy;
  const ProbePolicy policy = stream_->sender().probe_policy(Driver::program);
  const bool waits = send_cq_->empty() || context_->engine().drives_many();
  return policy == ProbePolicy::if_none_due && !waits ? ProbePolicy::by_stride : policy;
}

// A thread that only polls leaves the sending to the one that posts, as long as that is at it.
bool Qp::awaited_elsewhere() const {
  constexpr std::uint64_t kAtIt = 5'000;
  const std::uint64_t since = signals_.posts_deferred_since.load();
  if (since == 0 || pthread_equal(signals_.poster.load(std::memory_order_relaxed), pthread_self()) != 0) return false;
  return raw_clock() < since + kAtIt;
}

void Qp::send_deferred() {
  if (awaited_elsewhere()) return;
  const std::unique_lock lock(locks_.send, std::try_to_lock);
  if (lock.owns_lock() && stream_ != nullptr) stream_->sender().send_deferred();
}

void Qp::send_posts() {
  if (awaited_elsewhere()) return;
  const std::unique_lock lock(locks_.send, std::try_to_lock);
  if (!lock.owns_lock() || stream_ == nullptr || !stream_->sender().coalescing().waiting()) return;
  stream_->sender().send(probe_policy_of_program());
}

// What comes next is the end, of the queue pair or of its stream.
void Qp::send_waiting() {
  if (!posts_deferred()) return;
  const std::lock_guard lock(locks_.send);
  if (stream_ != nullptr) stream_->sender().send_waiting();
}

void Qp::send_overdue() {
  const std::unique_lock lock(locks_.send, std::try_to_lock);
  if (lock.owns_lock() && stream_ != nullptr) stream_->sender().send_overdue();
}

void Qp::sent_all() {
  if (manual_ && state() == IBV_QPS_SQD && drained() && std::exchange(tell_when_drained_, false)) {
    report(IBV_EVENT_SQ_DRAINED);
  }
}

void Qp::sent_last() {
  if (std::exchange(tell_when_drained_, false)) report(IBV_EVENT_SQ_DRAINED);
}

}  // namespace uiw::provider
