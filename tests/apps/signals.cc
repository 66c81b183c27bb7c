// SPDX-License-Identifier: MIT
// SIGSEGV and SIGBUS belong to the program: what it does with them goes the same way with connections as without, while
// registered memory that is gone is an error of a work request and nothing else, whatever the program blocks.
//
//   uiw_signals HOST PORT CASE
//
// A behaviour is what a process of its own sets up, does, says and ends with. It is seen three times: without RDMA, with
// a connection made before the set-up, and with one made after it.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <threads.h>

#include <atomic>
#include <csetjmp>
#include <csignal>

#include "cases.h"
#include "manual.h"

extern "C" sighandler_t bsd_signal(int, sighandler_t);  // declared under other standards only

// Programs still use the signal functions of System V and BSD.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using apps::die;
using apps::expect_error;

constexpr std::size_t kPage = 4096;

// ---- RDMA that meets memory which is gone ----------------------------------------------------------------------------

struct Side {
  apps::Rnic rnic{apps::g_host};
  apps::Cq cq{rnic, 64};
};
Side* g_side = nullptr;  // lives until the process ends

// A fresh pair of queue pairs of this process, that have exchanged a message: this thread itself sends and receives.
struct Couple {
  apps::HandQp a{g_side->rnic, g_side->cq, {}}, b{g_side->rnic, g_side->cq, {}};
  Couple() {
    a.connect(b.place());
    b.connect(a.place());
    char octets[32] = {};
    ibv_mr* mr = apps::reg(g_side->rnic.pd(), octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE);
    b.receive(octets, sizeof octets, mr, 1);
    expect_error("ibv_post_send", a.send("hi", 3, 2), 0);
    for (int i = 0; i < 2; ++i)
      if (const ibv_wc wc = next(); wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
  static ibv_wc next() {
    ibv_wc wc{};
    if (!g_side->cq.next(wc)) die("no completion in time");
    return wc;
  }
  static void drain() {
    ibv_wc wc{};
    while (ibv_poll_cq(g_side->cq.get(), 1, &wc) > 0) {
    }
  }
};

void connect() {
  g_side = new Side;
  const Couple couple;
}

// A Send of registered memory that is not there any more. The row has the CRC on, so that this thread reads the memory in
// ibv_post_send(), and not the kernel.
void use_memory_that_is_gone() {
  constexpr std::size_t kSize = 16 * kPage;
  const Couple couple;
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = apps::reg(g_side->rnic.pd(), memory, kSize, IBV_ACCESS_LOCAL_WRITE);
  if (mprotect(memory, kSize, PROT_NONE) != 0) die("mprotect: %s", std::strerror(errno));
  ibv_sge piece{apps::number(memory), kSize, mr->lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = 7;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  expect_error("ibv_post_send", ibv_post_send(couple.a.get(), &request, &bad), 0);
  ibv_wc wc = Couple::next();
  if (wc.wr_id != 7 || wc.status == IBV_WC_SUCCESS) die("what was not there was sent: %s", ibv_wc_status_str(wc.status));
  Couple::drain();
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  munmap(memory, kSize);
}

// Does nothing without RDMA.
void maybe_use_memory_that_is_gone() {
  if (g_side != nullptr) use_memory_that_is_gone();
}

// ---- What a process says ---------------------------------------------------------------------------------------------

int g_report = -1;

// Safe in signal handlers.
void say(const char* text) {
  if (write(g_report, text, std::strlen(text)) < 0) _exit(9);
}
void say_number(const char* what, unsigned long value) {
  char digits[24];
  char* at = digits + sizeof digits;
  *--at = '\0';
  do {
    *--at = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  say(what);
  say(" ");
  say(at);
  say("\n");
}
void say_mask(const char* what, const sigset_t& set) {
  unsigned long bits = 0;
  for (int signal = 1; signal < 32; ++signal)
    if (sigismember(&set, signal) == 1) bits |= 1UL << signal;
  say_number(what, bits);
}
void say_own_mask() {
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  say_mask("mask", set);
}
void say_action(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  say_number("flags", static_cast<unsigned>(action.sa_flags));
  say_mask("with", action.sa_mask);
  say(action.sa_handler == SIG_DFL ? "default\n" : action.sa_handler == SIG_IGN ? "ignored\n" : "handled\n");
}

// ---- Behaviours ------------------------------------------------------------------------------------------------------

struct Behaviour {
  std::function<void()> set_up, act;
};

struct Outcome {
  int status = 0;
  std::string said;
};

enum class Rdma { none, first, last };

Outcome see(const Behaviour& behaviour, Rdma rdma) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) die("pipe2: %s", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) die("fork: %s", std::strerror(errno));
  if (child == 0) {
    g_report = ends[1];
    if (rdma == Rdma::first) connect();
    behaviour.set_up();
    if (rdma == Rdma::last) connect();
    maybe_use_memory_that_is_gone();
    behaviour.act();
    maybe_use_memory_that_is_gone();
    std::_Exit(0);
  }
  close(ends[1]);
  Outcome outcome;
  const auto end = apps::Clock::now() + std::chrono::seconds(20);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - apps::Clock::now()).count();
    pollfd ready{ends[0], POLLIN, 0};
    char octets[256];
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0 || outcome.said.size() > 100'000) {
      kill(child, SIGKILL);
      break;
    }
    const ssize_t size = read(ends[0], octets, sizeof octets);
    if (size <= 0) break;
    outcome.said.append(octets, static_cast<std::size_t>(size));
  }
  close(ends[0]);
  waitpid(child, &outcome.status, 0);
  return outcome;
}

