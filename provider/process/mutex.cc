// SPDX-License-Identifier: MIT
#include "provider/process/mutex.h"

#include <sched.h>

#include <new>

namespace uiw::provider {

// Several threads of the child may come at the same time: one of them creates the mutex anew, before any of them takes
// it.
void Mutex::renew() {
  static std::atomic<unsigned> renewing{0};  // the generation that a thread is renewing for
  const unsigned forks = detail::forks.load(std::memory_order_relaxed);
  for (;;) {
    unsigned nobody = renewing.load(std::memory_order_relaxed);
    if (nobody != forks && renewing.compare_exchange_weak(nobody, forks, std::memory_order_acquire)) break;
    sched_yield();
  }
  if (known_forks_.load(std::memory_order_relaxed) != forks) {
    new (&mutex_) std::mutex;
    known_forks_.store(forks, std::memory_order_release);
  }
  renewing.store(0, std::memory_order_release);
}

}  // namespace uiw::provider
