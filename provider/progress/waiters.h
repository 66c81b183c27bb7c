// SPDX-License-Identifier: MIT
// The threads of a program that wait for an event of a context, in a call that the library sees. A thread that waits
// alone also sends and receives for the context ("drives"), so that a message costs one wake-up. If several wait, each
// for an event of its own, a message would wake all of them: so each drives only for its own channel (ChannelSets), and
// the thread "uiw-progress" drives the rest.
//
// Any thread may call any function. Times are monotonic nanoseconds (clock.h).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace uiw::provider {

class Waiters {
 public:
  // A program that does not wait again within this time after its event is busy with something else.
  static constexpr std::uint64_t kBetweenNs = 250'000;
  // After several threads have waited at the same time, a thread that waits alone does not send and receive before this
  // time is over.
  static constexpr std::uint64_t kCrowdNs = 10'000'000;
  static constexpr unsigned kFew = 2;

  // The calling thread begins to wait. True: until leave() it sends and receives for the whole context. False: other
  // threads wait, too, or did so a moment ago, and the caller wakes the thread "uiw-progress" to send and receive.
  bool enter(std::uint64_t now) {
    if (driven_here()) return true;  // a signal handler has left the earlier wait by longjmp()
    if (!are_several(now) && !driving_.exchange(true)) {
      driver_.store(pthread_self(), std::memory_order_relaxed);
      if (sleeping_.load() == 0) return true;
      driving_.store(false);
    }
    sleeping_.fetch_add(1);
    crowded_until_.store(now + kCrowdNs, std::memory_order_relaxed);
    return false;
  }
  void leave(bool driving, std::uint64_t now) {
    if (driving) {
      left_.store(now, std::memory_order_relaxed);
      driving_.store(false);
    } else {
      sleeping_.fetch_sub(1);
    }
  }
  // Whether one waiting thread sends and receives for the whole context now, or did so a moment ago and is expected to
  // do so again.
  bool drive(std::uint64_t now) const {
    if (sleeping_.load() > 0) return false;
    return driving_.load() || now < left_.load(std::memory_order_relaxed) + kBetweenNs;
  }

  // Whether so few threads wait that each may wait busily (BusyWait), which takes a processor for each of them.
  bool are_few() const { return sleeping_.load(std::memory_order_relaxed) <= kFew; }
  // Whether several threads wait, or did so a moment ago and will probably do so again.
  bool are_several(std::uint64_t now) const {
    return sleeping_.load() > 0 || now < crowded_until_.load(std::memory_order_relaxed);
  }

  // Whether the calling thread is the one that waits, and sends and receives meanwhile.
  bool driven_here() const {
    return driving_.load(std::memory_order_relaxed) &&
           pthread_equal(driver_.load(std::memory_order_relaxed), pthread_self()) != 0;
  }

  // In the child of a fork the parent's other threads do not exist.
  void after_fork_in_child() { driving_ = false, sleeping_ = 0; }

 private:
  std::atomic<bool> driving_{false};
  std::atomic<pthread_t> driver_{};  // valid while `driving_`
  std::atomic<unsigned> sleeping_{0};
  std::atomic<std::uint64_t> left_{0}, crowded_until_{0};
};

}  // namespace uiw::provider
