// SPDX-License-Identifier: MIT
// What the threads of a program do with a context: they poll without finding a completion, post, or wait for an event.
// From this the engine decides which thread sends and receives, and SendScheduler decides when something is sent.
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
  // A post also reads what has arrived if no thread of the program has done so for this time.
  static constexpr std::uint64_t kPostingNs = 50'000;
  // A program that has posted, or polled in vain, within this time counts as polling (is_active()).
  static constexpr std::uint64_t kPollingNs = 20'000;

  // A thread of the program calls these before and after it posts, or yields its processor between two polls.
  void enter() { inside_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { inside_.fetch_sub(1, std::memory_order_relaxed); }
  // The thread that holds Engine::drive_mutex_ calls these before and after it sends and receives for the context.
  void begin_driving() { driving_.store(true, std::memory_order_relaxed); }
  void end_driving() { driving_.store(false, std::memory_order_relaxed); }

  // The calling thread has looked for octets that have arrived, or has left that to another thread that holds
  // Engine::drive_mutex_. `polls`: true in a poll, false at a post.
  void note_look(std::uint64_t now, bool polls) {
    note(now);
    last_look_.store(now, std::memory_order_relaxed);
    if (polls) note_poll();
  }
  // As note_look() in a poll, but does not store the time, since reading the clock for each poll would take too long.
  void note_poll() {
    if (posting_.load(std::memory_order_relaxed)) posting_.store(false, std::memory_order_relaxed);
  }
  // The calling thread has posted. Returns true if the last note_look() was at least kPostingNs ago.
  bool note_post(std::uint64_t now) {
    note(now);
    posting_.store(true, std::memory_order_relaxed);
    return now >= last_look_.load(std::memory_order_relaxed) + kPostingNs;
  }
  // After this, is_active() and last_here() disregard all earlier calls of note_look() and note_post().
  void forget() { last_.store(0, std::memory_order_relaxed); }

  // When the calling thread was last active; 0 if another thread has been active since.
  std::uint64_t last_here() const {
    const bool here = pthread_equal(thread_.load(std::memory_order_relaxed), pthread_self()) != 0;
    return here ? last_.load(std::memory_order_relaxed) : 0;
  }
  // Whether the program is active now, or was active less than `within` before `now`. A program that has asked for an
  // event that is not given yet counts as active only if a waiting thread sends and receives itself (Waiters).
  bool is_active(std::uint64_t now, std::uint64_t within) const {
    if (waiters_.drive(now)) return true;
    if (event_awaited()) return false;
    // `last_` may be later than `now`, since other threads store it. So a difference of the two could wrap around.
    const bool inside = inside_.load(std::memory_order_relaxed) > 0 || driving_.load(std::memory_order_relaxed);
    return inside || now < last_.load(std::memory_order_relaxed) + within;
  }
  // Whether the program posted, and did not poll, when it was active last.
  bool posts() const { return posting_.load(std::memory_order_relaxed); }

  // event_asked_for(): the program has called ibv_req_notify_cq(). event_given(): the completion queue has given the
  // event. event_given() may be called before the matching event_asked_for().
  void event_asked_for() { events_awaited_.fetch_add(1); }
  void event_given() { events_awaited_.fetch_sub(1, std::memory_order_relaxed); }
  // Whether a completion queue has yet to give an event. event_awaited_in_order() is sequentially consistent: if one
  // thread stores X and then calls event_awaited_in_order(), and another calls event_asked_for() and then loads X, at
  // least one of them sees the other's write.
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
  std::atomic<pthread_t> thread_{};  // the thread that has stored `last_`
  std::atomic<std::uint64_t> last_look_{0};
  std::atomic<int> events_awaited_{0};  // events asked for and not given; below 0 if event_given() came first
  std::atomic<unsigned> inside_{0};
  std::atomic<bool> driving_{false};
  std::atomic<bool> posting_{false};
  Waiters waiters_;
};

}  // namespace uiw::provider
