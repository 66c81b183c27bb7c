// SPDX-License-Identifier: MIT
// Programs that have handlers for SIGSEGV and SIGBUS: stacks, masks, jumps out of them, and one after the other.
#include <sys/mman.h>

#include "tests/apps/process/signals.h"

extern "C" sighandler_t bsd_signal(int, sighandler_t);  // declared under other standards only

// Programs still use the signal functions of System V and BSD.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace apps::signals {

namespace {

void handler_on_its_stack() {
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
}

// There is an alternate stack, and the handler does not ask for it.
void handler_on_the_threads_stack() {
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
}

void handler_that_jumps() {
  expect_same({[] {
                 g_pages = no_access();
                 own_stack();
                 handle(SIGSEGV, jump_back, SA_ONSTACK, {SIGUSR1});
               },
               [] { fault_and_jump(20); }},
              0);
}

// Out of its handler by a jump that leaves the signal blocked: the next fault ends it.
void handler_that_jumps_and_stays_blocked() {
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
}

// The mask that a handler sets for itself ends with it.
void masks_in_handlers() {
  expect_same({[] {
                 g_pages = no_access();
                 handle(SIGSEGV,
                        [](int, siginfo_t*, void*) {
                          sigset_t set = set_of({SIGUSR1}), before;
                          pthread_sigmask(SIG_BLOCK, &set, &before);
                          say_mask("in", before);
                          pthread_sigmask(SIG_SETMASK, &before, nullptr);
                          say_own_mask();
                          mprotect(g_pages, kPage, PROT_READ | PROT_WRITE);
                        },
                        0, {SIGBUS});
               },
               [] {
                 touch(g_pages);
                 say_own_mask();
                 mprotect(g_pages, kPage, PROT_NONE);
                 touch(g_pages);
                 say_own_mask();
               }},
              0);
}

void handlers_one_after_the_other() {
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
                 struct sigaction action {
                 }, before{};
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
}

void reset_by_its_first_signal() {
  expect_same({[] {
                 allow_core_dumps();
                 g_pages = no_access();
                 handle(SIGSEGV, say_fault, static_cast<int>(SA_RESETHAND));
               },
               [] { touch(g_pages + 3); }},
              SIGSEGV);
}

}  // namespace

void handler_cases(Cases& cases) {
  cases.insert({
      {"handler_on_its_stack", handler_on_its_stack},
      {"handler_on_the_threads_stack", handler_on_the_threads_stack},
      {"handler_that_jumps", handler_that_jumps},
      {"handler_that_jumps_and_stays_blocked", handler_that_jumps_and_stays_blocked},
      {"masks_in_handlers", masks_in_handlers},
      {"handlers_one_after_the_other", handlers_one_after_the_other},
      {"reset_by_its_first_signal", reset_by_its_first_signal},
  });
}

}  // namespace apps::signals
