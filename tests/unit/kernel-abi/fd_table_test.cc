// SPDX-License-Identifier: MIT
// Sources: kernel-abi/interposer/fd_table.cc, fd_changes.cc (parts of the interposer, not of libuiw.so.1)
#include "kernel-abi/interposer/fd_table.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <thread>

#include "kernel-abi/interposer/fd_changes.h"

using namespace uiw::kernel_abi;

TEST_CASE("descriptors are ours from attach to take") {
  CHECK_FALSE(fd_lookup(-1).present());
  CHECK_FALSE(fd_lookup(1 << 30).present());
  REQUIRE(fd_attach(77, FdEntry(0x12a)) == 0);
  CHECK(fd_lookup(77).object() == 0x12a);
  CHECK(fd_lookup(77).kind() == 2);
  CHECK_FALSE(fd_table_is_borrowed());
  CHECK(fd_take(77).object() == 0x12a);
  CHECK_FALSE(fd_take(77).present());
  CHECK(fd_attach(1 << 30, FdEntry(0x12a)) == EMFILE);
  CHECK(fd_attach(-1, FdEntry(0x12a)) == EMFILE);
}

TEST_CASE("internal descriptors go by themselves, and only they") {
  REQUIRE(fd_attach(80, FdEntry(kInternalObject)) == 0);
  REQUIRE(fd_attach(81, FdEntry(0x12a)) == 0);
  CHECK(fd_lookup(80).internal());
  CHECK_FALSE(fd_lookup(81).internal());
  CHECK_FALSE(FdEntry().internal());
  fd_unprotect(80);
  fd_unprotect(81);
  fd_unprotect(82);
  fd_unprotect(-1);
  CHECK_FALSE(fd_lookup(80).present());
  CHECK(fd_take(81).object() == 0x12a);
}

TEST_CASE("a forked child may close what the library had in its parent") {
  REQUIRE(fd_attach(83, FdEntry(kInternalObject)) == 0);
  const pid_t child = fork();
  if (child == 0) _exit(fd_lookup(83).present() ? 1 : 0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(fd_lookup(83).internal());
  fd_unprotect(83);
}

TEST_CASE("a forked child has the program's descriptors, and looks for what is behind one of rdma_cm") {
  REQUIRE(fd_attach(77, FdEntry(0x120 | UIW_OBJECT_UVERBS)) == 0);
  pid_t without = fork();
  if (without == 0) _exit(g_fork_left_channels ? 1 : 0);
  int of_without = -1;
  REQUIRE(waitpid(without, &of_without, 0) == without);
  CHECK(of_without == 0);
  REQUIRE(fd_attach(78, FdEntry(0x120 | UIW_OBJECT_CM)) == 0);
  const pid_t child = fork();
  if (child == 0) {
    bool good = fd_lookup(78).object() == (0x120 | UIW_OBJECT_CM) && !fd_table_is_borrowed();
    good = good && fd_lookup(77).present() && g_fork_left_channels;
    good = good && fd_attach(79, FdEntry(0x1)) == 0 && fd_take(78).present();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(fd_lookup(78).present());
  CHECK_FALSE(g_fork_left_channels);
  CHECK_FALSE(fd_lookup(79).present());
  fd_take(77);
  fd_take(78);
}

TEST_CASE("the program's close waits for a change of another thread, and a change for the program's close") {
  constexpr std::chrono::milliseconds kMoment{10};  // for the other thread to go on, if it does not wait
  std::atomic<int> step{0};
  bool active = false;
  int before_close = -1, before_change = -1;
  fd_begin_change();
  std::thread program, library;
  program = std::thread([&] {
    const FdClosing closing;
    active = closing.is_active();
    before_close = step.exchange(2);
    library = std::thread([&] {
      fd_begin_change();
      before_change = step.exchange(4);
      fd_end_change();
    });
    std::this_thread::sleep_for(kMoment);
    step = 3;
  });
  std::this_thread::sleep_for(kMoment);
  step = 1;
  fd_end_change();
  program.join();
  library.join();
  CHECK(active);
  CHECK(before_close == 1);
  CHECK(before_change == 3);
}

TEST_CASE("neither side waits for what its own thread does, nor for ever") {
  fd_begin_change();
  fd_begin_change();
  {
    const FdClosing closing;
    CHECK(closing.is_active());
  }
  fd_end_change();
  fd_end_change();
  const FdClosing own;
  fd_begin_change();
  fd_end_change();
  errno = ELOOP;
  std::thread([] {
    for (int i = 0; i < 3; ++i) {
      fd_begin_change();  // goes on after a moment
      fd_end_change();
    }
  }).join();
  fd_begin_change();
  std::thread([] {
    for (int i = 0; i < 3; ++i) const FdClosing closing;
  }).join();
  fd_end_change();
  CHECK(errno == ELOOP);
}

TEST_CASE("a forked child does not wait for the threads that it does not have") {
  REQUIRE(fd_attach(84, FdEntry(kInternalObject)) == 0);
  std::atomic<bool> begun{false}, ended{false};
  std::thread library([&] {
    fd_begin_change();
    begun = true;
    while (!ended) std::this_thread::yield();
    fd_end_change();
  });
  while (!begun) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    const auto before = std::chrono::steady_clock::now();
    const FdClosing closing;
    _exit(std::chrono::steady_clock::now() - before < std::chrono::milliseconds(500) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ended = true;
  library.join();
  fd_unprotect(84);
}
