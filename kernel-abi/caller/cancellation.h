// SPDX-License-Identifier: MIT
// Limits where pthread_cancel may end a thread that executes an rdma_cm or verbs command: only while GET_EVENT blocks,
// as with the kernel's device. All other commands run to their end, so that nothing is left half done.
#pragma once

#include <pthread.h>

namespace uiw::kernel_abi {

class CancellationOff {
 public:
  CancellationOff() : outer_(innermost_) {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_);
    innermost_ = this;
  }
  ~CancellationOff() {
    innermost_ = outer_;
    int ignored;
    ::pthread_setcancelstate(state_, &ignored);
  }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  friend class CancellationAsBefore;
  static inline thread_local CancellationOff* innermost_ = nullptr;
  CancellationOff* const outer_;
  int state_ = PTHREAD_CANCEL_ENABLE;
};

// Restores the cancellation state that the program had chosen, for the duration of one wait.
class CancellationAsBefore {
 public:
  CancellationAsBefore() {
    const CancellationOff* off = CancellationOff::innermost_;
    ::pthread_setcancelstate(off != nullptr ? off->state_ : PTHREAD_CANCEL_ENABLE, &state_);
  }
  ~CancellationAsBefore() {
    int ignored;
    ::pthread_setcancelstate(state_, &ignored);
  }
  CancellationAsBefore(const CancellationAsBefore&) = delete;
  CancellationAsBefore& operator=(const CancellationAsBefore&) = delete;

 private:
  int state_ = PTHREAD_CANCEL_DISABLE;
};

}  // namespace uiw::kernel_abi
