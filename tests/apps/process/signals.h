// SPDX-License-Identifier: MIT
// What the behaviours of uiw_signals are made of. A behaviour is what a process of its own sets up, does, says and ends
// with. It is seen three times: without RDMA, with a connection made before the set-up, and with one made after it.
//
// One thread of the process uses this at a time; handlers may say what they see.
#pragma once

#include <pthread.h>

#include <csetjmp>
#include <csignal>

#include "tests/apps/support/pair.h"

namespace apps::signals {

constexpr std::size_t kPage = 4096;

struct Behaviour {
  std::function<void()> set_up, act;
};

// All ways of it are one, and end with this signal, or with 0 in order.
void expect_same(const Behaviour& behaviour, int ends_by);

// A Send of registered memory that is not there any more must fail, and nothing else happens. Does nothing without
// RDMA.
void maybe_use_memory_that_is_gone();

// What the process says is compared. Safe in signal handlers, as the rest of what begins with "say".
void say(const char* text);
void say_number(const char* what, unsigned long value);
void say_mask(const char* what, const sigset_t& set);
void say_own_mask();
void say_action(int signal);

// Pages that cannot be accessed. Who makes a fault says where, as the distance from g_pages.
char* no_access(std::size_t pages = 2);
extern char* g_pages;
void touch(char* where);

sigset_t set_of(std::initializer_list<int> signals);
// pthread_sigmask(), and says what the mask was.
void change_mask(int how, std::initializer_list<int> signals);

void own_stack();
void handle(int signal, void (*handler)(int, siginfo_t*, void*), int flags, std::initializer_list<int> mask = {});
void send_to_self(int signal);

// Handlers.
void say_fault(int signal, siginfo_t* info, void* context);
void mend(int signal, siginfo_t* info, void* context);  // makes the page accessible, so that the instruction goes on
void jump_back(int signal, siginfo_t* info, void* context);
void only_say(int signal);

extern sigjmp_buf g_back;  // where jump_back() jumps to
// Faults and is jumped out of, many times.
void fault_and_jump(int times);

// Core dumps where they stay in this directory.
void allow_core_dumps();

// A stack of its own for the handler and all signals blocked around the making of threads, as language runtimes do it.
template <typename Body>
void in_thread_of_a_runtime(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  expect_error("pthread_create",
               pthread_create(
                   &thread, nullptr,
                   [](void* argument) -> void* {
                     own_stack();
                     (*static_cast<Body*>(argument))();
                     return nullptr;
                   },
                   &body),
               0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_join(thread, nullptr);
}

void blocked_cases(Cases& cases);
void handler_cases(Cases& cases);
void default_cases(Cases& cases);

}  // namespace apps::signals
