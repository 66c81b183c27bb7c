// SPDX-License-Identifier: MIT
// What the threads of a program do with a context: they poll in vain, post, or wait for an event. From this the engine
// decides which thread drives, and SendScheduler when something is sent.
//
// Any thread may call any function. Times are monotonic nanoseconds (clock.h). Polls that find completions are not
// recorded.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "provider/progress/waiters.h"

namespace uiw::provider {

class Activity {
 public:
  // A post looks at what has arrived if the last look is at least this long ago.
  static constexpr std::uint64_t kPostingNs = 50'000;
  // A program that was active within this time counts as polling.
  static constexpr std::uint64_t kPollingNs = 20'000;

  // Between these two calls a thread of the program posts, or has yielded its processor in the midst of polling.
  void enter() { inside_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { inside_.fetch_sub(1, std::memory_order_relaxed); }
  // Between these two calls the thread that holds the engine's lock drives.
  void begin_driving() { driving_.store(true, std::memory_order_relaxed); }
  void end_driving() { driving_.store(false, std::memory_order_relaxed); }

  // The calling thread has looked at what has arrived, in a poll or between posts.
  void note_look(std::uint64_t now, bool polls) {
    note(now);
    last_look_.store(now, std::memory_order_relaxed);
    if (polls) note_poll();
  }
  // Notes a poll without its time, since reading the clock for each poll would take too long. See note_look().
  void note_poll() {
    if (posting_.load(std::memory_order_relaxed)) posting_.store(false, std::memory_order_relaxed);
  }
  // The calling thread has posted. True if the last look was long ago.
  bool note_post(std::uint64_t now) {
    note(now);
    posting_.store(true, std::memory_order_relaxed);
    return now >= last_look_.load(std::memory_order_relaxed) + kPostingNs;
  }
  // The program counts as inactive until the next note_look() or note_post().
  void forget() { last_.store(0, std::memory_order_relaxed); }

  // When the calling thread was last active; 0 if another thread has been active since.
  std::uint64_t last_here() const {
    const bool here = pthread_equal(thread_.load(std::memory_order_relaxed), pthread_self()) != 0;
    return here ? last_.load(std::memory_order_relaxed) : 0;
  }
  // Whether the program is active now, or was active less than `within` before `now`. A program that waits for an event
  // counts as active only if the waiting thread drives.
  bool is_active(std::uint64_t now, std::uint64_t within) const {
    if (waiters_.drive(now)) return true;
    if (event_awaited()) return false;
    // Another thread may have stored a time later than `now`, so this adds and does not subtract.
    const bool inside = inside_.load(std::memory_order_relaxed) > 0 || driving_.load(std::memory_order_relaxed);
    return inside || now < last_.load(std::memory_order_relaxed) + within;
  }
  // Whether the program posted, and did not poll, when it was active last.
  bool posts() const { return posting_.load(std::memory_order_relaxed); }

  // The program has asked a completion queue for an event; the queue has given it. The two calls may come in any order.
  void event_asked_for() { events_awaited_.fetch_add(1); }
  void event_given() { events_awaited_.fetch_sub(1, std::memory_order_relaxed); }
  // Whether a completion queue owes an event. event_awaited_in_order() is sequentially consistent: if one thread stores
  // X and then calls it, and another calls event_asked_for() and then loads X, at least one sees the other's write.
  bool event_awaited() const { return events_awaited_.load(std::memory_order_relaxed) > 0; }
  bool event_awaited_in_order() const { return events_awaited_.load() > 0; }

  Waiters& waiters() { return waiters_; }
  const Waiters& waiters() const { return waiters_; }

  // In the child of a fork the parent's other threads do not exist.
  void after_fork_in_child() {
    inside_ = 0, driving_ = false;
    waiters_.after_fork_in_child();
  }

 private:
  void note(std::uint64_t now) {
    last_.store(now, std::memory_order_relaxed);
    thread_.store(pthread_self(), std::memory_order_relaxed);
  }

  alignas(64) std::atomic<std::uint64_t> last_{0};
  std::atomic<pthread_t> thread_{};  // the thread that was active then
  std::atomic<std::uint64_t> last_look_{0};
  std::atomic<int> events_awaited_{0};  // completion queues that owe an event; below 0 if one is given first
  std::atomic<unsigned> inside_{0};
  std::atomic<bool> driving_{false};
  std::atomic<bool> posting_{false};
  Waiters waiters_;
};

}  // namespace uiw::provider
