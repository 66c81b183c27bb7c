// SPDX-License-Identifier: MIT
// Our own threads: named, deaf to the program's signals, and running none of its code.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <system_error>
#include <thread>

namespace uiw::provider {

// The name has at most 15 characters. Faults of the thread itself stay unblocked: the copy guard needs them.
// False where the system allows no more threads.
inline bool start_service_thread(std::thread& thread, const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) pthread_setname_np(thread.native_handle(), name);
  return started;
}

}  // namespace uiw::provider
