// SPDX-License-Identifier: MIT
// The hooks of libc functions that set or read a handler or the signal mask, and of those that create threads, which
// inherit the mask. They concern SIGSEGV and SIGBUS only. Once libuiw.so.1 is loaded, it records what the program sets
// (base/fault_signals.h) and keeps its own handler, which catches the faults of its copies to and from the program's
// memory.
//
// Until libuiw.so.1 is loaded, the hooks of the functions of System V and BSD, such as sigset() and sigblock(), call
// libc's functions. From then on the hooks do, as libc does, what these functions do by sigaction() and
// pthread_sigmask(). For a function that takes one signal, this applies only to SIGSEGV and SIGBUS.
#include "kernel-abi/interposer/hooks/signals.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include <atomic>

#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/loader.h"

// sigaction() by libc's internal name, which needs no dlsym().
extern "C" int __sigaction(int signal, const struct sigaction* action, struct sigaction* before);

namespace uiw::kernel_abi {
namespace {

using Handler = void (*)(int);
using StartRoutine = void* (*)(void*);

constinit RealFunction<int(int, const struct sigaction*, struct sigaction*)> real_sigaction("sigaction");
constinit RealFunction<int(int, const sigset_t*, sigset_t*)> real_pthread_sigmask("pthread_sigmask"),
    real_sigprocmask("sigprocmask");
constinit RealFunction<int(sigset_t*)> real_sigpending("sigpending");
constinit RealFunction<Handler(int, Handler)> real_signal("signal"), real_bsd_signal("bsd_signal"),
    real_ssignal("ssignal"), real_sysv_signal("sysv_signal"), real_sysv_signal_of_c99("__sysv_signal"),
    real_sigset("sigset");
constinit RealFunction<int(int)> real_sigignore("sigignore"), real_sighold("sighold"), real_sigrelse("sigrelse"),
    real_sigblock("sigblock"), real_sigsetmask("sigsetmask");
constinit RealFunction<int(int, int)> real_siginterrupt("siginterrupt");
constinit RealFunction<int(pthread_t*, const pthread_attr_t*, StartRoutine, void*)> real_pthread_create(
    "pthread_create");
constinit RealFunction<int(thrd_t*, thrd_start_t, void*)> real_thrd_create("thrd_create");

inline bool is_fault(int signal) { return signal == SIGSEGV || signal == SIGBUS; }

// For SIGSEGV and for SIGBUS: whether the program's latest call of siginterrupt() has asked that the signal interrupts
// system calls. If so, signal() omits SA_RESTART.
std::atomic<bool> g_interrupts[2];
std::atomic<bool>& interrupts(int signal) { return g_interrupts[signal == SIGSEGV ? 0 : 1]; }

// Changes the signal mask of the program. Once the library is loaded, the kernel's mask may differ from the program's,
// so the library carries out the call; before that, libc does.
int change_mask(int how, const sigset_t* set, sigset_t* before) {
  const UiwKernelAbi* library = loaded_library();
  return library != nullptr ? library->signal_mask(how, set, before) : call_sigmask(how, set, before);
}

// As change_mask(), but reports errors by -1 and errno, as sigprocmask() does.
int change_mask_or_errno(int how, const sigset_t* set, sigset_t* before) {
  const int error = change_mask(how, set, before);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

sigset_t only(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

// The library, if it handles the calls about this signal; null if libc does.
const UiwKernelAbi* library_for(int signal) { return is_fault(signal) ? loaded_library() : nullptr; }

Handler set_handler(int signal, Handler handler, int flags, const sigset_t& mask) {
  struct sigaction action = {};
  struct sigaction before;
  action.sa_handler = handler;
  action.sa_flags = flags;
  action.sa_mask = mask;
  return loaded_library()->signal_action(signal, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

sigset_t empty_set() {
  sigset_t set;
  sigemptyset(&set);
  return set;
}

Handler bsd_semantics(RealFunction<Handler(int, Handler)>& real, int signal, Handler handler) {
  if (library_for(signal) != nullptr && handler != SIG_ERR)
    return set_handler(signal, handler, interrupts(signal).load() ? 0 : SA_RESTART, only(signal));
  if (auto* function = real.get()) return function(signal, handler);
  errno = EINVAL;
  return SIG_ERR;
}

Handler system_v_semantics(RealFunction<Handler(int, Handler)>& real, int signal, Handler handler) {
  if (library_for(signal) != nullptr && handler != SIG_ERR)
    return set_handler(signal, handler, static_cast<int>(SA_RESETHAND) | SA_NODEFER | SA_INTERRUPT, empty_set());
  if (auto* function = real.get()) return function(signal, handler);
  errno = EINVAL;
  return SIG_ERR;
}

int change_one(RealFunction<int(int)>& real, int how, int signal) {
  if (library_for(signal) != nullptr) {
    const sigset_t set = only(signal);
    return change_mask_or_errno(how, &set, nullptr);
  }
  if (auto* function = real.get()) return function(signal);
  errno = EINVAL;
  return -1;
}

// Changes the mask; `bits` and the result, the former mask, have one bit for each of the signals 1 to 32.
int change_by_bits(RealFunction<int(int)>& real, int how, int bits) {
  if (loaded_library() == nullptr) {
    if (auto* function = real.get()) return function(bits);
  }
  sigset_t set, before;
  sigemptyset(&set);
  for (int signal = 1; signal <= 32; ++signal)
    if ((static_cast<unsigned>(bits) >> (signal - 1) & 1) != 0) sigaddset(&set, signal);
  if (change_mask_or_errno(how, &set, &before) != 0) return -1;
  unsigned result = 0;
  for (int signal = 1; signal <= 32; ++signal)
    if (sigismember(&before, signal) == 1) result |= 1U << (signal - 1);
  return static_cast<int>(result);
}

// Calls `make`, which creates a thread. During the call the kernel's mask blocks SIGSEGV and SIGBUS if the program has
// blocked them, so that the new thread inherits the mask that the program expects.
template <typename Make>
int make_thread(Make make) {
  const UiwKernelAbi* library = loaded_library();
  const unsigned closed = library != nullptr ? library->close_faults() : 0;
  const int result = make();
  if (closed != 0) library->reopen_faults(closed);
  return result;
}

}  // namespace

int call_sigaction(int signal, const struct sigaction* action, struct sigaction* before) {
  if (auto* function = real_sigaction.get()) return function(signal, action, before);
  return __sigaction(signal, action, before);
}

int call_sigmask(int how, const sigset_t* set, sigset_t* before) {
  if (auto* function = real_pthread_sigmask.get()) return function(how, set, before);
  constexpr size_t kKernelSize = (NSIG - 1) / 8;
  const int saved_errno = errno;
  const int error = syscall(SYS_rt_sigprocmask, how, set, before, kKernelSize) == 0 ? 0 : errno;
  errno = saved_errno;
  return error;
}

}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK int sigaction(int signal, const struct sigaction* action, struct sigaction* before) noexcept {
  if (const UiwKernelAbi* library = library_for(signal)) return library->signal_action(signal, action, before);
  return call_sigaction(signal, action, before);
}

UIW_HOOK int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  return change_mask(how, set, before);
}

UIW_HOOK int sigprocmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  if (loaded_library() == nullptr) {
    if (auto* function = real_sigprocmask.get()) return function(how, set, before);
  }
  return change_mask_or_errno(how, set, before);
}

UIW_HOOK int sigpending(sigset_t* pending) noexcept {
  auto* function = real_sigpending.get();
  const int result = function != nullptr
                         ? function(pending)
                         : static_cast<int>(syscall(SYS_rt_sigpending, pending, static_cast<size_t>((NSIG - 1) / 8)));
  const UiwKernelAbi* library = loaded_library();
  if (result == 0 && library != nullptr) library->add_pending(pending);
  return result;
}

UIW_HOOK Handler signal(int signal, Handler handler) noexcept { return bsd_semantics(real_signal, signal, handler); }
UIW_HOOK Handler bsd_signal(int signal, Handler handler) noexcept {
  return bsd_semantics(real_bsd_signal, signal, handler);
}
UIW_HOOK Handler ssignal(int signal, Handler handler) noexcept { return bsd_semantics(real_ssignal, signal, handler); }

// With -std=c99, <signal.h> turns calls of signal() into calls of __sysv_signal().
UIW_HOOK Handler __sysv_signal(int signal, Handler handler) noexcept {
  return system_v_semantics(real_sysv_signal_of_c99, signal, handler);
}
UIW_HOOK Handler sysv_signal(int signal, Handler handler) noexcept {
  return system_v_semantics(real_sysv_signal, signal, handler);
}

UIW_HOOK Handler sigset(int signal, Handler handler) noexcept {
  const UiwKernelAbi* library = library_for(signal);
  if (library == nullptr || handler == SIG_ERR) {
    if (auto* function = real_sigset.get()) return function(signal, handler);
    errno = EINVAL;
    return SIG_ERR;
  }
  const sigset_t own = only(signal);
  sigset_t blocked;
  struct sigaction before;
  if (handler == SIG_HOLD) {
    if (change_mask_or_errno(SIG_BLOCK, &own, &blocked) != 0) return SIG_ERR;
    if (sigismember(&blocked, signal) == 1) return SIG_HOLD;
    return library->signal_action(signal, nullptr, &before) == 0 ? before.sa_handler : SIG_ERR;
  }
  const Handler found = set_handler(signal, handler, 0, empty_set());
  if (found == SIG_ERR || change_mask_or_errno(SIG_UNBLOCK, &own, &blocked) != 0) return SIG_ERR;
  return sigismember(&blocked, signal) == 1 ? SIG_HOLD : found;
}

UIW_HOOK int sigignore(int signal) noexcept {
  if (library_for(signal) != nullptr) return set_handler(signal, SIG_IGN, 0, empty_set()) == SIG_ERR ? -1 : 0;
  if (auto* function = real_sigignore.get()) return function(signal);
  errno = EINVAL;
  return -1;
}

UIW_HOOK int siginterrupt(int signal, int interrupt) noexcept {
  const UiwKernelAbi* library = library_for(signal);
  if (is_fault(signal)) interrupts(signal).store(interrupt != 0);
  if (library == nullptr) {
    if (auto* function = real_siginterrupt.get()) return function(signal, interrupt);
    errno = EINVAL;
    return -1;
  }
  struct sigaction action;
  if (library->signal_action(signal, nullptr, &action) != 0) return -1;
  action.sa_flags = interrupt != 0 ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
  return library->signal_action(signal, &action, nullptr);
}

UIW_HOOK int sighold(int signal) noexcept { return change_one(real_sighold, SIG_BLOCK, signal); }
UIW_HOOK int sigrelse(int signal) noexcept { return change_one(real_sigrelse, SIG_UNBLOCK, signal); }
UIW_HOOK int sigblock(int bits) noexcept { return change_by_bits(real_sigblock, SIG_BLOCK, bits); }
UIW_HOOK int sigsetmask(int bits) noexcept { return change_by_bits(real_sigsetmask, SIG_SETMASK, bits); }

UIW_HOOK int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, StartRoutine start,
                            void* argument) noexcept {
  auto* function = real_pthread_create.get();
  if (function == nullptr) return EAGAIN;
  return make_thread([=] { return function(thread, attributes, start, argument); });
}

UIW_HOOK int thrd_create(thrd_t* thread, thrd_start_t start, void* argument) {
  auto* function = real_thrd_create.get();
  if (function == nullptr) return thrd_error;
  return make_thread([=] { return function(thread, start, argument); });
}
