// SPDX-License-Identifier: MIT
// Queue pairs of type UD side by side: many in a context, several contexts, and the children of a fork. They share UDP
// sockets, so each may read what is for another.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <thread>

#include "tests/apps/roce/datagrams.h"
#include "tests/apps/support/process.h"

namespace apps::datagrams {

namespace {

// A queue pair with all that it needs, in a context of its own.
struct End {
  Device device;
  Queue queue{device}, sends{device};
  Memory memory{device, 64};
  Qp qp{device, queue.cq, nullptr, sends.cq};
  explicit End(std::uint64_t receives = 0) {
    for (std::uint64_t slot = 0; slot < receives; ++slot) qp.receive(memory, slot);
  }
  std::uint32_t number() const { return qp.qp->qp_num; }
  void send(std::uint32_t to, std::uint64_t message) const {
    expect_error("ibv_post_send", qp.send(to, message, 1), 0);
    sends.next();
  }
  // The next message; its receive is posted again.
  std::uint64_t next(bool sleep = false) const {
    const ibv_wc wc = queue.next(sleep);
    expect(wc.qp_num == number(), "a completion of another queue pair");
    const std::uint64_t message = memory.message(wc.wr_id);
    qp.receive(memory, wc.wr_id);
    return message;
  }
};

void talk(const End& one, const End& other) {
  static std::atomic<std::uint64_t> last{0};
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t message = ++last;
    one.send(other.number(), message);
    expect(other.next(i % 2 == 1) == message, "another message");
  }
}

// More than a UDP port has numbers for.
void many_numbers() {
  const Device device;
  const Queue queue(device, 1024), sends(device);
  const Memory memory(device, 600);
  const Qp sender(device, sends.cq);
  std::vector<std::unique_ptr<Qp>> all;
  std::set<std::uint32_t> numbers, ports;
  for (std::uint64_t slot = 0; slot < 600; ++slot) {
    all.push_back(std::make_unique<Qp>(device, queue.cq));
    all.back()->receive(memory, slot);
    const std::uint32_t number = all.back()->qp->qp_num;
    expect(number < 0xFFFFFF && numbers.insert(number).second, "a number that was there already");
    ports.insert(number >> 8);
  }
  expect(ports.size() >= 3, "600 queue pairs have fewer than three ports");
  for (std::uint64_t slot = 0; slot < 600; ++slot) {
    expect_error("ibv_post_send", all[599 - slot]->send(all[slot]->qp->qp_num, slot), 0);
    const ibv_wc wc = queue.next();
    expect(wc.wr_id == slot && wc.qp_num == all[slot]->qp->qp_num, "another receive");
    expect(wc.src_qp == all[599 - slot]->qp->qp_num && memory.message(slot) == slot, "another message");
  }
  all.erase(all.begin(), all.begin() + 500);
  all[0]->receive(memory, 0);
  expect_error("ibv_post_send", sender.send(all[0]->qp->qp_num, 77), 0);
  queue.next();
  expect(memory.message(0) == 77, "another message");
}

// Messages go around between threads, of which some poll and some sleep.
void several_contexts() {
  constexpr unsigned kEnds = 4;
  constexpr std::uint64_t kRounds = 500;
  std::vector<std::unique_ptr<End>> ends;
  for (unsigned i = 0; i < kEnds; ++i) ends.push_back(std::make_unique<End>(16));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kEnds; ++i) {
    threads.emplace_back([&, i] {
      const std::uint32_t next = ends[(i + 1) % kEnds]->number();
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        if (i == 0) ends[i]->send(next, round);
        expect(ends[i]->next(i % 2 == 1) == round, "another message");
        if (i != 0) ends[i]->send(next, round);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One context polls all the time, and reads what is for the other, which sleeps.
void sleeper_beside_poller() {
  const End poller(16), sleeper(16);
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    while (!stop) expect(poller.queue.empty(), "a message that was for another");
  });
  const End sender;
  for (std::uint64_t message = 0; message < 500; ++message) {
    sender.send(sleeper.number(), message);
    expect(sleeper.next(true) == message, "another message");
  }
  stop = true;
  thread.join();
}

// Contexts come and go while others talk.
void contexts_that_go() {
  const End one(16), other(16);
  for (int turn = 0; turn < 30; ++turn) {
    {
      const End guest(16);
      talk(one, guest);
      talk(guest, other);
    }
    talk(one, other);
    talk(other, one);
  }
}

// A UDP socket of the program, and the number of a queue pair that would have its port.
int plain_socket(std::uint32_t& number) {
  const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    die("no UDP socket: %s", std::strerror(errno));
  number = std::uint32_t{ntohs(address.sin6_port)} << 8;
  return fd;
}

// What the child closed may be something else now: nothing of the parent's queue pair may be written there.
void post_as_child(const End& inherited, const std::set<int>& before) {
  std::uint32_t heard_number = 0, own_number = 0;
  const int heard = plain_socket(heard_number), own = plain_socket(own_number);
  const std::set<int> now = open_numbers();
  for (const int fd : before) {
    if (!now.contains(fd)) dup2(own, fd);
  }
  const int error = inherited.qp.send(heard_number, 1);
  char octets[256];
  expect(recv(heard, octets, sizeof octets, 0) < 0 && errno == EAGAIN, "a child has sent for its parent");
  expect_error("ibv_post_send in a child", error, EIO);
  expect_error("ibv_modify_qp in a child", inherited.qp.step(IBV_QPS_ERR, 0), EIO);
}

[[noreturn]] void live_as_child(End& inherited, const std::set<int>& before) {
  alarm(30);
  const std::uint32_t parent = inherited.number();
  expect(inherited.queue.empty(), "a completion of the parent's");
  post_as_child(inherited, before);
  inherited.qp.destroy();
  const End own(16), another(16);
  expect(own.number() != parent && another.number() != parent, "a number of the parent's");
  talk(own, another);
  talk(own, own);
  own.send(parent, ~0ULL);
  std::_Exit(0);
}

// Children have queue pairs of their own, and reach the parent's; the parent's go on.
void forks() {
  const End one(16), other(16);
  End inherited(16);
  for (int turn = 0; turn < 10; ++turn) {
    talk(one, other);
    const std::set<int> before = open_numbers();
    const pid_t child = in_child([&] { live_as_child(inherited, before); });
    talk(other, one);  // while the child lives
    join(child, std::chrono::seconds(60));
    expect(inherited.next() == ~0ULL, "another message than the child's");
    talk(one, inherited);
  }
}

// The same while other threads of the parent send, receive, and make queue pairs and the first or last of a context.
// They open no devices: libibverbs' own lock would stay locked in a child.
void forks_under_traffic() {
  End inherited(16);
  const End one(16), other(16);
  const Device unused;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!stop) talk(one, other);
  });
  threads.emplace_back([&] {
    const Queue queue(unused);
    while (!stop) const Qp guest(unused, queue.cq);
  });
  threads.emplace_back([&] {
    const Queue queue(other.device);
    while (!stop) const Qp guest(other.device, queue.cq);
  });
  for (int turn = 0; turn < 20; ++turn) {
    const std::set<int> before = open_numbers();
    const pid_t child = in_child([&] { live_as_child(inherited, before); });
    join(child, std::chrono::seconds(60));
    expect(inherited.next() == ~0ULL, "another message than the child's");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void together_cases(Cases& cases) {
  cases.insert({{"many_numbers", many_numbers},
                {"several_contexts", several_contexts},
                {"sleeper_beside_poller", sleeper_beside_poller},
                {"contexts_that_go", contexts_that_go},
                {"forks", forks},
                {"forks_under_traffic", forks_under_traffic}});
}

}  // namespace apps::datagrams
