// SPDX-License-Identifier: MIT
// One attempt to connect a queue pair without rdma_cm. It lasts from the step to RTR until that step fails, or until
// the queue pair goes to RESET, goes to RTR again or is destroyed.
//
// The queue pair and all calls by which it is to be connected share ownership of the attempt. If a call is answered
// only after RESET, its attempt is over. So the call cannot give its stream to a later attempt of the queue pair, or to
// a newer queue pair with the same number.
//
// Thread-safe.
#pragma once

#include <atomic>

namespace uiw::provider::manual {

class Attempt {
 public:
  // Called by the queue pair, with both of its locks held.
  void end() { over_.store(true, std::memory_order_relaxed); }
  // The answer stays valid only while the caller holds a lock of the queue pair.
  bool is_over() const { return over_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> over_{false};
};

}  // namespace uiw::provider::manual
