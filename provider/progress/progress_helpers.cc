// SPDX-License-Identifier: MIT
#include "provider/progress/progress_helpers.h"

#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/thread.h"
#include "provider/progress/clock.h"
#include "provider/progress/event_turns.h"
#include "provider/progress/io_scratch.h"

namespace uiw::provider {

void ProgressHelpers::call() {
  const std::lock_guard lock(mutex_);
  if (stop_ || helping() >= most_) return;
  if (helping() + 1 > threads_.size()) {
    if (skip_ > 0) {
      --skip_;
      return;
    }
    // A thread that cannot get its buffers is not started, since it could not send and receive without them.
    std::unique_ptr<IoScratch> scratch = make_io_scratch();
    std::thread thread;
    bool made = scratch != nullptr;
    try {
      threads_.reserve(threads_.size() + 1);
      made = made && start_service_thread(thread, "uiw-progress", [this, own = scratch.get()] {
               use_io_scratch(std::unique_ptr<IoScratch>(own));
               run();
             });
    } catch (const std::bad_alloc&) {
      made = false;
    }
    if (!made) {
      skip_ = pause_;
      pause_ = std::min(2 * pause_, kMostSkipped);
      return;
    }
    pause_ = 1;
    static_cast<void>(scratch.release());
    threads_.push_back(std::move(thread));
  }
  ++helping_;
  ++calls_;
  called_.notify_one();
}

void ProgressHelpers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    called_.wait(lock, [this] { return calls_ > 0 || stop_; });
    if (stop_) return;
    --calls_;
    lock.unlock();
    help();
    lock.lock();
    --helping_;
  }
}

// Takes one event at a time, so that other threads find the other events. A wake-up for the thread "uiw-progress" is
// not read: it stays in the epoll set until that thread takes it.
void ProgressHelpers::help() {
  constexpr int kPatienceMs = 1;
  constexpr unsigned kMostInVain = 16;  // events in a row for queue pairs that other threads serve
  EventTurns turns(find_);
  unsigned in_vain = 0;
  for (bool leaves = false; !leaves || turns.repeated() > 0;) {
    epoll_event event;
    int count = 0;
    if (!leaves && !driven_.rung()) {
      const DrivenList::Asleep asleep(driven_);
      count = sets_.wait(&event, 1, turns.repeated() > 0 || driven_.rung() ? 0 : kPatienceMs);
    }
    turns.repeat();
    if (count == 1 && event.data.u64 == kDoorbellTag) driven_.answer_doorbell();
    bool came = count == 1 && is_queue_pair(event.data.u64);
    bool drove = came && turns.event(static_cast<std::uint32_t>(event.data.u64), event.events);
    if (!came && !leaves) {
      const auto answer = [&](const Driven& qp) { drove = turns.event(qp.number(), 0); };
      came = driven_.visit_rung(1, answer) > 0;
    }
    if (drove) turns_.fetch_add(1, std::memory_order_relaxed);
    in_vain = drove ? 0 : in_vain + 1;
    const bool nothing = (!came || in_vain >= kMostInVain) && turns.repeated() == 0;
    leaves = leaves || nothing || stop_.load() || activity_.is_active(raw_clock(), Activity::kPollingNs);
  }
  driven_.pass_doorbell_on();
}

void ProgressHelpers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    called_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ProgressHelpers::after_fork_in_child() {
  new (&mutex_) std::mutex;
  new (&called_) std::condition_variable;
  new (&threads_) std::vector<std::thread>;  // threads of the parent can be neither joined nor detached here
  calls_ = 0;
  helping_ = 0;
}

}  // namespace uiw::provider
