// SPDX-License-Identifier: MIT
#include "provider/connect/retry_timers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "base/immortal.h"
#include "base/mutex.h"
#include "provider/connect/attachable.h"
#include "provider/connect/numbered.h"
#include "provider/connect/qp_table.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

namespace {

constexpr std::chrono::milliseconds kPeriod{100};

std::atomic<bool> prepared{false}, runs{false};
std::atomic<void (*)()> before_checks{nullptr};

class RetryTimerTask final : public CmLoop::TimedTask {
 public:
  void run() override;
};

// `task` is made by the first prepare_retry_timers(), with `making` locked. It is read without the lock once `prepared`
// is set.
struct Shared {
  Mutex making;
  std::shared_ptr<RetryTimerTask> task;
};
Immortal<Shared> shared;

// Checks the retry timers of all queue pairs. False if none of them has work left to check. Tells each by how much this
// check is late, since the peer has not caused this delay.
bool check_all() {
  using Clock = CmLoop::Clock;
  static Clock::time_point checked;
  const auto now = Clock::now();
  const auto late = std::max<Clock::duration>(now - std::exchange(checked, now) - kPeriod, {});
  if (void (*function)() = before_checks.load(); function != nullptr) function();
  bool any = false;
  for_each_numbered([&any, late](std::uint32_t, Numbered& found) {
    Attachable* const qp = found.attachable();
    if (qp == nullptr) return;
    try {
      any = qp->check_retry_timer(late) || any;
    } catch (const std::exception&) {  // no memory: check again later
      any = true;
    }
  });
  return any;
}

void RetryTimerTask::run() {
  if (!check_all()) {
    runs.store(false);
    // A thread that posts work reads `runs` afterwards, and starts the timer only if it reads false. If it has read
    // true, its work is found here, by the check that follows after `runs` was set to false.
    if (!check_all() || runs.exchange(true)) return;
  }
  CmLoop::instance().after(kPeriod, shared->task);
}

}  // namespace

void prepare_retry_timers() {
  const LockGuard lock(shared->making);
  if (shared->task == nullptr) shared->task = std::make_shared<RetryTimerTask>();
  prepared.store(true, std::memory_order_release);
}

void before_retry_checks(void (*function)()) noexcept { before_checks.store(function); }

void start_retry_timers() noexcept {
  if (!prepared.load(std::memory_order_acquire)) return;  // this process has no connection with a retry timer yet
  if (runs.load(std::memory_order_relaxed) || runs.exchange(true)) return;
  CmLoop::instance().after(kPeriod, shared->task);
}

void forget_retry_timers() {
  new (&shared->task) std::shared_ptr<RetryTimerTask>;
  before_checks.store(nullptr);
  prepared.store(false);
  runs.store(false);
}

}  // namespace uiw::provider
