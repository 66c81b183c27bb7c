// SPDX-License-Identifier: MIT
// The TCP ports behind queue pair numbers, and queue pairs connected without rdma_cm around a fork.
#include <atomic>
#include <set>

#include "tests/apps/support/manual.h"
#include "tests/apps/support/process.h"

namespace {

using apps::die;
using apps::expect_error;
using apps::in_child;
using apps::ManualQp;
using apps::Rnic;

constexpr apps::Capacity kSmall{4, 4, 1, 1, 32};
constexpr std::chrono::seconds kSoon{60};

// ---- UIW_PORT_RANGE ------------------------------------------------------------------------------------------------

// As many queue pairs as there are ports for, then none, then one again when one has gone.
void exhausted() {
  const Rnic rnic(apps::g_host);
  const apps::Cq cq(rnic, 1);
  std::vector<ManualQp> qps;
  std::set<std::uint16_t> ports;
  ibv_qp* made;
  while ((made = apps::make_qp(rnic, cq, kSmall)) != nullptr) {
    ports.insert(apps::port_of(made->qp_num));
    qps.emplace_back(rnic, made);
    if (qps.size() > 65536) die("they do not end");
  }
  expect_error("ibv_create_qp where the ports are used up", errno, ENOMEM);
  std::string text = "ports:";
  for (const std::uint16_t port : ports) text += " " + std::to_string(port);
  std::printf("%s\nqueue pairs: %zu\n", text.c_str(), qps.size());
  const std::uint32_t number = qps.back().get()->qp_num;
  qps.pop_back();
  made = apps::make_qp(rnic, cq, kSmall);
  if (made == nullptr || made->qp_num != number) die("the number of the one that has gone is not used again");
  qps.emplace_back(rnic, made);
}

// Says its port, connects a queue pair to itself and waits for its input to end.
void hold() {
  const Rnic rnic(apps::g_host);
  const apps::Cq cq(rnic, 8);
  ManualQp qp(rnic, cq, kSmall);
  qp.connect(qp.place());
  std::printf("ports: %u\n", apps::port_of(qp.get()->qp_num));
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

// ---- Fork ----------------------------------------------------------------------------------------------------------

// A connected pair of one process, and messages over it.
struct SmallPair {
  const Rnic& rnic;
  apps::Cq cq{rnic, 16};
  ManualQp near{rnic, cq, kSmall}, far{rnic, cq, kSmall};
  std::uint64_t heard[2]{};
  ibv_mr* mr = apps::reg(rnic.pd(), heard, sizeof heard, IBV_ACCESS_LOCAL_WRITE);

  explicit SmallPair(const Rnic& of) : rnic(of) { apps::connect(near, far); }
  ~SmallPair() {
    near.destroy();
    far.destroy();
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }

  void there_and_back(std::uint64_t message) {
    near.receive(&heard[0], 8, mr, 0);
    far.receive(&heard[1], 8, mr, 1);
    expect_error("ibv_post_send", near.send(&message, 8, 2), 0);
    expect_error("ibv_post_send", far.send(&message, 8, 3), 0);
    for (int i = 0; i < 4; ++i) {
      ibv_wc wc{};
      if (!cq.next(wc)) die("process %d: no completion in time", getpid());
      apps::expect_status("a message", wc, IBV_WC_SUCCESS);
    }
    if (heard[0] != message || heard[1] != message) die("another message");
  }
};

void with_children(int count, const std::function<void()>& child) {
  const Rnic rnic(apps::g_host);
  SmallPair pair(rnic);
  std::uint64_t message = 0;
  for (int i = 0; i < count; ++i) {
    pair.there_and_back(++message);
    const pid_t pid = in_child(child);
    pair.there_and_back(++message);
    apps::join(pid, kSoon);
    pair.there_and_back(++message);
  }
  // New ones too.
  SmallPair(rnic).there_and_back(++message);
}

void fork_exit() {
  with_children(50, [] {});
}
void fork_exec() {
  with_children(20, [] {
    execlp("true", "true", nullptr);
    std::_Exit(1);
  });
}
// A child opens the device anew; its ports are its own.
void fork_use() {
  with_children(20, [] {
    const Rnic rnic(apps::g_host);
    SmallPair pair(rnic);
    for (std::uint64_t i = 0; i < 20; ++i) pair.there_and_back(i);
  });
}
// And connects to its parent.
void fork_connect() {
  const Rnic rnic(apps::g_host);
  SmallPair pair(rnic);
  const apps::Pipe pipe;
  apps::Cq cq(rnic, 8);
  ManualQp qp(rnic, cq, kSmall);
  const pid_t child = in_child([&] {
    const Rnic own(apps::g_host);
    apps::Cq its(own, 8);
    ManualQp mine(own, its, kSmall);
    apps::Place peer;
    const apps::Place end = mine.place();
    apps::put(pipe.ends[1], &end, sizeof end);
    apps::get(pipe.ends[1], &peer, sizeof peer, "the parent", kSoon);
    if (apps::port_of(peer.qp) == apps::port_of(end.qp)) die("parent and child have one port");
    mine.connect(peer);
    expect_error("ibv_post_send", mine.send("there", 5, 1), 0);
    ibv_wc wc{};
    if (!its.next(wc)) die("no completion in the child");
    apps::expect_status("the child's message", wc, IBV_WC_SUCCESS);
  });
  apps::Place peer;
  const apps::Place end = qp.place();
  apps::get(pipe.ends[0], &peer, sizeof peer, "the child", kSoon);
  apps::put(pipe.ends[0], &end, sizeof end);
  char heard[8];
  ibv_mr* mr = apps::reg(rnic.pd(), heard, sizeof heard, IBV_ACCESS_LOCAL_WRITE);
  qp.to_init();
  qp.receive(heard, sizeof heard, mr, 1);
  qp.to_rtr(peer);
  ibv_wc wc{};
  if (!cq.next(wc)) die("no completion in the parent");
  apps::expect_status("what the child has sent", wc, IBV_WC_SUCCESS);
  pair.there_and_back(1);
  apps::join(child, kSoon);
  pair.there_and_back(2);
  qp.destroy();
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

// Children while connections come and go.
void fork_busy() {
  const Rnic rnic(apps::g_host);
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (std::uint64_t i = 0; !over; ++i) SmallPair(rnic).there_and_back(i);
  });
  for (int i = 0; i < 100; ++i) apps::join(in_child([] {}), kSoon);
  over = true;
  other.join();
}

// The parent ends, the child goes on: nobody listens on the parent's port.
void fork_outlive() {
  const pid_t parent = in_child([] {
    const Rnic rnic(apps::g_host);
    SmallPair pair(rnic);
    pair.there_and_back(1);
    std::printf("ports: %u\n", apps::port_of(pair.near.get()->qp_num));
    in_child([] {
      std::puts("child lives");
      std::fflush(stdout);
      while (std::getchar() != EOF) {
      }
    });
  });
  apps::join(parent, kSoon);
  std::puts("parent has ended");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}

const apps::Cases kCases = {
    {"exhausted", exhausted}, {"hold", hold},
    {"fork_exit", fork_exit}, {"fork_exec", fork_exec},
    {"fork_use", fork_use},   {"fork_connect", fork_connect},
    {"fork_busy", fork_busy}, {"fork_outlive", fork_outlive},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
