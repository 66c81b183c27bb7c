// SPDX-License-Identifier: MIT
// Decides who gets SIGSEGV and SIGBUS: the copy guard (guarded_copy.h) gets the faults of its own accesses, the program
// gets every other signal as if the library were not there.
//
// Under the interposer our handler, once installed, stays the one that the kernel calls, since the program's later
// calls of sigaction and pthread_sigmask come here:
//
//   * The handler that the program sets is recorded, and the program reads back this record.
//   * In a thread that has used the guard, both signals stay unblocked in the kernel, since the kernel ends a process
//     that faults while the signal is blocked. What the program wants blocked is recorded and emulated: a fault of the
//     program then ends the process, and a signal that somebody has sent waits until the thread unblocks it.
//
// Without the interposer our handler passes signals on to the handlers that were set before it, and masks are not
// touched.
//
// All functions may be called in signal handlers, and in the child of a vfork. Such a child shares the memory but has
// signal dispositions of its own, so its calls of sigaction and pthread_sigmask change the kernel's state and leave the
// records as they are.
#pragma once

#include <signal.h>

#include <cstdint>

namespace uiw {

// Functions of the interposer. It has a sigaction() and a pthread_sigmask() of its own, which hide those of libc; the
// first two functions here call those of libc.
struct RealSignals {
  int (*action)(int signal, const struct sigaction* action, struct sigaction* before);  // sigaction()
  int (*mask)(int how, const sigset_t* set, sigset_t* before);                          // pthread_sigmask()
  bool (*borrowed)();                                                                   // true in the child of a vfork
};

// Tells this module that the interposer passes the program's calls of sigaction and pthread_sigmask to it. Called once,
// before the handler is installed.
void use_interposed_signals(const RealSignals& real);

// Installs our handler; later calls do nothing. The handler calls `ours` first. If `ours` returns true, the fault is
// handled, and the handler returns. Otherwise the signal is the program's.
void install_fault_handler(bool (*ours)(siginfo_t* info, void* context));

// True for a signal that was sent, by kill() for example, or that reports a fault asynchronously. Not true for one that
// an instruction has raised, or for which the kernel names no cause (SI_KERNEL).
bool is_sent(const siginfo_t& info);

// Sets the kernel's signal mask of the calling thread. For processors on which our handler leaves by a jump: since the
// handler does not return, the kernel does not restore the mask.
void set_kernel_mask(const sigset_t& mask);

// ---- What the program calls, under the interposer

// sigaction() for SIGSEGV and SIGBUS: 0, or -1 with errno.
int program_action(int signal, const struct sigaction* action, struct sigaction* before);

// pthread_sigmask(): 0 or an errno.
int program_mask(int how, const sigset_t* set, sigset_t* before);

// Adds the signals that are kept pending here to the result of sigpending().
void add_pending_faults(sigset_t* pending);

// To be called before and after a thread is created. In between, those of SIGSEGV and SIGBUS that the program wants
// blocked are blocked in the kernel too, so that the new thread inherits this mask. The result of close_faults() is
// passed to reopen_faults().
unsigned close_faults();
void reopen_faults(unsigned closed);

// ---- What the copy guard calls (guarded_copy.cc)

namespace detail {
// The state of one thread. In a set of signals bit 0 stands for SIGSEGV and bit 1 for SIGBUS.
struct ThreadFaults {
  bool open;  // open_faults() has run, and no handler of the program has run since
  // Only under the interposer: the thread has used the copy guard. From then on the kernel may leave signals unblocked
  // that the program has blocked.
  bool adopted;
  std::uint8_t blocked;  // signals that the program has blocked, and that are unblocked in the kernel
  std::uint8_t pending;  // signals that were sent while in `blocked`, and that wait until the program unblocks them
  int process;  // the id of the process that has got the pending signals: the child of a fork does not inherit them
  std::uint64_t sent[2][4];  // the part of siginfo_t that is in use for sent signals
};
// Initial-exec TLS, so that a signal handler reads it without a call into the loader.
extern __thread ThreadFaults t_faults __attribute__((tls_model("initial-exec")));
void open_faults();
}  // namespace detail

// To be called before an access that may fault. Under the interposer, makes sure that the kernel does not block SIGSEGV
// and SIGBUS in this thread: at the first call in a thread, and at the first one after a handler of the program has
// run, it makes a system call or two. Otherwise makes no system call.
inline void keep_faults_open() {
  if (__builtin_expect(!detail::t_faults.open, 0)) detail::open_faults();
}

}  // namespace uiw
