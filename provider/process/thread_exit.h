// SPDX-License-Identifier: MIT
// What a thread has of its own is given back when it ends.
//
// Not by a thread_local object with a destructor: where there is no memory to note one down, libc ends the process. And
// not before the destructors of the program's own objects have run, which may still use queue pairs: the destructors of
// keys come last.
#pragma once

#include <pthread.h>

namespace uiw::provider {

// To be made when the library is loaded, or at the first need, and never destroyed.
class ThreadExit {
 public:
  // `give_back` is called with what the thread had; never for the thread that ends with the process.
  explicit ThreadExit(void (*give_back)(void*)) : made_(::pthread_key_create(&key_, give_back) == 0) {}
  ThreadExit(const ThreadExit&) = delete;
  ThreadExit& operator=(const ThreadExit&) = delete;

  // The calling thread has this, which is not null. False where it cannot be noted down.
  bool note(void* own) const { return made_ && ::pthread_setspecific(key_, own) == 0; }

 private:
  pthread_key_t key_{};
  const bool made_;
};

}  // namespace uiw::provider
