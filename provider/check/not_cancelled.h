// SPDX-License-Identifier: MIT
// While it lives, the thread is not cancelled: for calls of the library that are cancellation points, where the
// program's call is none.
#pragma once

#include <pthread.h>

namespace uiw::provider::check {

class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = 0;
};

}  // namespace uiw::provider::check
