// SPDX-License-Identifier: MIT
// A mutex that the child of a fork can take even if another thread of the parent held it.
//
// That thread does not exist in the child, so nobody would release the mutex. So each mutex stores how many forks the
// process descends from, and its first use after another fork creates it anew. The data that it guards may be
// inconsistent then. Tables that a child goes on using are therefore locked over the fork instead (verbs/fork.cc);
// this class is for objects that belong to the parent and that a child can at most destroy.
#pragma once

#include <atomic>
#include <mutex>

namespace uiw::provider {

namespace detail {
inline std::atomic<unsigned> forks{0};  // how many forks this process descends from
}

// The number of forks that this process descends from. An object that stores it can tell whether it was created in this
// process.
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
