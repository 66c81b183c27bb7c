// SPDX-License-Identifier: MIT
// A list of all objects of one class in this process, for the inventory (provider/inventory/) that other processes see.
//
// A class whose objects are listed has a Listed as its last member, so that an object is complete when it enters the
// list. The destructor of the class calls leave() first. The constructor and destructor of the class must be in
// libuiw.so.1: compiled into the plugin, they would use a second list there. Thread-safe.
#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace uiw::provider {

template <typename Object>
class Listed {
 public:
  explicit Listed(const Object& object) : object_(object), generation_(fork_generation()) {
    const LockGuard lock(mutex_);
    number_ = ++last_number_;
    next_ = first_;
    if (next_ != nullptr) next_->before_ = this;
    first_ = this;
  }
  ~Listed() { leave(); }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

  // Removes the object from the list. After the return no for_each() uses it.
  void leave() {
    const LockGuard lock(mutex_);
    if (left_) return;
    left_ = true;
    (before_ != nullptr ? before_->next_ : first_) = next_;
    if (next_ != nullptr) next_->before_ = before_;
  }
  // A number that no other object of the class has had in this process, from 1 on.
  std::uint32_t number() const { return number_; }

  // Calls `function` for each object that was made in this process, and not in a parent. The list is locked during the
  // calls, so `function` must not make or destroy objects of the class, nor take a lock that other threads hold while
  // they make or destroy such objects.
  template <typename Function>
  static void for_each(Function function) {
    const LockGuard lock(mutex_);
    for (const Listed* one = first_; one != nullptr; one = one->next_) {
      if (one->generation_ == fork_generation()) function(one->object_);
    }
  }
  // The lock of the list. An object also takes this lock to change what a function passed to for_each() reads.
  static TableMutex& mutex() UIW_RETURN_CAPABILITY(mutex_) { return mutex_; }
  // Take and release the lock before and after a fork.
  static void lock_for_fork() UIW_ACQUIRE(mutex_) { mutex_.lock(); }
  static void unlock_after_fork() UIW_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  static inline constinit TableMutex mutex_;
  static inline constinit Listed* first_ UIW_GUARDED_BY(mutex_) = nullptr;
  static inline constinit std::uint32_t last_number_ UIW_GUARDED_BY(mutex_) = 0;

  const Object& object_;
  const unsigned generation_;
  std::uint32_t number_ = 0;
  bool left_ UIW_GUARDED_BY(mutex_) = false;
  Listed* before_ UIW_GUARDED_BY(mutex_) = nullptr;
  Listed* next_ UIW_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace uiw::provider
