// SPDX-License-Identifier: MIT
// The queue pairs that an engine drives. Thread-safe, where not said otherwise.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

#include "provider/process/mutex.h"
#include "provider/progress/driven.h"

namespace uiw::provider {

class DrivenList {
 public:
  static constexpr std::size_t kFew = 8;  // with more than these it takes too long to look at each

  // Returns how many there are now, 0 if there is no memory. A queue pair that is there already stays once.
  std::size_t add(Driven& qp) noexcept;
  void remove(Driven& qp) noexcept;
  bool many() const { return many_.load(std::memory_order_relaxed); }
  // Calls visitor(Driven&) for each, with the list locked.
  template <typename Visitor>
  void for_each(Visitor visitor) {
    const std::lock_guard lock(mutex_);
    for (Driven* qp : entries_) visitor(*qp);
  }

  // For one thread at a time, inside a ReadSection, which keeps a queue pair that is removed meanwhile alive: looks at
  // each, as a poll. True if there was work. Nothing is done where there are many. `waits`: the program waits, so posts
  // that wait are sent.
  bool poll_each(bool waits);

  // In the child of a fork: there are none.
  void after_fork_in_child();

 private:
  void note_change();
  bool copy_few();

  Mutex mutex_;  // protects entries_; taken after the locks of a queue pair
  std::vector<Driven*> entries_;
  std::atomic<unsigned> changes_{0};
  std::atomic<bool> many_{false};
  // Of poll_each(): a copy of the entries as they were after so many changes, so that a poll takes no lock.
  unsigned copied_ = 0;
  std::size_t count_ = 0;
  std::array<Driven*, kFew> few_;
  unsigned round_ = 0;
};

}  // namespace uiw::provider
