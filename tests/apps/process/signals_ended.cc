// SPDX-License-Identifier: MIT
// Signals that end the program or are ignored, and the ways of runtimes and of children.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/apps/process/signals.h"

namespace apps::signals {

namespace {

void fault_by_default() {
  expect_same({[] {
                 allow_core_dumps();
                 g_pages = no_access();
               },
               [] { touch(g_pages); }},
              SIGSEGV);
  expect_same({[] {}, [] { raise(SIGSEGV); }}, SIGSEGV);
  expect_same({[] {}, [] { kill(getpid(), SIGBUS); }}, SIGBUS);
  // An address that no pointer can have: the processor does not tell it.
  expect_same({[] {}, [] { touch(reinterpret_cast<char*>(std::uintptr_t{1} << 55)); }}, SIGSEGV);
}

void file_that_became_shorter() {
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
}

void ignored() {
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
}

void runtime() {
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
}

void child_of_vfork() {
  expect_same({[] {
                 handle(SIGSEGV, say_fault, SA_ONSTACK);
                 change_mask(SIG_BLOCK, {SIGSEGV, SIGUSR1});
               },
               [] {
                 const pid_t child = vfork();
                 if (child == 0) {
                   struct sigaction fresh {
                   }, before{};
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
}

// A fork's child has all of it as its own.
void forked_child() {
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
}

}  // namespace

void default_cases(Cases& cases) {
  cases.insert({
      {"fault_by_default", fault_by_default},
      {"file_that_became_shorter", file_that_became_shorter},
      {"ignored", ignored},
      {"runtime", runtime},
      {"vfork", child_of_vfork},
      {"fork", forked_child},
  });
}

}  // namespace apps::signals
