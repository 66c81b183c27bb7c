// SPDX-License-Identifier: MIT
// Channels of rdma_cm events: who waits there, who shares them, and what moves between them.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/kernel-abi/kernel_abi_rig.h"

using namespace uiw::test;

namespace {

// Once the thread has said its number: it sleeps in the kernel, having nothing to do but to wait.
bool falls_asleep(const std::atomic<pid_t>& thread) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (std::string stat; std::chrono::steady_clock::now() < end; std::this_thread::yield()) {
    if (thread == 0) continue;
    std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat") >> stat >> stat >> stat;
    if (stat == "S") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("an id moves to another channel with its events") {
  Node from("rdma_cm");
  Node to("rdma_cm");
  const std::uint32_t id = create_id(from);
  REQUIRE(resolve(from, id, ipv4("127.0.0.1", 1)) == 0);
  rdma_ucm_migrate_resp response = {7};
  rdma_ucm_migrate_id command = {};
  command.response = address_of(response);
  command.id = id;
  command.fd = 0x7fffffff;
  CHECK(run(to, RDMA_USER_CM_CMD_MIGRATE_ID, command, sizeof response) == -ENOENT);
  command.fd = static_cast<__u32>(from.fd());
  REQUIRE(run(to, RDMA_USER_CM_CMD_MIGRATE_ID, command, sizeof response) == 0);
  CHECK(response.events_reported == 0);
  CHECK_FALSE(from.readable());
  CHECK(to.readable());
  CHECK(destroy_id(from, id) == -EINVAL);
  CHECK(destroy_id(to, id) == 0);
  CHECK_FALSE(to.readable());
}

TEST_CASE_METHOD(CmNode, "a program may write an event of its own") {
  const std::uint32_t id = create_id(node, RDMA_PS_TCP, 5);
  struct {
    __u32 id, reserved, event, status;
    __u64 argument;
    std::uint8_t rest[sizeof(rdma_ucm_ud_param) - 8];
  } command = {id, 0, kUser, 3, 0x1122334455667788, {}};
  REQUIRE(run(node, 24, command) == 0);
  rdma_ucm_event_resp event = {};
  REQUIRE(get_event(node, event) == 0);
  CHECK(event.event == kUser);
  CHECK(event.status == 3);
  CHECK(event.uid == 5);
  std::uint64_t argument;
  std::memcpy(&argument, &event.param, sizeof argument);
  CHECK(argument == 0x1122334455667788);
  command.event = kAddrResolved;
  CHECK(run(node, 24, command) == -EINVAL);
}

TEST_CASE_METHOD(CmNodeWithId, "a waiting program is woken by an event and by a signal, not by the close") {
  rdma_ucm_event_resp event = {};
  long woken = -1;
  std::atomic<pid_t> waits{0};
  std::thread waiter([&] {
    waits = ::gettid();
    woken = get_event(node, event);
  });
  REQUIRE(falls_asleep(waits));
  CHECK(resolve(node, id, ipv4("127.0.0.1", 1)) == 0);
  waiter.join();
  CHECK(woken == 0);
  CHECK(event.event == kAddrResolved);

  uint64_t object = 0;
  const int fd = abi().open("rdma_cm", O_RDWR | O_CLOEXEC, &object);
  REQUIRE(fd >= 0);
  std::atomic<bool> ended{false};
  std::atomic<pid_t> waits_too{0};
  std::thread second([&] {
    waits_too = ::gettid();
    rdma_ucm_event_resp nothing = {};
    const rdma_ucm_get_event command = {address_of(nothing)};
    const auto octets = encode(RDMA_USER_CM_CMD_GET_EVENT, command, sizeof nothing, sizeof command);
    woken = abi().write(object, fd, octets.data(), octets.size());
    ended = true;
  });
  REQUIRE(falls_asleep(waits_too));
  // As in the kernel: its call keeps the file open, and the thread goes on waiting.
  abi().release(object, fd);
  ::close(fd);
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  while (!ended) {  // the first signal may come before it waits
    ::pthread_kill(second.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  second.join();
  CHECK(woken < 0);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("a command that was begun before the close of its channel goes on as in the kernel") {
  const bool waits = GENERATE(true, false);
  uint64_t object = 0;
  const int fd = abi().open("rdma_cm", O_RDWR | O_CLOEXEC | (waits ? 0 : O_NONBLOCK), &object);
  REQUIRE(fd >= 0);
  abi().release(object, fd);
  ::close(fd);
  const auto get = [&] {
    rdma_ucm_event_resp nothing = {};
    const rdma_ucm_get_event command = {address_of(nothing)};
    const auto octets = encode(RDMA_USER_CM_CMD_GET_EVENT, command, sizeof nothing, sizeof command);
    return abi().write(object, fd, octets.data(), octets.size());
  };
  if (!waits) {
    CHECK(get() == -EAGAIN);
    return;
  }
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  std::atomic<bool> ended{false};
  long woken = 0;
  std::thread late([&] {
    woken = get();
    ended = true;
  });
  while (!ended) {
    ::pthread_kill(late.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  late.join();
  CHECK(woken == -EINTR);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE_METHOD(CmNode, "a channel lives until its last descriptor") {
  abi().retain(node.object());
  abi().release(node.object(), node.fd());
  CHECK(destroy_id(node, create_id(node)) == 0);
}

TEST_CASE("many threads share a channel") {
  Node node("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&node] {
      for (int i = 0; i < 50; ++i) {
        rdma_ucm_create_id_resp created = {};
        rdma_ucm_create_id create = {};
        create.uid = 1;
        create.ps = RDMA_PS_TCP;
        create.response = address_of(created);
        run(node, RDMA_USER_CM_CMD_CREATE_ID, create, sizeof created);
        resolve(node, created.id, ipv4("127.0.0.1", 1));
        run(node, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{created.id, 1});
        rdma_ucm_event_resp event = {};
        if (i % 2 == 0) get_event(node, event);
        destroy_id(node, created.id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(node.readable());
}
