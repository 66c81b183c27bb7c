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
  // A program that posts looks at what has arrived once this time has passed since the last look.
  static constexpr std::uint64_t kPostingNs = 50'000;
  // The program polls if it was active this recently.
  static constexpr std::uint64_t kPollingNs = 20'000;

  // Between these two calls a thread of the program posts, or has yielded its processor and then polls on.
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
  // The program polls. The clock need not be read for each poll: see note_look().
  void note_poll() {
    if (posting_.load(std::memory_order_relaxed)) posting_.store(false, std::memory_order_relaxed);
  }
  // The calling thread has posted. True if the last look was long ago.
  bool note_post(std::uint64_t now) {
    note(now);
    posting_.store(true, std::memory_order_relaxed);
    return now >= last_look_.load(std::memory_order_relaxed) + kPostingNs;
  }
  // The program counts as inactive until the next note.
  void forget() { last_.store(0, std::memory_order_relaxed); }

  // When the calling thread was active last; 0 if another thread was the last one that was active.
  std::uint64_t last_here() const {
    const bool here = pthread_equal(thread_.load(std::memory_order_relaxed), pthread_self()) != 0;
    return here ? last_.load(std::memory_order_relaxed) : 0;
  }
  // Whether the program is active now, or was active less than `within` before `now`. While it waits for an event it is
  // active only if it drives meanwhile.
  bool is_active(std::uint64_t now, std::uint64_t within) const {
    if (waiters_.drive(now)) return true;
    if (event_awaited()) return false;
    // Another thread may have stored a time later than `now`, so this adds and does not subtract.
    const bool inside = inside_.load(std::memory_order_relaxed) > 0 || driving_.load(std::memory_order_relaxed);
    return inside || now < last_.load(std::memory_order_relaxed) + within;
  }
  // Whether the program posted, and did not poll, when it was active last.
  bool posts() const { return posting_.load(std::memory_order_relaxed); }

  // A completion queue owes the program an event from the first call to the second. The second may come first.
  void event_asked_for() { events_awaited_.fetch_add(1); }
  void event_given() { events_awaited_.fetch_sub(1, std::memory_order_relaxed); }
  // The first function is relaxed, the second sequentially consistent: if a thread stores something and then calls it,
  // and another calls event_asked_for() and then loads that, one of the two sees the other.
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
  std::atomic<int> events_awaited_{0};  // number of completion queues; below 0 if an event is given first
  std::atomic<unsigned> inside_{0};
  std::atomic<bool> driving_{false};
  std::atomic<bool> posting_{false};
  Waiters waiters_;
};

}  // namespace uiw::provider
