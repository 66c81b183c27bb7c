// SPDX-License-Identifier: MIT
// Starts a thread of the library. The thread has a name, blocks all signals except those of its own faults, may run on
// every processor that the process may use, and runs no code of the program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <functional>
#include <thread>

#include "base/processors.h"

namespace uiw {

// `name` has at most 15 characters. Signals for faults of the thread itself are not blocked, since the copy guard
// (guarded_copy.h) needs them. False if the system allows no more threads or has no memory.
inline bool start_service_thread(std::thread& thread, const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    // The new thread unblocks the signals for faults itself. If the calling thread unblocked them before, a signal that
    // is pending for the calling thread would arrive.
    thread = std::thread([body = std::move(body)] {
      sigset_t faults;
      sigemptyset(&faults);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigaddset(&faults, fault);
      pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
      use_all_processors();
      body();
    });
  } catch (const std::exception&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) pthread_setname_np(thread.native_handle(), name);
  return started;
}

}  // namespace uiw
