// SPDX-License-Identifier: MIT
// What the threads of a program do with a context: they poll in vain, post, or wait for an event. By that the engine
// decides who moves bytes, and a stream when it sends.
//
// Any thread may call any function; times are monotonic nanoseconds (clock.h). Not told of are polls that found
// completions.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace uiw::provider {

class Activity {
 public:
  // So long after a look at what has come a program that posts takes another one.
  static constexpr std::uint64_t kPostingNs = 50'000;

  // A thread of the program drives, or posts, between these two.
  void enter() { inside_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { inside_.fetch_sub(1, std::memory_order_relaxed); }

  // The calling thread has looked at what has come: because it polls, or in between posts.
  void note_look(std::uint64_t now, bool polls) {
    note(now);
    last_look_.store(now, std::memory_order_relaxed);
    if (polls) posting_.store(false, std::memory_order_relaxed);
  }
  // The calling thread has posted. True if the last look was long ago.
  bool note_post(std::uint64_t now) {
    note(now);
    posting_.store(true, std::memory_order_relaxed);
    return now >= last_look_.load(std::memory_order_relaxed) + kPostingNs;
  }
  // Whatever the program has done, it does it no longer.
  void forget() { last_.store(0, std::memory_order_relaxed); }

  // When the calling thread was active last; 0 where another one was the last.
  std::uint64_t last_here() const {
    const bool here = pthread_equal(thread_.load(std::memory_order_relaxed), pthread_self()) != 0;
    return here ? last_.load(std::memory_order_relaxed) : 0;
  }
  // Was it active at `now`, or so short a time before? Not where it waits for an event.
  bool is_active(std::uint64_t now, std::uint64_t within) const {
    if (event_awaited()) return false;
    // Another thread may be ahead of this one's clock.
    return inside_.load(std::memory_order_relaxed) > 0 || now < last_.load(std::memory_order_relaxed) + within;
  }
  // When it was active last, did it post and not poll?
  bool posts() const { return posting_.load(std::memory_order_relaxed); }

  // A completion queue owes the program an event, until that is given; it may be given first.
  void event_asked_for() { events_awaited_.fetch_add(1); }
  void event_given() { events_awaited_.fetch_sub(1, std::memory_order_relaxed); }
  // As this thread happens to see it; and for who has stored before what the one that asks looks at afterwards.
  bool event_awaited() const { return events_awaited_.load(std::memory_order_relaxed) > 0; }
  bool event_awaited_in_order() const { return events_awaited_.load() > 0; }

  // In the child of a fork the other threads are not there.
  void after_fork_in_child() { inside_ = 0; }

 private:
  void note(std::uint64_t now) {
    last_.store(now, std::memory_order_relaxed);
    thread_.store(pthread_self(), std::memory_order_relaxed);
  }

  alignas(64) std::atomic<std::uint64_t> last_{0};
  std::atomic<pthread_t> thread_{};  // whose that was
  std::atomic<std::uint64_t> last_look_{0};
  std::atomic<int> events_awaited_{0};  // completion queues; below 0 where the event comes first
  std::atomic<unsigned> inside_{0};
  std::atomic<bool> posting_{false};
};

}  // namespace uiw::provider
