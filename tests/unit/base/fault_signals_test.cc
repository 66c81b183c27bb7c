// SPDX-License-Identifier: MIT
// Handlers are of a whole process and installed once, so each test is the child of a fork.
#include "base/fault_signals.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/guarded_copy.h"

using namespace uiw;

namespace {

// How a process ends that does this; it has 30 seconds.
int end_of(int (*body)()) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(30);
    ::_exit(body());
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}
bool ended_by(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }

constexpr std::size_t kPage = 4096;
std::byte* no_access() {
  return static_cast<std::byte*>(::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
void touch(std::byte* where) { *static_cast<volatile std::byte*>(where) = std::byte{1}; }
bool guard_works() {
  std::byte own[8];
  return !guarded_copy(own, no_access(), sizeof own);
}

volatile int handled = 0;
std::byte* page = nullptr;
sigjmp_buf back;

void count(int) { handled = handled + 1; }
void mend(int, siginfo_t* info, void*) {
  if (info->si_addr != page) ::_exit(80);
  handled = handled + 1;
  ::mprotect(page, kPage, PROT_READ | PROT_WRITE);
}

struct sigaction make_action(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  return action;
}
void set_mend() {
  struct sigaction action = make_action(SIG_DFL, SA_SIGINFO);
  action.sa_sigaction = mend;
  ::sigaction(SIGSEGV, &action, nullptr);
}

sigset_t set_of(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}
bool kernel_blocks(int signal) {
  sigset_t now;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}
bool program_blocks(int signal) {
  sigset_t now;
  program_mask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}

// As the interposer does it.
void interpose() {
  use_interposed_signals({::sigaction, ::pthread_sigmask, [] { return false; }});
}

}  // namespace

TEST_CASE("fault_signals: a handler that was there first runs once with SA_RESETHAND", "[fault_signals]") {
  const int status = end_of([] {
    page = no_access();
    const struct sigaction action = make_action(
        [](int) {
          if (handled != 0) ::_exit(81);
          handled = 1;
        },
        static_cast<int>(SA_RESETHAND));
    ::sigaction(SIGSEGV, &action, nullptr);
    install_copy_guard();
    if (!guard_works()) return 1;
    touch(page);
    return 2;
  });
  CHECK(ended_by(status, SIGSEGV));
}

TEST_CASE("fault_signals: ignored and default signals without the interposer", "[fault_signals]") {
  CHECK(end_of([] {
          ::signal(SIGSEGV, SIG_IGN);
          install_copy_guard();
          ::raise(SIGSEGV);
          return guard_works() ? 0 : 1;
        }) == 0);
  CHECK(ended_by(end_of([] {
                   ::signal(SIGSEGV, SIG_IGN);
                   install_copy_guard();
                   touch(no_access());
                   return 0;
                 }),
                 SIGSEGV));
  CHECK(ended_by(end_of([] {
                   ::signal(SIGBUS, SIG_DFL);
                   install_copy_guard();
                   ::raise(SIGBUS);
                   return 0;
                 }),
                 SIGBUS));
}

// What a handler may do that interrupts a guarded access.
void interrupt() {
  touch(page);                      // is the program's
  if (!guard_works()) ::_exit(82);  // and another guarded access may begin and end
}

TEST_CASE("fault_signals: faults during a guarded access that are not its own are the program's", "[fault_signals]") {
  CHECK(end_of([] {
          page = no_access();
          set_mend();
          install_copy_guard();
          std::byte octets[8] = {};
          bool ran = false;
          if (!guarded_call(
                  [](void* argument) {
                    interrupt();
                    *static_cast<bool*>(argument) = true;
                  },
                  &ran, octets, sizeof octets))
            return 1;
          if (!ran || handled != 1) return 2;
          // The outer one still has its guard afterwards.
          ::mprotect(page, kPage, PROT_NONE);
          std::byte* gone = no_access();
          if (guarded_call(
                  [](void* argument) {
                    interrupt();
                    touch(static_cast<std::byte*>(argument));
                  },
                  gone, gone, kPage))
            return 3;
          return handled == 2 ? 0 : 4;
        }) == 0);
}

TEST_CASE("fault_signals: a guarded fault leaves mask and alternate stack as they were", "[fault_signals]") {
  CHECK(end_of([] {
          static char stack[65536];
          constexpr int kAutoDisarm = static_cast<int>(1U << 31);  // SS_AUTODISARM
          const stack_t own{stack, kAutoDisarm, sizeof stack};
          const stack_t plain{stack, 0, sizeof stack};
          if (::sigaltstack(&own, nullptr) != 0 && ::sigaltstack(&plain, nullptr) != 0) return 1;
          struct sigaction action = make_action(count, SA_ONSTACK);
          sigfillset(&action.sa_mask);  // ours runs with the same
          ::sigaction(SIGSEGV, &action, nullptr);
          install_copy_guard();
          const sigset_t blocked = set_of(SIGUSR2);
          ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
          if (!guard_works() || !guard_works()) return 2;
          if (kernel_blocks(SIGUSR1) || kernel_blocks(SIGSEGV) || !kernel_blocks(SIGUSR2)) return 3;
          stack_t now{};
          ::sigaltstack(nullptr, &now);
          return now.ss_sp == stack && handled == 0 ? 0 : 4;
        }) == 0);
}

TEST_CASE("fault_signals: without the interposer masks are not touched", "[fault_signals]") {
  CHECK(end_of([] {
          install_copy_guard();
          const sigset_t set = set_of(SIGSEGV);
          ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
          std::byte a[8] = {}, b[8] = {};
          return guarded_copy(a, b, sizeof a) && kernel_blocks(SIGSEGV) ? 0 : 1;
        }) == 0);
}

TEST_CASE("fault_signals: what is blocked stays open in the kernel", "[fault_signals]") {
  CHECK(end_of([] {
          interpose();
          const sigset_t set = set_of(SIGSEGV);
          program_mask(SIG_BLOCK, &set, nullptr);
          if (!kernel_blocks(SIGSEGV)) return 1;  // nothing is guarded yet
          install_copy_guard();
          if (!guard_works() || kernel_blocks(SIGSEGV) || !program_blocks(SIGSEGV)) return 2;
          program_mask(SIG_UNBLOCK, &set, nullptr);
          if (program_blocks(SIGSEGV)) return 3;
          sigset_t before;
          program_mask(SIG_SETMASK, &set, nullptr);
          program_mask(SIG_BLOCK, &set, &before);
          if (sigismember(&before, SIGSEGV) != 1 || sigismember(&before, SIGBUS) != 0) return 4;
          if (!guard_works() || kernel_blocks(SIGSEGV)) return 5;
          // For a thread that is made, and back.
          const unsigned closed = close_faults();
          if (!kernel_blocks(SIGSEGV) || !program_blocks(SIGSEGV)) return 6;
          reopen_faults(closed);
          if (kernel_blocks(SIGSEGV) || !program_blocks(SIGSEGV)) return 7;
          return program_mask(77, &set, nullptr) == EINVAL && program_blocks(SIGSEGV) ? 0 : 8;
        }) == 0);
}

TEST_CASE("fault_signals: the child of a vfork changes the kernel's state only", "[fault_signals]") {
  CHECK(end_of([] {
          static bool borrowed = false;
          use_interposed_signals({::sigaction, ::pthread_sigmask, [] { return borrowed; }});
          const sigset_t set = set_of(SIGSEGV);
          const struct sigaction own = make_action(count, SA_RESTART);
          install_copy_guard();
          program_action(SIGSEGV, &own, nullptr);
          if (!guard_works()) return 1;
          program_mask(SIG_BLOCK, &set, nullptr);
          borrowed = true;
          struct sigaction kernel, before;
          ::sigaction(SIGSEGV, nullptr, &kernel);
          const struct sigaction fresh = make_action(SIG_DFL, 0);
          program_action(SIGSEGV, &fresh, &before);
          if (before.sa_handler != count) return 2;
          program_mask(SIG_UNBLOCK, &set, nullptr);
          // As the kernel has it in the parent.
          borrowed = false;
          ::sigaction(SIGSEGV, &kernel, nullptr);
          program_action(SIGSEGV, nullptr, &before);
          return before.sa_handler == count && program_blocks(SIGSEGV) ? 0 : 3;
        }) == 0);
}

TEST_CASE("fault_signals: handlers change while threads fault and ask", "[fault_signals]") {
  CHECK(end_of([] {
          interpose();
          install_copy_guard();
          // Each has a flag and a mask of its own, so that a mixture of both shows.
          static struct sigaction either[2];
          either[0] = make_action([](int) { siglongjmp(back, 1); }, SA_NODEFER);
          either[1] = make_action([](int) { siglongjmp(back, 1); }, SA_NODEFER | SA_RESTART);
          sigaddset(&either[1].sa_mask, SIGUSR1);
          program_action(SIGSEGV, &either[0], nullptr);
          static std::atomic<bool> stop{false};
          std::thread writer([] {
            for (int i = 0; i < 3000; ++i) program_action(SIGSEGV, &either[i & 1], nullptr);
            stop = true;
          });
          page = no_access();
          static int mixed;
          while (!stop) {
            struct sigaction now;
            program_action(SIGSEGV, nullptr, &now);
            const bool second = now.sa_handler == either[1].sa_handler;
            mixed +=
                second != ((now.sa_flags & SA_RESTART) != 0) || second != (sigismember(&now.sa_mask, SIGUSR1) == 1);
            if (sigsetjmp(back, 1) == 0) touch(page);
            if (!guard_works()) ::_exit(1);
          }
          writer.join();
          return mixed == 0 ? 0 : 2;
        }) == 0);
}

TEST_CASE("fault_signals: the child of a fork can set handlers, whatever other threads were doing", "[fault_signals]") {
  CHECK(end_of([] {
          interpose();
          install_copy_guard();
          static const struct sigaction action = make_action(count, 0);
          static std::atomic<bool> stop{false};
          std::thread writer([] {
            while (!stop) program_action(SIGBUS, &action, nullptr);
          });
          int wrong = 0;
          for (int i = 0; i < 50; ++i) {
            const pid_t child = ::fork();
            if (child == 0) {
              ::alarm(10);
              program_action(SIGSEGV, &action, nullptr);
              ::raise(SIGSEGV);
              ::_exit(handled == 1 && guard_works() ? 0 : 1);
            }
            int status = -1;
            ::waitpid(child, &status, 0);
            wrong += status != 0;
          }
          stop = true;
          writer.join();
          return wrong == 0 ? 0 : 1;
        }) == 0);
}
