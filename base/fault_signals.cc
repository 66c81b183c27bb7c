// SPDX-License-Identifier: MIT
#include "base/fault_signals.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/short_wait.h"

namespace uiw {

namespace detail {
__thread ThreadFaults t_faults __attribute__((tls_model("initial-exec"))) = {};
}
using detail::t_faults;

namespace {

// ---- SIGSEGV and SIGBUS as a set of two bits

constexpr int kFaults[] = {SIGSEGV, SIGBUS};
constexpr unsigned kBoth = 3;

std::size_t index_of(int signal) { return signal == SIGSEGV ? 0 : 1; }
unsigned bit_of(int signal) { return 1U << index_of(signal); }

unsigned faults_in(const sigset_t& set) {
  unsigned found = 0;
  for (const int signal : kFaults)
    if (sigismember(&set, signal) == 1) found |= bit_of(signal);
  return found;
}
void add_faults(sigset_t& set, unsigned faults) {
  for (const int signal : kFaults)
    if ((faults & bit_of(signal)) != 0) sigaddset(&set, signal);
}
void remove_faults(sigset_t& set, unsigned faults) {
  for (const int signal : kFaults)
    if ((faults & bit_of(signal)) != 0) sigdelset(&set, signal);
}
sigset_t set_of(unsigned faults) {
  sigset_t set;
  sigemptyset(&set);
  add_faults(set, faults);
  return set;
}

// ---- The action that the kernel has for each of the two signals

RealSignals real = {::sigaction, ::pthread_sigmask, [] { return false; }};
bool interposed = false;

// Handles a fault of a guarded access (guarded_copy.h) and then returns true; returns false for any other signal. Null
// until our handler is installed.
std::atomic<bool (*)(siginfo_t*, void*)> is_ours{nullptr};

void on_fault(int signal, siginfo_t* info, void* context);

bool is_in_front(const struct sigaction& kernel) {
  return (kernel.sa_flags & SA_SIGINFO) != 0 && kernel.sa_sigaction == on_fault;
}

bool is_handler(const struct sigaction& action) { return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN; }

// The action that the kernel gets: our handler, with the flags and the mask of the program's action. If the program has
// no handler, our handler has flags of its own and an empty mask.
struct sigaction in_front_of(const struct sigaction& program) {
  struct sigaction front = program;
  front.sa_sigaction = on_fault;
  // With SA_RESETHAND the kernel would remove our handler, which has to stay. So take_action() carries this flag out.
  front.sa_flags = (program.sa_flags & ~static_cast<int>(SA_RESETHAND)) | SA_SIGINFO;
  if (!is_handler(program)) {
    front.sa_flags |= SA_ONSTACK | SA_RESTART | SA_NODEFER;
    sigemptyset(&front.sa_mask);
  }
  return front;
}

void set_default(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  real.action(signal, &action, nullptr);
}

// Sends the signal to the calling thread once more, with the same siginfo if the kernel permits that.
void send_again(int signal, siginfo_t* info) {
  const int saved_errno = errno;
  const pid_t process = getpid();
  const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
  if (syscall(SYS_rt_tgsigqueueinfo, process, thread, signal, info) != 0) syscall(SYS_tgkill, process, thread, signal);
  errno = saved_errno;
}

// ---- The action that the program has set for each of the two signals

// The program's action for one signal, in two copies: the lowest bit of the generation says which copy is valid. So a
// signal handler that interrupts write() can read the valid copy. Each writer holds the lock `Writing`.
class Disposition {
 public:
  struct sigaction read() const {
    for (;;) {
      const unsigned generation = generation_.load(std::memory_order_seq_cst);
      std::uint64_t words[kWords];
      for (std::size_t i = 0; i < kWords; ++i) words[i] = copies_[generation & 1][i].load(std::memory_order_seq_cst);
      if (generation_.load(std::memory_order_seq_cst) != generation) continue;
      struct sigaction action;
      std::memcpy(&action, words, sizeof action);
      return action;
    }
  }
  void write(const struct sigaction& action) {
    std::uint64_t words[kWords];
    std::memcpy(words, &action, sizeof action);
    const unsigned next = generation_.load(std::memory_order_seq_cst) + 1;
    for (std::size_t i = 0; i < kWords; ++i) copies_[next & 1][i].store(words[i], std::memory_order_seq_cst);
    generation_.store(next, std::memory_order_seq_cst);
  }

