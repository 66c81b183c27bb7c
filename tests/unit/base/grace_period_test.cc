// SPDX-License-Identifier: MIT
#include "base/grace_period.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace uiw;

TEST_CASE("grace_period: without readers there is no wait", "[grace_period]") {
  for (int i = 0; i < 100; ++i) wait_for_readers();
  { const ReadSection section; }
  wait_for_readers();
}

TEST_CASE("grace_period: waits for the sections that were open, nested ones too", "[grace_period]") {
  std::atomic<int> stage{0};
  std::atomic<bool> left{false};
  std::thread reader([&] {
    const ReadSection outer;
    { const ReadSection inner; }
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    left = true;
  });
  while (stage != 1) std::this_thread::yield();
  std::thread opener([&] { stage = 2; });
  wait_for_readers();
  CHECK(left);
  reader.join();
  opener.join();
}

namespace {
// How often the thread has slept. It does not count what sched_yield() does.
unsigned long sleeps_of(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("voluntary_ctxt_switches:")) return std::stoul(line.substr(line.find(':') + 1));
  }
  return 0;
}
}  // namespace

TEST_CASE("grace_period: who waits for a long section sleeps, so that it leaves the processor to any thread",
          "[grace_period]") {
  const auto waiter = static_cast<pid_t>(::syscall(SYS_gettid));
  std::atomic<bool> open{false}, slept{false};
  std::thread reader([&] {
    const ReadSection section;
    const unsigned long before = sleeps_of(waiter) + 1;  // and this one, if the waiter sleeps until `open`
    open = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!slept && std::chrono::steady_clock::now() < end) slept = sleeps_of(waiter) >= before + 3;
  });
  while (!open) std::this_thread::yield();
  wait_for_readers();
  CHECK(slept);
  reader.join();
}

TEST_CASE("grace_period: a mutex for what uses the program's memory is held inside a section only", "[grace_period]") {
  SectionMutex mutex;
  std::atomic<int> stage{0};
  std::atomic<bool> released{false};
  const bool tries = GENERATE(false, true);
  std::thread holder([&] {
    if (tries) {
      while (!mutex.try_lock()) std::this_thread::yield();
    } else {
      mutex.lock();
    }
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    released = true;
    mutex.unlock();
  });
  while (stage != 1) std::this_thread::yield();
  CHECK_FALSE(mutex.try_lock());  // and leaves no section open
  std::thread opener([&] { stage = 2; });
  wait_for_readers();
  CHECK(released);
  holder.join();
  opener.join();
}

TEST_CASE("grace_period: does not wait for sections that open later", "[grace_period]") {
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  std::atomic<unsigned> rounds{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!over) {
        const ReadSection section;
        ++rounds;
      }
    });
  }
  while (rounds < 100) std::this_thread::yield();
  for (int i = 0; i < 200; ++i) wait_for_readers();
  over = true;
  for (auto& reader : readers) reader.join();
}

TEST_CASE("grace_period: no reader uses an object after it was taken away", "[grace_period]") {
  struct Object {
    std::uint64_t value = 42;
    std::uint64_t copy = 42;
  };
  std::atomic<Object*> shared{new Object};
  std::atomic<bool> over{false};
  std::atomic<unsigned> bad{0}, rounds{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        const ReadSection section;
        const Object* object = shared.load(std::memory_order_acquire);
        if (object != nullptr && (object->value != 42 || object->copy != 42)) ++bad;
        ++rounds;
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    Object* old = shared.exchange(i % 3 == 0 ? nullptr : new Object, std::memory_order_seq_cst);
    wait_for_readers();
    if (old != nullptr) old->value = 0;
    delete old;
  }
  while (rounds == 0) std::this_thread::yield();
  over = true;
  for (auto& thread : threads) thread.join();
  delete shared.load();
  CHECK(bad == 0);
}

TEST_CASE("grace_period: threads come and go, and writers wait at once", "[grace_period]") {
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      while (!over) wait_for_readers();
    });
  }
  for (int i = 0; i < 200; ++i) {
    std::thread([] {
      for (int j = 0; j < 10; ++j) {
        const ReadSection section;
      }
    }).join();
  }
  over = true;
  for (auto& writer : writers) writer.join();
}
