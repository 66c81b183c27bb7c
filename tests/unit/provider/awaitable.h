// SPDX-License-Identifier: MIT
// State that one thread changes, and another one waits for.
#pragma once

#include <condition_variable>
#include <mutex>

#include "tests/unit/provider/pair.h"

namespace uiw::test {

class Awaitable {
 protected:
  template <typename Change>
  void change(Change what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }
  // False where the condition does not come true in time.
  template <typename Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }
  template <typename Look>
  auto look(Look at) {
    const std::lock_guard lock(mutex_);
    return at();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace uiw::test