 private:
  static constexpr std::size_t kWords = sizeof(struct sigaction) / sizeof(std::uint64_t);
  static_assert(sizeof(struct sigaction) % sizeof(std::uint64_t) == 0);
  std::atomic<std::uint64_t> copies_[2][kWords] = {};
  std::atomic<unsigned> generation_{0};
};

constinit Disposition dispositions[2];
Disposition& disposition(int signal) { return dispositions[index_of(signal)]; }

// The lock for changing dispositions. All signals are blocked while it is held; otherwise a handler could wait for the
// thread that it has interrupted. The lock contains the process id of its holder. A process that finds another id there
// than its own is the child of a fork, in which the holder does not exist, so it takes the lock nevertheless.
class Writing {
 public:
  Writing() {
    sigset_t all;
    sigfillset(&all);
    real.mask(SIG_SETMASK, &all, &before_);
    const int own = getpid();
    ShortWait wait;
    for (int holder = 0; !holder_.compare_exchange_strong(holder, own);) {
      if (holder == own) {
        wait.turn();
        holder = 0;
      }
    }
  }
  ~Writing() {
    holder_.store(0);
    real.mask(SIG_SETMASK, &before_, nullptr);
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  static inline constinit std::atomic<int> holder_{0};
  sigset_t before_;
};

// Returns the program's action for a signal; the caller then carries it out. If the action is a handler with
// SA_RESETHAND, the program's next action for this signal is the default.
struct sigaction take_action(int signal) {
  struct sigaction action = disposition(signal).read();
  const auto resets = [&action] {
    return is_handler(action) && (action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0;
  };
  if (!resets()) return action;
  const int saved_errno = errno;
  if (real.borrowed()) {
    set_default(signal);
  } else {
    const Writing writing;
    action = disposition(signal).read();  // another thread may have reset it meanwhile
    if (resets()) {
      struct sigaction reset = action;
      reset.sa_handler = SIG_DFL;
      disposition(signal).write(reset);
      const struct sigaction front = in_front_of(reset);
      real.action(signal, &front, nullptr);
    }
  }
  errno = saved_errno;
  return action;
}

// ---- Our signal handler

// Ends the process as the kernel does for this signal, with a core dump.
void end_process(int signal, siginfo_t* info) {
  set_default(signal);
  // The default action ends the process at the next signal. An instruction that has faulted faults again when the
  // handler returns. A signal that was sent, or for which the kernel names no cause (SI_KERNEL), is blocked and sent
  // again: it arrives when the handler returns, which restores the mask.
  if (!is_sent(*info) && info->si_code != SI_KERNEL) return;
  const sigset_t own = set_of(bit_of(signal));
  real.mask(SIG_BLOCK, &own, nullptr);
  send_again(signal, info);
}

void keep_pending(int signal, const siginfo_t& info) {
  // A signal with this number is pending already, and standard signals do not queue, so the new one is dropped.
  if ((t_faults.pending & bit_of(signal)) != 0 && t_faults.process == getpid()) return;
  if (t_faults.process != getpid()) t_faults.pending = 0;
  t_faults.process = getpid();
  std::memcpy(t_faults.sent[index_of(signal)], &info, sizeof t_faults.sent[0]);
  t_faults.pending |= static_cast<std::uint8_t>(bit_of(signal));
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const bool sent = is_sent(*info);
  if ((t_faults.blocked & bit_of(signal)) != 0) {
    if (sent) return keep_pending(signal, *info);
    return end_process(signal, info);
  }
  const struct sigaction action = take_action(signal);
  if (!is_handler(action)) {
    if (action.sa_handler == SIG_IGN && sent) return;
    return end_process(signal, info);  // a fault cannot be ignored
  }
  // If the program's handler leaves by a jump, the signal stays blocked in the kernel. So the next guarded access
  // checks the mask again.
  t_faults.open = false;
  // The program's handler may read and change the mask in `context`, so that must be the mask that the program has set.
  sigset_t& mask = static_cast<ucontext_t*>(context)->uc_sigmask;
  const unsigned closed = faults_in(mask), blocked = t_faults.blocked;
  add_faults(mask, blocked);
  if ((action.sa_flags & SA_SIGINFO) != 0)
    action.sa_sigaction(signal, info, context);
  else
    action.sa_handler(signal);
  if (!t_faults.adopted) return;
  const unsigned wanted = faults_in(mask);
  t_faults.blocked = static_cast<std::uint8_t>(wanted & (blocked | ~closed));
  remove_faults(mask, wanted & ~closed);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (!is_ours.load(std::memory_order_acquire)(info, context)) pass_on(signal, info, context);
}

}  // namespace

void use_interposed_signals(const RealSignals& functions) {
  real = functions;
  interposed = true;
}

void install_fault_handler(bool (*ours)(siginfo_t* info, void* context)) {
  const Writing writing;
  if (is_ours.load(std::memory_order_relaxed) != nullptr) return;
  is_ours.store(ours, std::memory_order_release);
  for (const int signal : kFaults) {
    struct sigaction before;
    if (real.action(signal, nullptr, &before) != 0) continue;
    disposition(signal).write(before);
    const struct sigaction front = in_front_of(before);
    real.action(signal, &front, nullptr);
  }
}

bool is_sent(const siginfo_t& info) {
  constexpr int kAsynchronousTagFault = 8;  // SEGV_MTEAERR
  return info.si_code <= 0 || (info.si_signo == SIGBUS && info.si_code == BUS_MCEERR_AO) ||
         (info.si_signo == SIGSEGV && info.si_code == kAsynchronousTagFault);
}

void set_kernel_mask(const sigset_t& mask) { real.mask(SIG_SETMASK, &mask, nullptr); }

// ---- What the interposer calls for the program

int program_action(int signal, const struct sigaction* action, struct sigaction* before) {
  struct sigaction wanted {
  }, found;
  if (action != nullptr) wanted = *action;
  int result;
  if (real.borrowed()) {
    result = real.action(signal, action, &found);
    if (result == 0 && is_in_front(found)) found = disposition(signal).read();
  } else {
    const Writing writing;
    result = real.action(signal, nullptr, &found);
    if (result == 0 && !is_in_front(found)) {  // our handler is not the one that the kernel calls
      result = real.action(signal, action != nullptr ? &wanted : nullptr, &found);
    } else if (result == 0) {
      found = disposition(signal).read();
      if (action != nullptr) {
        const struct sigaction front = in_front_of(wanted);
        struct sigaction kernel;
        result = real.action(signal, &front, nullptr);
        if (result == 0) result = real.action(signal, nullptr, &kernel);
        if (result == 0) {
          // Records the action as the kernel would report it: without the flags that the kernel does not know, and with
          // SA_RESTORER, which libc adds.
          constexpr int kRestorer = 0x04000000;  // SA_RESTORER
          wanted.sa_flags &= ~(front.sa_flags & ~kernel.sa_flags);
          wanted.sa_flags |= kernel.sa_flags & kRestorer;
          wanted.sa_restorer = kernel.sa_restorer;
          sigdelset(&wanted.sa_mask, SIGKILL);
          sigdelset(&wanted.sa_mask, SIGSTOP);
          disposition(signal).write(wanted);
        }
      }
    }
  }
  if (result == 0 && before != nullptr) *before = found;
  return result;
}

int program_mask(int how, const sigset_t* set, sigset_t* before) {
  if (!t_faults.adopted) return real.mask(how, set, before);
  const unsigned blocked = t_faults.blocked;
  const unsigned asked = set != nullptr ? faults_in(*set) : 0;
  if ((asked | blocked) == 0) return real.mask(how, set, before);
  if (set == nullptr || real.borrowed()) {
    const int error = real.mask(how, set, before);
    if (error == 0 && before != nullptr) add_faults(*before, blocked);
    return error;
  }

  sigset_t open = *set;
  if (how != SIG_UNBLOCK) remove_faults(open, kBoth);
  sigset_t was_here;
  sigset_t* const was = before != nullptr ? before : &was_here;
  if (const int error = real.mask(how, &open, was); error != 0) return error;
  // This thread has used the copy guard. So if the kernel blocks SIGSEGV or SIGBUS in it, a handler is running, or was
  // left by a jump. The signal must then stay blocked in the kernel until that handler returns.
  const unsigned closed = faults_in(*was);
  unsigned now = t_faults.blocked;
  switch (how) {
    case SIG_BLOCK: now |= asked & ~closed; break;
    case SIG_UNBLOCK: now &= ~asked; break;
    default:
      now = asked & (now | ~closed);
      if ((asked & closed) != 0) {
        const sigset_t still = set_of(asked & closed);
        real.mask(SIG_BLOCK, &still, nullptr);
      }
  }
  t_faults.blocked = static_cast<std::uint8_t>(now);
  if (before != nullptr) add_faults(*before, blocked);

  const unsigned opened = how == SIG_BLOCK ? 0 : t_faults.pending & ~now & ~(how == SIG_SETMASK ? asked & closed : 0);
  for (const int signal : kFaults) {
    if ((opened & bit_of(signal)) == 0) continue;
    t_faults.pending &= static_cast<std::uint8_t>(~bit_of(signal));
    if (t_faults.process != getpid()) continue;
    siginfo_t info{};
    std::memcpy(&info, t_faults.sent[index_of(signal)], sizeof t_faults.sent[0]);
    send_again(signal, &info);
  }
  return 0;
}

void add_pending_faults(sigset_t* pending) {
  if (t_faults.pending != 0 && t_faults.process == getpid()) add_faults(*pending, t_faults.pending);
}

unsigned close_faults() {
  if (t_faults.blocked == 0 || real.borrowed()) return 0;
  const sigset_t wanted = set_of(t_faults.blocked);
  sigset_t before;
  if (real.mask(SIG_BLOCK, &wanted, &before) != 0) return 0;
  return t_faults.blocked & ~faults_in(before);
}

void reopen_faults(unsigned closed) {
  if (closed == 0) return;
  const sigset_t set = set_of(closed);
  real.mask(SIG_UNBLOCK, &set, nullptr);
}

// ---- What the copy guard calls (guarded_copy.cc)

void detail::open_faults() {
  if (is_ours.load(std::memory_order_acquire) == nullptr) return;
  t_faults.open = true;
  if (!interposed) return;
  t_faults.adopted = true;
  sigset_t before;
  if (real.mask(SIG_BLOCK, nullptr, &before) != 0) return;
  const unsigned closed = faults_in(before);
  if (closed == 0) return;
  // Before the signals are unblocked, they are recorded as blocked by the program: a signal that is pending in the
  // kernel arrives as soon as it is unblocked, and the program's handler must not run for it.
  t_faults.blocked |= static_cast<std::uint8_t>(closed);
  const sigset_t faults = set_of(closed);
  real.mask(SIG_UNBLOCK, &faults, nullptr);
}

}  // namespace uiw
