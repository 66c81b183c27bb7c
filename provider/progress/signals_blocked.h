// SPDX-License-Identifier: MIT
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace uiw::provider {

// Blocks signals while a thread of the program sends and receives inside a call that a signal may interrupt. ppoll()
// unblocks them while the thread sleeps. SIGABRT and the signals of faults are left out, and so are the first two
// real-time signals, which libc uses itself.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int one : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, one);
    constexpr int kLibc[] = {32, 33};
    for (const int one : kLibc) reinterpret_cast<std::uint64_t*>(&all)[0] &= ~(std::uint64_t{1} << (one - 1));
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof(std::uint64_t));
  }
  ~SignalsBlocked() { ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(std::uint64_t)); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  // The signals that were blocked before.
  const sigset_t* before() const { return &before_; }

 private:
  sigset_t before_{};
};

}  // namespace uiw::provider
