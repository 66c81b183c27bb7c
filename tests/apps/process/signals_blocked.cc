// SPDX-License-Identifier: MIT
// Programs that block SIGSEGV and SIGBUS: masks, what is sent meanwhile, and what threads inherit.
#include <pthread.h>
#include <threads.h>

#include "tests/apps/process/signals.h"

// Programs still use the signal functions of System V and BSD.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace apps::signals {

namespace {

void blocked() {
  expect_same({[] {
                 change_mask(SIG_BLOCK, {SIGSEGV, SIGUSR1});
               },
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
}

void blocked_by_older_functions() {
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
}

// A fault of its own ends a program that has the signal blocked, handler or not.
void fault_while_blocked() {
  expect_same({[] {
                 g_pages = no_access();
                 handle(SIGSEGV, mend, 0);
                 change_mask(SIG_BLOCK, {SIGSEGV});
               },
               [] { touch(g_pages); }},
              SIGSEGV);
}

void sent_while_blocked() {
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
}

// It was sent before the thread used a connection for the first time.
void sent_while_blocked_before() {
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
}

void inherited_by_threads() {
  expect_same({[] {
                 change_mask(SIG_BLOCK, {SIGSEGV, SIGTERM});
               },
               [] {
                 pthread_t thread;
                 pthread_create(
                     &thread, nullptr,
                     [](void*) -> void* {
                       say_own_mask();
                       maybe_use_memory_that_is_gone();
                       say_own_mask();
                       return nullptr;
                     },
                     nullptr);
                 pthread_join(thread, nullptr);
                 thrd_t other;
                 thrd_create(
                     &other,
                     [](void*) -> int {
                       say_own_mask();
                       return 0;
                     },
                     nullptr);
                 thrd_join(other, nullptr);
                 say_own_mask();
               }},
              0);
}

}  // namespace

void blocked_cases(Cases& cases) {
  cases.insert({
      {"blocked", blocked},
      {"blocked_by_older_functions", blocked_by_older_functions},
      {"fault_while_blocked", fault_while_blocked},
      {"sent_while_blocked", sent_while_blocked},
      {"sent_while_blocked_before", sent_while_blocked_before},
      {"inherited_by_threads", inherited_by_threads},
  });
}

}  // namespace apps::signals
