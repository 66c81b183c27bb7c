// SPDX-License-Identifier: MIT
// The socket that stands in for NETLINK_RDMA, in a process of several threads.
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/kernel-abi/kernel_abi_rig.h"

using namespace uiw::test;

namespace {

int make_socket() { return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK); }

// A request whose answer is one datagram, an acknowledgement.
bool request(int fd, std::uint32_t sequence) {
  nlmsghdr header = {};
  header.nlmsg_len = sizeof header;
  header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_PORT_GET);
  header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  header.nlmsg_seq = sequence;
  return abi().write(UIW_OBJECT_NETLINK, fd, &header, sizeof header) == sizeof header;
}

// The sum of the sequence numbers of all answers that are there.
std::uint32_t answered(int fd) {
  std::uint32_t sum = 0;
  struct {
    nlmsghdr header;
    nlmsgerr body;
  } answer;
  while (::recv(fd, &answer, sizeof answer, MSG_DONTWAIT) >= 0) sum += answer.header.nlmsg_seq;
  return sum;
}

}  // namespace

TEST_CASE("threads that use a socket for the first time at once get an answer each", "[native]") {
  REQUIRE(abi().root(0) != nullptr);
  constexpr int kRounds = 20000;
  constexpr int kOthers = 3;
  std::atomic<int> fd = -1;
  std::atomic<int> round = 0;
  std::atomic<int> ready = 0;
  std::atomic<int> refused = 0;
  int lost = 0;
  std::vector<std::thread> others;
  for (std::uint32_t number = 1; number <= kOthers; ++number)
    others.emplace_back([&, number] {
      for (int mine = 1; mine <= kRounds; ++mine) {
        while (round != mine) std::this_thread::yield();
        if (!request(fd, number)) ++refused;
        ++ready;
      }
    });
  while (round < kRounds) {
    fd = make_socket();
    ready = 0;
    ++round;
    if (!request(fd, 100)) ++refused;
    while (ready != kOthers) std::this_thread::yield();
    if (answered(fd) != 1 + 2 + 3 + 100) ++lost;
    ::close(fd);
  }
  for (std::thread& other : others) other.join();
  CHECK(refused == 0);
  CHECK(lost == 0);
}

TEST_CASE("the child of a fork may ask while another thread of its parent asks", "[native]") {
  REQUIRE(abi().root(0) != nullptr);
  std::atomic<bool> enough = false;
  std::thread other([&] {
    while (!enough) {
      const int fd = make_socket();
      request(fd, 1);
      ::close(fd);
    }
  });
  int failed = 0;
  for (int round = 0; round < 200 && failed == 0; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // ends it if it waits for a lock that nobody holds
      const int fd = make_socket();
      ::_exit(request(fd, 5) && answered(fd) == 5 ? 0 : 1);
    }
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  enough = true;
  other.join();
  CHECK(failed == 0);
}
