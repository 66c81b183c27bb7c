// SPDX-License-Identifier: MIT
// Engine::wait(): a thread of the program waits for an event, and meanwhile sends and receives for its context.
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "base/short_wait.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/progress/signals_blocked.h"

namespace uiw::provider {

namespace {

// Once a wait of the program has lasted longer than this, events do not arrive close together. From then on the thread
// "uiw-progress" sleeps without its timer, and the end of the wait wakes it (LongWait).
constexpr timespec kLongWait = {0, 2'000'000};
constexpr timespec kNoTime = {0, 0};

// A waiting thread that always finds something to send or receive does not sleep in ppoll(), where signals are
// delivered. So one pass of its loop in kSignalStride delivers them.
constexpr unsigned kSignalStride = 16;

// How long a thread may sleep whose deadline is `left` nanoseconds away: kLongWait at most, unless `waits_long`.
timespec sooner(std::uint64_t left, bool waits_long) {
  const auto most = static_cast<std::uint64_t>(kLongWait.tv_nsec);
  const std::uint64_t time = waits_long ? left : std::min(left, most);
  return {static_cast<time_t>(time / 1'000'000'000), static_cast<long>(time % 1'000'000'000)};
}

}  // namespace

Engine::Waited Engine::wait(Awaited& awaited) {
  if (!started_.load()) return Waited::not_here;
  struct Wait {
    explicit Wait(Waiters& all) : waiters(all), drives(all.enter(raw_clock())) {}
    ~Wait() { waiters.leave(drives, raw_clock()); }
    Waiters& waiters;
    const bool drives;
  } wait(activity_.waiters());
  if (wait.drives) return wait_and_drive(awaited);
  unpark();
  bool made = false;
  ChannelSets::Set* const set = sets_.open(awaited.channel, made);
  if (made) {
    new_sets_.fetch_or(ChannelSets::bit(awaited.channel));
    wake();
  }
  if (set == nullptr || !sets_.enter(*set)) return wait_beside(awaited, nullptr);
  struct InSet {
    ~InSet() { sets.leave(set); }
    const ChannelSets& sets;
    ChannelSets::Set& set;
  } const in_set{sets_, *set};
  return wait_beside(awaited, set);
}

// Calls turn(left) until the program has what it waits for, or the wait ends otherwise. Each call may sleep for up to
// `left` nanoseconds (kNever: without a limit). `turn` returns how the wait ends, or nothing if it goes on.
template <typename OneTurn>
Engine::Waited Engine::take_turns(Awaited& awaited, const sigset_t* mask, OneTurn turn) {
  for (unsigned turns = 1;; ++turns) {
    if (stop_.load()) return Waited::not_here;
    // The ppoll() in turn() delivers signals only if no descriptor is ready, so this call delivers them from time to
    // time.
    if (turns % kSignalStride == 0 && ::ppoll(nullptr, 0, &kNoTime, mask) < 0) return Waited::interrupted;
    std::uint64_t left = Awaited::kNever;
    if (awaited.deadline != Awaited::kNever) {
      const std::uint64_t now = raw_clock();
      if (now >= awaited.deadline) return Waited::late;
      left = awaited.deadline - now;
    }
    if (const std::optional<Waited> ended = turn(left)) return *ended;
    if (awaited.done()) return Waited::done;
  }
}

// For a thread that waits while other threads wait, too. `set`: the epoll set of its channel, on whose sockets this
// thread sends and receives; null: other threads do so.
Engine::Waited Engine::wait_beside(Awaited& awaited, ChannelSets::Set* set) {
  std::optional<SignalsBlocked> blocked;
  if (set != nullptr) blocked.emplace();
  const sigset_t* const mask = awaited.mask != nullptr || !blocked ? awaited.mask : blocked->before();
  const std::span<pollfd> all = awaited.descriptors;
  if (set != nullptr) send_deferred_at_once();
  bool looks = set != nullptr && set->busy_wait.begin(raw_clock()) && activity_.waiters().are_few();
  const Waited how = take_turns(awaited, mask, [&](std::uint64_t left) -> std::optional<Waited> {
    const timespec patience = looks ? kNoTime : sooner(left, true);
    const bool forever = !looks && left == Awaited::kNever;
    // The preload library recognizes uiw's own call of ppoll() by the first descriptor. Without a set no event of that
    // descriptor is awaited.
    all[0] = {epoll_.load(), 0, 0};
    if (set != nullptr) all[0] = {set->fd.load(), POLLIN, 0};
    const int count = ::ppoll(all.data(), all.size(), forever ? nullptr : &patience, mask);
    if (count < 0) return errno == EINTR ? Waited::interrupted : Waited::not_here;
    if ((all[0].revents & ~POLLIN) != 0) return Waited::not_here;
    if (set != nullptr) awaited.begin_driving();
    if (all[0].revents != 0 && !drive_set(*set)) return Waited::not_here;
    if (set != nullptr) send_deferred_at_once();
    if (looks && count == 0) sched_yield();
    looks = looks && set->busy_wait.again(raw_clock());
    return std::nullopt;
  });
  if (set != nullptr && how == Waited::done) set->busy_wait.end(raw_clock());
  return how;
}

// Sends and receives for the queue pairs of a set that have events. False if the set is gone.
bool Engine::drive_set(ChannelSets::Set& set) {
  const LockGuard lock(set.driving);
  if (set.fd.load() < 0) return false;
  const ReadSection section;
  epoll_event events[kMostReady];
  const int count = sets_.take(set, events, kMostReady);
  drive_events(events, count);
  return count >= 0;
}

Engine::Waited Engine::wait_and_drive(Awaited& awaited) {
  // At the end of a long wait, makes the thread "uiw-progress" use its timer again.
  struct LongWait {
    explicit LongWait(Engine& its) : engine(its) {}
    ~LongWait() {
      if (!engine.waits_long_.exchange(false)) return;
      const std::lock_guard lock(engine.park_mutex_);
      engine.hurry_ = true;
      engine.park_condition_.notify_one();
    }
    Engine& engine;
  } long_wait(*this);
  const SignalsBlocked blocked;
  const sigset_t* const mask = awaited.mask != nullptr ? awaited.mask : blocked.before();
  const std::span<pollfd> all = awaited.descriptors;
  send_deferred_at_once();
  if (!parked_for_waiters_.load()) hand_over();
  bool looks = program_wait_.begin(raw_clock());
  ShortWait others;
  const Waited how = take_turns(awaited, mask, [&](std::uint64_t left) -> std::optional<Waited> {
    const bool waits_long = waits_long_.load(std::memory_order_relaxed);
    all[0] = {epoll_.load(), POLLIN, 0};
    std::optional<DrivenList::Asleep> asleep;
    if (!looks) asleep.emplace(driven_, &waiter_asleep_);
    const bool at_once = looks || driven_.rung(), forever = !at_once && waits_long && left == Awaited::kNever;
    const timespec patience = at_once ? kNoTime : sooner(left, waits_long);
    const int count = ::ppoll(all.data(), all.size(), forever ? nullptr : &patience, mask);
    asleep.reset();
    if (count < 0) return errno == EINTR ? Waited::interrupted : Waited::not_here;
    const bool due = count > (all[0].revents != 0 ? 1 : 0), called = all[0].revents != 0 || driven_.rung();
    if ((all[0].revents & ~POLLIN) != 0) return Waited::not_here;
    if (called) {
      awaited.begin_driving();
      const Turn turn = drive_waiting();
      if (turn == Turn::broken) {
        unpark();
        return Waited::not_here;
      }
      if (turn == Turn::driven) {
        const std::uint64_t now = raw_clock();
        program_wait_.end(now);
        looks = program_wait_.begin(now);
        others = {};
        return std::nullopt;
      }
      // Another thread has to handle what has arrived, and needs the processor.
      if (!due) others.turn();
    } else if (count == 0 && !at_once) {
      waits_long_.store(true);
      // This thread sets `waits_long_` and then loads `deferring_`. A thread that defers sends counts in `deferring_`,
      // then loads `waits_long_`, and wakes "uiw-progress" if that is set (note_deferred()). So at least one of the two
      // threads sees the other's write, and has the deferred sends sent.
      send_deferred_at_once();
      if (deferring_.load() > 0) hand_over();
    }
    if (!looks || due) return std::nullopt;
    sched_yield();
    looks = program_wait_.again(raw_clock());
    return std::nullopt;
  });
  if (how == Waited::done) program_wait_.end(raw_clock());
  return how;
}

void Engine::send_deferred_at_once() {
  if (deferring_.load() == 0) return;
  const ReadSection section;
  send_all_deferred();
}

// Makes the thread "uiw-progress" park (sleep on its timer), since the calling thread sends and receives. If it is
// parked already, it first wakes and looks at all queue pairs. This call waits for none of that, so for a moment both
// threads send and receive.
void Engine::hand_over() {
  if (hand_over_.exchange(true)) return;
  if (parked_.load()) {
    unpark();
  } else {
    wake();
  }
}

// Sends and receives for the queue pairs that have events. Returns driven: some had events; not_now: another thread
// sends and receives, or no queue pair has an event (a wake-up for the thread "uiw-progress" is left to that thread);
// broken: the epoll set is closed.
Engine::Turn Engine::drive_waiting() {
  UniqueLock drive_lock(drive_mutex_, std::defer_lock);
  if (!drive_lock.try_lock()) return Turn::not_now;
  if (epoll_.load() < 0) return Turn::broken;
  activity_.begin_driving();
  bool for_thread = false;
  int count = 0, error = 0;
  {
    const ReadSection section;
    quiet_asks_ = 0;  // makes drive_ready() call epoll_wait(), since the epoll set probably has an event
    count = drive_ready(for_thread);
    if (count < 0) error = errno;
    if (deferring_.load() > 0) send_all_deferred();
  }
  activity_.end_driving();
  if (count < 0 && error != EINTR) return Turn::broken;
  if (for_thread && parked_.load()) hand_over();
  return count > 0 ? Turn::driven : Turn::not_now;
}

}  // namespace uiw::provider
