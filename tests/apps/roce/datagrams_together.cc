// SPDX-License-Identifier: MIT
// Queue pairs of type UD side by side: many in a context, and several contexts. They share UDP sockets, so
// each may read what is for another.
#include <memory>
#include <set>
#include <thread>

#include "tests/apps/roce/datagrams.h"

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

}  // namespace

void together_cases(Cases& cases) {
  cases.insert({{"many_numbers", many_numbers},
                {"several_contexts", several_contexts},
                {"sleeper_beside_poller", sleeper_beside_poller},
                {"contexts_that_go", contexts_that_go}});
}

}  // namespace apps::datagrams
