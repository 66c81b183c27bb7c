// SPDX-License-Identifier: MIT
// Releases what a thread owns when the thread ends.
//
// This is not a thread_local object with a destructor, for two reasons. If there is no memory to register such a
// destructor, libc ends the process. And destructors of the program's own thread_local objects may still use queue
// pairs; the destructors of pthread keys run after them.
#pragma once

#include <pthread.h>

namespace uiw {

// Objects are created when the library is loaded, or when they are first needed, and are never destroyed.
class ThreadExit {
 public:
  // When a thread ends, `give_back` is called with what the thread has passed to note(). It is not called for the
  // thread that ends the process.
  explicit ThreadExit(void (*give_back)(void*)) : made_(::pthread_key_create(&key_, give_back) == 0) {}
  ThreadExit(const ThreadExit&) = delete;
  ThreadExit& operator=(const ThreadExit&) = delete;

  // Registers `own`, which is not null, for the calling thread. False if that is not possible.
  bool note(void* own) const { return made_ && ::pthread_setspecific(key_, own) == 0; }

 private:
  pthread_key_t key_{};
  const bool made_;
};

}  // namespace uiw