// All ways of it are one, and end with this signal, or with none.
void expect_same(const Behaviour& behaviour, int ends_by) {
  const Outcome plain = see(behaviour, Rdma::none);
  if (WIFSIGNALED(plain.status) ? WTERMSIG(plain.status) != ends_by : ends_by != 0 || WEXITSTATUS(plain.status) != 0)
    die("without RDMA it ends with %#x, and says:\n%s", static_cast<unsigned>(plain.status), plain.said.c_str());
  for (const Rdma rdma : {Rdma::first, Rdma::last}) {
    const Outcome with = see(behaviour, rdma);
    if (with.status != plain.status || with.said != plain.said)
      die("connected %s, it ends with %#x and not %#x, and says:\n%s-- instead of:\n%s",
          rdma == Rdma::first ? "before" : "after", static_cast<unsigned>(with.status),
          static_cast<unsigned>(plain.status), with.said.substr(0, 2000).c_str(), plain.said.c_str());
  }
}

// ---- What behaviours are made of -------------------------------------------------------------------------------------

// Pages that cannot be accessed.
char* no_access(std::size_t pages = 2) {
  void* memory = mmap(nullptr, pages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap: %s", std::strerror(errno));
  return static_cast<char*>(memory);
}
char* g_pages = nullptr;

void touch(char* where) { *static_cast<volatile char*>(where) = 1; }

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}
void change_mask(int how, std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  sigset_t before;
  expect_error("pthread_sigmask", pthread_sigmask(how, &set, &before), 0);
  say_mask("before", before);
}

void own_stack() {
  static thread_local char stack[65536];
  const stack_t own{stack, 0, sizeof stack};
  sigaltstack(&own, nullptr);
}
bool is_on_own_stack() {
  stack_t now{};
  sigaltstack(nullptr, &now);
  return (now.ss_flags & SS_ONSTACK) != 0;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags, std::initializer_list<int> mask = {}) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  action.sa_mask = set_of(mask);
  expect_error("sigaction", sigaction(signal, &action, nullptr), 0);
}

void say_fault(int signal, siginfo_t* info, void* context) {
  say_number("signal", static_cast<unsigned>(signal));
  say_number("code", static_cast<unsigned>(info->si_code));
  if (info->si_code > 0) say_number("at", static_cast<unsigned long>(static_cast<char*>(info->si_addr) - g_pages));
  say(is_on_own_stack() ? "on its own stack\n" : "on the thread's stack\n");
  say_mask("interrupted", static_cast<ucontext_t*>(context)->uc_sigmask);
  say_own_mask();
}

// Makes the page accessible, so that the instruction goes on.
void mend(int signal, siginfo_t* info, void* context) {
  say_fault(signal, info, context);
  mprotect(g_pages, 2 * kPage, PROT_READ | PROT_WRITE);
}

sigjmp_buf g_back;
void jump_back(int signal, siginfo_t* info, void* context) {
  say_fault(signal, info, context);
  siglongjmp(g_back, 1);
}

void only_say(int signal) { say_number("handler of", static_cast<unsigned>(signal)); }

// Faults and is jumped out of, many times.
void fault_and_jump(int times) {
  static int i;  // not a local variable, which the jump might undo
  for (i = 0; i < times; ++i) {
    if (sigsetjmp(g_back, 1) == 0) {
      touch(g_pages + i);
      say("nothing happened\n");
    }
    maybe_use_memory_that_is_gone();
  }
  say_own_mask();
}

