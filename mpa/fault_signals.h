// SPDX-License-Identifier: MIT
// Who gets SIGSEGV and SIGBUS? The copy guard its own faults; the program every other signal, as if we were not there.
//
// Once installed, our handler stays the one that the kernel calls. Under the interposer the program's later calls of
// sigaction and pthread_sigmask come here:
//   * what it sets as the handler is recorded, and the record answers what it asks;
//   * in a thread that has used the guard, both signals stay open in the kernel's mask, since the kernel ends a process
//     that faults with the signal blocked. What the program wants blocked is recorded, and carried out here: a fault of
//     its own then ends the process, and a signal that somebody sends waits for the thread.
// Without the interposer our handler is in front of the handlers that were there first, and masks are not touched.
//
// Everything here may be called in signal handlers and in the child of a vfork, which shares the memory but has
// dispositions of its own: there calls change nothing but the kernel's state.
#pragma once

#include <signal.h>

#include <cstdint>

namespace uiw::mpa {

// The functions that the interposer hides.
struct RealSignals {
  int (*action)(int signal, const struct sigaction* action, struct sigaction* before);  // sigaction()
  int (*mask)(int how, const sigset_t* set, sigset_t* before);                          // pthread_sigmask()
  bool (*borrowed)();                                                                   // true in the child of a vfork
};

// The program's calls will come here. Once, before the handler is installed.
void use_interposed_signals(const RealSignals& real);

// `ours` is asked first, in the handler: true if the fault is dealt with, and the handler may return.
void install_fault_handler(bool (*ours)(siginfo_t* info, void* context));

// True for a signal that somebody sent: no instruction will fault again when its handler returns.
bool is_sent(const siginfo_t& info);

// Sets the signal mask in our own handler, on processors where it does not return.
void set_kernel_mask(const sigset_t& mask);

// ---- What the program calls, under the interposer
// --------------------------------------------------------------------

// sigaction() for SIGSEGV and SIGBUS: 0, or -1 with errno.
int program_action(int signal, const struct sigaction* action, struct sigaction* before);

// pthread_sigmask(): 0 or an errno.
int program_mask(int how, const sigset_t* set, sigset_t* before);

// Adds to what sigpending() gave the signals that wait here.
void add_pending_faults(sigset_t* pending);

// Around the making of a thread: what the program wants blocked is blocked in the kernel too, for the new thread to
// inherit. What the first returns is for the second.
unsigned close_faults();
void reopen_faults(unsigned closed);

// ---- What the guard calls
// --------------------------------------------------------------------------------------------

namespace detail {
// Of one thread. A set of signals has bit 0 for SIGSEGV and bit 1 for SIGBUS.
struct ThreadFaults {
  bool open;                 // both are known to be open in the kernel
  bool adopted;              // has used the guard: from here on the program's mask differs from the kernel's
  std::uint8_t blocked;      // open in the kernel, though the program has them blocked
  std::uint8_t pending;      // sent meanwhile
  int process;               // to which they were sent: the child of a fork does not inherit them
  std::uint64_t sent[2][4];  // what is used of the siginfo_t of signals that are sent
};
// Initial-exec, here and for the guard's target, so that a signal handler reads it without a call into the loader.
extern __thread ThreadFaults t_faults __attribute__((tls_model("initial-exec")));
void open_faults();
}  // namespace detail

// Before memory is accessed that may fault; a system call or two in the first of a thread.
inline void keep_faults_open() {
  if (__builtin_expect(!detail::t_faults.open, 0)) detail::open_faults();
}

}  // namespace uiw::mpa
