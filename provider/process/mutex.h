// SPDX-License-Identifier: MIT
// A mutex that the child of a fork can take although a thread of the parent held it.
//
// The thread that held it is not there in the child, and nobody would release it. So each mutex knows how many forks
// the process descends from; the first look at it after another fork makes it anew. What it guards may be half changed
// then: tables that a child goes on using are locked around the fork instead (verbs/fork.cc), this is for objects
// that belong to the parent and that a child may at most destroy.
#pragma once

#include <atomic>
#include <mutex>

namespace uiw::provider {

namespace detail {
inline std::atomic<unsigned> forks{0};  // of which this process is the child
}

// Tells an object whether the process that made it is this one.
inline unsigned fork_generation() { return detail::forks.load(std::memory_order_relaxed); }

class Mutex {
 public:
  void lock() {
    renew_in_child();
    mutex_.lock();
  }
  bool try_lock() {
    renew_in_child();
    return mutex_.try_lock();
  }
  void unlock() { mutex_.unlock(); }

 private:
  void renew_in_child() {
    if (known_forks_.load(std::memory_order_acquire) != detail::forks.load(std::memory_order_relaxed)) renew();
  }
  void renew();

  std::mutex mutex_;
  std::atomic<unsigned> known_forks_{detail::forks.load(std::memory_order_relaxed)};
};

}  // namespace uiw::provider