// Core dumps where they stay in this directory.
void allow_core_dumps() {
  char pattern[2] = {};
  const int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
  const bool here = fd >= 0 && read(fd, pattern, 1) == 1 && pattern[0] != '/' && pattern[0] != '|';
  if (fd >= 0) close(fd);
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = here ? limit.rlim_max : 0;
  setrlimit(RLIMIT_CORE, &limit);
}

// A stack of its own for the handler and all signals blocked around the making of threads, as language runtimes do it.
template <typename Body>
void in_thread_of_a_runtime(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  expect_error("pthread_create", pthread_create(&thread, nullptr,
                                                [](void* argument) -> void* {
                                                  own_stack();
                                                  (*static_cast<Body*>(argument))();
                                                  return nullptr;
                                                },
                                                &body), 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_join(thread, nullptr);
}

void send_to_self(int signal) { expect_error("pthread_kill", pthread_kill(pthread_self(), signal), 0); }

apps::Cases make_cases() {
  apps::Cases cases;
  const auto nothing = [] {};

  // ---- Blocked signals -----------------------------------------------------------------------------------------------

  cases["blocked"] = [] {
    expect_same({[] { change_mask(SIG_BLOCK, {SIGSEGV, SIGUSR1}); },
                 [] {
                   say_own_mask();
                   change_mask(SIG_BLOCK, {SIGBUS});
                   maybe_use_memory_that_is_gone();
                   change_mask(SIG_UNBLOCK, {SIGSEGV, SIGUSR1});
                   maybe_use_memory_that_is_gone();
                   change_mask(SIG_SETMASK, {SIGSEGV, SIGUSR2});
                   maybe_use_memory_that_is_gone();
                   change_mask(SIG_SETMASK, {});
                   say_own_mask();
                 }},
                0);
  };

  cases["blocked_by_older_functions"] = [] {
    expect_same({[] { expect_error("sighold", sighold(SIGSEGV), 0); },
                 [] {
                   sigset_t set = set_of({SIGUSR1}), before;
                   expect_error("sigprocmask", sigprocmask(SIG_BLOCK, &set, &before), 0);
                   say_mask("before", before);
                   expect_error("sighold", sighold(SIGBUS), 0);
                   maybe_use_memory_that_is_gone();
                   say_own_mask();
                   expect_error("sigrelse", sigrelse(SIGSEGV), 0);
                   say_own_mask();
                   say_number("sigblock", static_cast<unsigned>(sigblock(1 << (SIGSEGV - 1))));
                   maybe_use_memory_that_is_gone();
                   say_number("sigsetmask", static_cast<unsigned>(sigsetmask(1 << (SIGBUS - 1))));
                   say_own_mask();
                   say_number("sigset", sigset(SIGSEGV, SIG_HOLD) == SIG_HOLD);
                   say_number("sigset", sigset(SIGSEGV, only_say) == SIG_HOLD);
                   say_own_mask();
                   say_action(SIGSEGV);
                   say_number("error", static_cast<unsigned>(sigprocmask(77, &set, nullptr) == 0 ? 0 : errno));
                 }},
                0);
  };

  // A fault of its own ends a program that has the signal blocked, handler or not.
  cases["fault_while_blocked"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   handle(SIGSEGV, mend, 0);
                   change_mask(SIG_BLOCK, {SIGSEGV});
                 },
                 [] { touch(g_pages); }},
                SIGSEGV);
  };

  cases["sent_while_blocked"] = [] {
    expect_same({[] {
                   handle(SIGSEGV, say_fault, 0);
                   change_mask(SIG_BLOCK, {SIGSEGV});
                 },
                 [] {
                   send_to_self(SIGSEGV);
                   send_to_self(SIGSEGV);
                   maybe_use_memory_that_is_gone();
                   sigset_t pending;
                   sigpending(&pending);
                   say_mask("pending", pending);
                   say("now\n");
                   change_mask(SIG_UNBLOCK, {SIGSEGV});
                   sigpending(&pending);
                   say_mask("pending", pending);
                 }},
                0);
  };

  // It was sent before the thread used a connection for the first time.
  cases["sent_while_blocked_before"] = [] {
    expect_same({[] {
                   handle(SIGSEGV, say_fault, 0);
                   change_mask(SIG_BLOCK, {SIGSEGV});
                   const sigval value{.sival_int = 42};
                   expect_error("pthread_sigqueue", pthread_sigqueue(pthread_self(), SIGSEGV, value), 0);
                 },
                 [] {
                   say("now\n");
                   change_mask(SIG_SETMASK, {});
                 }},
                0);
  };

  cases["inherited_by_threads"] = [nothing] {
    expect_same({[] { change_mask(SIG_BLOCK, {SIGSEGV, SIGTERM}); },
                 [] {
                   pthread_t thread;
                   pthread_create(&thread, nullptr, [](void*) -> void* {
                     say_own_mask();
                     maybe_use_memory_that_is_gone();
                     say_own_mask();
                     return nullptr;
                   }, nullptr);
                   pthread_join(thread, nullptr);
                   thrd_t other;
                   thrd_create(&other, [](void*) -> int {
                     say_own_mask();
                     return 0;
                   }, nullptr);
                   thrd_join(other, nullptr);
                   say_own_mask();
                 }},
                0);
  };

  // ---- Handlers ------------------------------------------------------------------------------------------------------

  cases["handler_on_its_stack"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   own_stack();
                   handle(SIGSEGV, mend, SA_ONSTACK, {SIGUSR1, SIGBUS});
                 },
                 [] {
                   say_action(SIGSEGV);
                   say_action(SIGBUS);
                   touch(g_pages + 77);
                   say_own_mask();
                   errno = 77;
                   send_to_self(SIGSEGV);
                   say_number("errno", static_cast<unsigned>(errno));
                 }},
                0);
  };

  // There is an alternate stack, and the handler does not ask for it.
  cases["handler_on_the_threads_stack"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   own_stack();
                   handle(SIGSEGV, mend, SA_NODEFER | SA_RESTART);
                 },
                 [] {
                   touch(g_pages + 5);
                   say_action(SIGSEGV);
                 }},
                0);
  };

  cases["handler_that_jumps"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   own_stack();
                   handle(SIGSEGV, jump_back, SA_ONSTACK, {SIGUSR1});
                 },
                 [] { fault_and_jump(20); }},
                0);
  };

  // Out of its handler by a jump that leaves the signal blocked: the next fault ends it.
  cases["handler_that_jumps_and_stays_blocked"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   handle(SIGSEGV, jump_back, 0);
                 },
                 [] {
                   if (sigsetjmp(g_back, 0) == 0) touch(g_pages);
                   say_own_mask();
                   maybe_use_memory_that_is_gone();
                   say_own_mask();
                   touch(g_pages);
                 }},
                SIGSEGV);
  };

  // The mask that a handler sets for itself ends with it.
  cases["masks_in_handlers"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   handle(SIGSEGV, [](int, siginfo_t*, void*) {
                     sigset_t set = set_of({SIGUSR1}), before;
                     pthread_sigmask(SIG_BLOCK, &set, &before);
                     say_mask("in", before);
                     pthread_sigmask(SIG_SETMASK, &before, nullptr);
                     say_own_mask();
                     mprotect(g_pages, kPage, PROT_READ | PROT_WRITE);
                   }, 0, {SIGBUS});
                 },
                 [] {
                   touch(g_pages);
                   say_own_mask();
                   mprotect(g_pages, kPage, PROT_NONE);
                   touch(g_pages);
                   say_own_mask();
                 }},
                0);
  };

  cases["handlers_one_after_the_other"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   signal(SIGSEGV, only_say);
                 },
                 [] {
                   say_action(SIGSEGV);
                   send_to_self(SIGSEGV);
                   say_number("same", signal(SIGSEGV, SIG_DFL) == only_say);
                   say_number("default", bsd_signal(SIGSEGV, only_say) == SIG_DFL);
                   say_number("same", ssignal(SIGSEGV, SIG_IGN) == only_say);
                   say_action(SIGSEGV);
                   send_to_self(SIGSEGV);
                   say_number("ignored", sysv_signal(SIGSEGV, only_say) == SIG_IGN);
                   say_action(SIGSEGV);
                   send_to_self(SIGSEGV);
                   say_action(SIGSEGV);
                   say_number("sigignore", static_cast<unsigned>(sigignore(SIGBUS)));
                   say_action(SIGBUS);
                   signal(SIGBUS, only_say);
                   say_number("siginterrupt", static_cast<unsigned>(siginterrupt(SIGBUS, 1)));
                   say_action(SIGBUS);
                   signal(SIGBUS, only_say);
                   say_action(SIGBUS);
                   struct sigaction action {}, before {};
                   action.sa_sigaction = mend;
                   action.sa_flags = SA_SIGINFO;
                   sigfillset(&action.sa_mask);
                   sigaction(SIGSEGV, &action, &before);
                   say_number("default", before.sa_handler == SIG_DFL);
                   say_action(SIGSEGV);
                   maybe_use_memory_that_is_gone();
                   touch(g_pages);
                   say_number("error", static_cast<unsigned>(sigaction(SIGKILL, &action, nullptr) == 0 ? 0 : errno));
                 }},
                0);
  };

  cases["reset_by_its_first_signal"] = [] {
    expect_same({[] {
                   allow_core_dumps();
                   g_pages = no_access();
                   handle(SIGSEGV, say_fault, static_cast<int>(SA_RESETHAND));
                 },
                 [] { touch(g_pages + 3); }},
                SIGSEGV);
  };

  // ---- No handler ----------------------------------------------------------------------------------------------------

  cases["fault_by_default"] = [nothing] {
    expect_same({[] {
                   allow_core_dumps();
                   g_pages = no_access();
                 },
                 [] { touch(g_pages); }},
                SIGSEGV);
    expect_same({nothing, [] { raise(SIGSEGV); }}, SIGSEGV);
    expect_same({nothing, [] { kill(getpid(), SIGBUS); }}, SIGBUS);
    // An address that no pointer can have: the processor does not tell it.
    expect_same({nothing, [] { touch(reinterpret_cast<char*>(std::uintptr_t{1} << 55)); }}, SIGSEGV);
  };

  cases["file_that_became_shorter"] = [] {
    const auto map = [] {
      const int fd = memfd_create("uiw-test", MFD_CLOEXEC);
      g_pages = static_cast<char*>(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
      close(fd);
    };
    expect_same({map, [] { touch(g_pages); }}, SIGBUS);
    expect_same({[map] {
                   map();
                   handle(SIGBUS, jump_back, SA_ONSTACK);
                 },
                 [] { fault_and_jump(3); }},
                0);
  };

  cases["ignored"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   signal(SIGSEGV, SIG_IGN);
                 },
                 [] {
                   raise(SIGSEGV);
                   say_action(SIGSEGV);
                   touch(g_pages);
                 }},
                SIGSEGV);
  };

  // ---- Runtimes ------------------------------------------------------------------------------------------------------

  cases["runtime"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   own_stack();
                   handle(SIGSEGV, jump_back, SA_ONSTACK | SA_RESTART, {SIGUSR1, SIGUSR2, SIGPROF});
                   handle(SIGBUS, jump_back, SA_ONSTACK | SA_RESTART, {SIGUSR1, SIGUSR2, SIGPROF});
                 },
                 [] {
                   in_thread_of_a_runtime([] {
                     say_own_mask();
                     for (int i = 0; i < 5; ++i) maybe_use_memory_that_is_gone();
                     say_own_mask();
                   });
                   // Another thread takes its faults back, as a runtime does for its own code.
                   in_thread_of_a_runtime([] {
                     maybe_use_memory_that_is_gone();
                     change_mask(SIG_SETMASK, {SIGUSR1});
                     fault_and_jump(5);
                   });
                   fault_and_jump(5);
                 }},
                0);
  };

  // ---- The child of a vfork ------------------------------------------------------------------------------------------

  cases["vfork"] = [] {
    expect_same({[] {
                   handle(SIGSEGV, say_fault, SA_ONSTACK);
                   change_mask(SIG_BLOCK, {SIGSEGV, SIGUSR1});
                 },
                 [] {
                   const pid_t child = vfork();
                   if (child == 0) {
                     struct sigaction fresh {}, before {};
                     fresh.sa_handler = SIG_DFL;
                     sigaction(SIGSEGV, &fresh, &before);
                     sigset_t none;
                     sigemptyset(&none);
                     pthread_sigmask(SIG_SETMASK, &none, nullptr);
                     _exit(before.sa_sigaction == say_fault ? 0 : 1);
                   }
                   int status = 0;
                   waitpid(child, &status, 0);
                   say_number("child", static_cast<unsigned>(status));
                   say_own_mask();
                   say_action(SIGSEGV);
                   maybe_use_memory_that_is_gone();
                   change_mask(SIG_UNBLOCK, {SIGSEGV});
                   send_to_self(SIGSEGV);
                 }},
                0);
  };

  // A fork's child has all of it as its own.
  cases["fork"] = [] {
    expect_same({[] {
                   g_pages = no_access();
                   handle(SIGSEGV, jump_back, SA_ONSTACK);
                   change_mask(SIG_BLOCK, {SIGBUS});
                 },
                 [] {
                   const pid_t child = fork();
                   if (child == 0) {
                     say_own_mask();
                     say_action(SIGSEGV);
                     if (sigsetjmp(g_back, 1) == 0) touch(g_pages);
                     signal(SIGSEGV, SIG_DFL);
                     touch(g_pages);
                   }
                   int status = 0;
                   waitpid(child, &status, 0);
                   say_number("child", static_cast<unsigned>(status));
                   say_action(SIGSEGV);
                   fault_and_jump(2);
                 }},
                0);
  };

  return cases;
}

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, make_cases()); }
