// SPDX-License-Identifier: MIT
// The mutex of the library's objects: it excludes, it wakes who waits, and the child of a fork can take it.
#include "base/mutex.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>
#include <vector>

using uiw::Mutex;

namespace {

// True if the child of a fork can take the mutex, and release it.
bool free_in_child(Mutex& mutex) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    bool taken = false;
    for (int i = 0; i < 2; ++i) {
      const uiw::LockGuard lock(mutex);
      taken = !mutex.try_lock();
    }
    ::_exit(taken && mutex.try_lock() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("mutex: one thread at a time", "[mutex]") {
  Mutex mutex;
  unsigned long count = 0;
  std::atomic<unsigned> errno_changes{0};
  constexpr unsigned kThreads = 4, kTimes = 20'000;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (unsigned k = 0; k < kTimes; ++k) {
        errno = E2BIG;
        {
          const uiw::LockGuard lock(mutex);
          ++count;
          if (k % 64 == 0) std::this_thread::yield();  // so that others wait
        }
        if (errno != E2BIG) ++errno_changes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(count == kThreads * kTimes);
  CHECK(errno_changes == 0);
}

TEST_CASE("mutex: try_lock() takes a free one only, and does not wait", "[mutex]") {
  Mutex mutex;
  REQUIRE(mutex.try_lock());
  CHECK_FALSE(mutex.try_lock());
  std::atomic<bool> taken{false};
  std::thread waits([&] {
    const uiw::LockGuard lock(mutex);
    taken = true;
  });
  CHECK_FALSE(taken);
  mutex.unlock();
  waits.join();
  CHECK(taken);
  CHECK(mutex.try_lock());
  mutex.unlock();
}

TEST_CASE("mutex: the child of a fork can take it, whoever has it in the parent", "[mutex]") {
  static const bool counts = pthread_atfork(nullptr, nullptr, uiw::count_fork) == 0;
  REQUIRE(counts);
  Mutex mutex;
  CHECK(free_in_child(mutex));
  std::thread waits;
  {
    const uiw::LockGuard lock(mutex);
    CHECK(free_in_child(mutex));
    waits = std::thread([&mutex] { const uiw::LockGuard second(mutex); });
    CHECK(free_in_child(mutex));
  }
  waits.join();
  CHECK(free_in_child(mutex));
}
