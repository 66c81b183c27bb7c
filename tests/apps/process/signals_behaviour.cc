// SPDX-License-Identifier: MIT
// What the behaviours of uiw_signals are made of: a process that is watched, what it says, and its signals.
#include "tests/apps/process/signals.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/apps/support/manual_pair.h"

namespace apps::signals {

namespace {

int g_report = -1;  // what the process says goes here

Side* g_side = nullptr;  // lives until the process ends

void connect() {
  g_side = new Side;
  ManualPairOn(*g_side).talk();
}

// A Send of registered memory that is not there any more. The row has the CRC on, so that this thread reads the memory
// in ibv_post_send(), and not the kernel.
void use_memory_that_is_gone() {
  constexpr std::size_t kSize = 16 * kPage;
  const ManualPairOn pair(*g_side);
  pair.talk();
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = reg(g_side->rnic.pd(), memory, kSize, IBV_ACCESS_LOCAL_WRITE);
  if (mprotect(memory, kSize, PROT_NONE) != 0) die("mprotect: %s", std::strerror(errno));
  SendRequest(IBV_WR_SEND, {number(memory), kSize, mr->lkey}, 7).post(pair.near.get());
  ibv_wc wc = pair.next();
  if (wc.wr_id != 7 || wc.status == IBV_WC_SUCCESS)
    die("what was not there was sent: %s", ibv_wc_status_str(wc.status));
  while (ibv_poll_cq(g_side->cq.get(), 1, &wc) > 0) {
  }
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  munmap(memory, kSize);
}

}  // namespace

void maybe_use_memory_that_is_gone() {
  if (g_side != nullptr) use_memory_that_is_gone();
}

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

namespace {

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
  const auto end = Clock::now() + std::chrono::seconds(20);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
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

}  // namespace

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

char* no_access(std::size_t pages) {
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
namespace {

bool is_on_own_stack() {
  stack_t now{};
  sigaltstack(nullptr, &now);
  return (now.ss_flags & SS_ONSTACK) != 0;
}

}  // namespace

void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags, std::initializer_list<int> mask) {
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

void send_to_self(int signal) { expect_error("pthread_kill", pthread_kill(pthread_self(), signal), 0); }

}  // namespace apps::signals
