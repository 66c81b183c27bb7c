// SPDX-License-Identifier: MIT
// One attempt to connect a queue pair without rdma_cm: from its step to RTR until it leaves for RESET, goes to RTR anew
// or is destroyed.
//
// The queue pair and all that looks for its peer share it. What comes late, such as the answer to a call that was made
// before RESET, holds an attempt that is over, and so cannot give its stream to whatever the queue pair, or the next
// one of that number, does now.
//
// Thread-safe.
#pragma once

#include <atomic>

namespace uiw::provider::manual {

class Attempt {
 public:
  // The queue pair ends it, with both of its locks.
  void end() { over_.store(true, std::memory_order_relaxed); }
  // The answer stays true only for who holds a lock of the queue pair.
  bool is_over() const { return over_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> over_{false};
};

}  // namespace uiw::provider::manual
