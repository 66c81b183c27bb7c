// SPDX-License-Identifier: MIT
// Mutexes and the guards that hold them, with annotations for clang's thread safety analysis (base/lock_annotations.h).
#pragma once

#include <atomic>
#include <mutex>

#include "base/lock_annotations.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace uiw {

namespace detail {
inline std::atomic<unsigned> forks{0};
}

// How many forks lie between this process and the one that has loaded the library. An object that stores this number
// when it is created can later tell whether the current process has created it.
inline unsigned fork_generation() { return detail::forks.load(std::memory_order_relaxed); }
// To be called once in each child of a fork, before it takes a mutex.
inline void count_fork() { detail::forks.fetch_add(1); }

// A mutex that the child of a fork can take even if another thread of the parent held it.
//
// The other thread does not exist in the child, so nobody would release the mutex there. So the state of a mutex
// includes the fork generation of the process that has last changed it. In a process of a later generation the mutex
// counts as free, although the data that it guards may be inconsistent. Tables that a child goes on using are therefore
// locked before a fork and unlocked after it (provider/verbs/fork.cc). Most other objects belong to the parent, and the
// child can at most destroy them; for the rest, left_taken() says whether the data may be inconsistent.
//
// Each message takes about ten mutexes, nearly always uncontended, so lock() and unlock() are inline.
class UIW_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() UIW_ACQUIRE() {
    before_lock(0);
    unsigned found = free();
    if (!state_.compare_exchange_strong(found, found | kTaken, std::memory_order_acquire)) lock_slowly();
    after_lock(0);
  }
  bool try_lock() UIW_TRY_ACQUIRE(true) {
    before_lock(kTry);
    unsigned found = free();
    const bool taken =
        state_.compare_exchange_strong(found, found | kTaken, std::memory_order_acquire) || try_slowly(found);
    after_lock(taken ? kTry : kTryFailed);
    return taken;
  }
  void unlock() UIW_RELEASE() {
    before_unlock();
    // An exchange would take as long as some forty other instructions. If another thread sets kAwaited between the load
    // and the store, it is not woken here, so no thread sleeps for long (sleep()).
    const unsigned found = state_.load(std::memory_order_relaxed);
    state_.store(free(), std::memory_order_release);
    if ((found & kAwaited) != 0) wake_one();
    after_unlock();
  }
  // To be called in the child of a fork before it takes the mutex. True if a thread of the parent held the mutex at the
  // fork, so that the data that the mutex guards may be inconsistent.
  bool left_taken() const {
    const unsigned state = state_.load(std::memory_order_relaxed);
    return (state & kTaken) != 0 && (state & ~(kTaken | kAwaited)) != free();
  }

 private:
  // The state: the fork generation, times four, and these two bits.
  static constexpr unsigned kTaken = 1;
  static constexpr unsigned kAwaited = 2;  // set only with kTaken: other threads may be waiting

  static unsigned free() { return fork_generation() << 2; }
  bool try_slowly(unsigned found);
  void lock_slowly();
  void sleep(unsigned awaited);
  void wake_one();

  // These functions tell ThreadSanitizer that this is a mutex, so that it checks the lock order, too. They do nothing
  // in the child of a fork, where ThreadSanitizer still counts mutexes of the parent's other threads as taken.
#if defined(__SANITIZE_THREAD__)
  static constexpr unsigned kTry = __tsan_mutex_try_lock, kTryFailed = kTry | __tsan_mutex_try_lock_failed;
  static bool tells() { return fork_generation() == 0; }
  void before_lock(unsigned flags) {
    if (tells()) __tsan_mutex_pre_lock(this, flags);
  }
  void after_lock(unsigned flags) {
    if (tells()) __tsan_mutex_post_lock(this, flags, 0);
  }
  void before_unlock() {
    if (tells()) __tsan_mutex_pre_unlock(this, 0);
  }
  void after_unlock() {
    if (tells()) __tsan_mutex_post_unlock(this, 0);
  }
#else
  static constexpr unsigned kTry = 0, kTryFailed = 0;
  void before_lock(unsigned) {}
  void after_lock(unsigned) {}
  void before_unlock() {}
  void after_unlock() {}
#endif

  std::atomic<unsigned> state_{free()};
};

// The mutex of a table that is locked before a fork and unlocked after it, so that the child can go on using the table.
class UIW_CAPABILITY("mutex") TableMutex {
 public:
  void lock() UIW_ACQUIRE() { mutex_.lock(); }
  bool try_lock() UIW_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() UIW_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// As std::lock_guard, with annotations for clang's analysis.
template <typename Lock>
class UIW_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(Lock& mutex) UIW_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() UIW_RELEASE() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& mutex_;
};

// As std::unique_lock, with those of its functions that are needed, and with annotations.
template <typename Lock>
class UIW_SCOPED_CAPABILITY UniqueLock {
 public:
  explicit UniqueLock(Lock& mutex) UIW_ACQUIRE(mutex) : mutex_(mutex) { lock(); }
  UniqueLock(Lock& mutex, std::defer_lock_t) UIW_EXCLUDES(mutex) : mutex_(mutex) {}
  ~UniqueLock() UIW_RELEASE() {
    if (owned_) mutex_.unlock();
  }
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;

  void lock() UIW_ACQUIRE() {
    mutex_.lock();
    owned_ = true;
  }
  bool try_lock() UIW_TRY_ACQUIRE(true) { return owned_ = mutex_.try_lock(); }
  void unlock() UIW_RELEASE() {
    owned_ = false;
    mutex_.unlock();
  }
  bool owns_lock() const { return owned_; }

 private:
  Lock& mutex_;
  bool owned_ = false;
};

// Tells clang's analysis that a lock is held, where the analysis cannot find this out: in the body of a lambda if the
// caller of the lambda holds the lock, or after a fork if the lock was taken before the fork. Does nothing at run time.
template <typename Lock>
void assume_held(const Lock& lock) UIW_ASSERT_CAPABILITY(lock) {
  static_cast<void>(lock);
}

}  // namespace uiw
