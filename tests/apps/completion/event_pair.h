// SPDX-License-Identifier: MIT
// A Pair without rdma_cm whose ends have devices of their own, and whose completions a program sleeps for.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/apps/support/cases.h"
#include "tests/apps/support/manual.h"

namespace apps {

constexpr std::size_t kRoom = 64;

// A queue pair whose completions are slept for, on a channel of its own.
class End {
 public:
  explicit End(const Rnic& rnic)
      : queue(rnic, 64, true),
        qp(rnic, queue, {}),
        mr(reg(rnic.pd(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    if (set >= 0) close(set);
    qp.destroy();
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }

  void receive() { qp.receive(memory.data(), kRoom, mr, 1); }
  void send() { expect_error("ibv_post_send", qp.send("hi", 3, 2), 0); }
  void arm() { expect_error("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0), 0); }
  bool poll() {
    ibv_wc wc{};
    const int count = ibv_poll_cq(cq, 1, &wc);
    if (count == 1 && wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    return count == 1;
  }
  // What ibv_get_cq_event returns, or its errno.
  int event() {
    wait();
    ibv_cq* which = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel, &which, &context) != 0) return errno;
    if (which != cq) die("an event of another queue");
    ibv_ack_cq_events(cq, 1);
    return 0;
  }
  // How the program waits before it reads the event: not at all, since the read waits; in poll(); or in epoll_wait().
  enum class By : std::uint8_t { read, poll, epoll } by = By::read;
  void wait() {
    pollfd ready{channel->fd, POLLIN, 0};
    if (by == By::poll && ::poll(&ready, 1, kLong) != 1) die("poll: no event");
    if (by != By::epoll) return;
    if (set < 0) {
      set = epoll_create1(EPOLL_CLOEXEC);
      epoll_event event{EPOLLIN, {}};
      if (epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &event) != 0) die("epoll_ctl: %s", std::strerror(errno));
    }
    epoll_event events[4];
    if (epoll_wait(set, events, 4, kLong) != 1) die("epoll_wait: no event");
  }
  // The next completion, which is slept for.
  void next() {
    while (!poll()) {
      arm();
      if (poll()) return;
      expect_error("ibv_get_cq_event", event(), 0);
    }
  }

  // A completion that was polled after it had been armed for has left its event.
  void drop_events() {
    for (pollfd ready{channel->fd, POLLIN, 0}; ::poll(&ready, 1, 0) == 1;) expect_error("an event", event(), 0);
  }

  const Cq queue;
  ibv_cq* const cq = queue.get();
  ibv_comp_channel* const channel = cq->channel;
  ManualQp qp;
  std::array<char, kRoom> memory{};
  ibv_mr* const mr;
  int set = -1;
  static constexpr int kLong = static_cast<int>(kPatience / std::chrono::milliseconds(1));
};

struct EventPairOn {
  EventPairOn(const Rnic& here, const Rnic& there) : near(here), far(there) {
    connect(near.qp, far.qp);
    near.receive();
    far.receive();
  }
  void wait_by(End::By way) { near.by = far.by = way; }
  // Writes the last octet of the other end's memory.
  void write(char value) {
    SendRequest(IBV_WR_RDMA_WRITE, {number(&value), 1, 0}, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE)
        .at(number(far.memory.data() + kRoom - 1), far.mr->rkey)
        .post(near.qp.get());
  }
  // Sends this number of messages there and back.
  void talk(int rounds) {
    std::thread answerer([&] {
      for (int i = 0; i < rounds; ++i) answer();
    });
    for (int i = 0; i < rounds; ++i) ask();
    answerer.join();
  }
  void ask() {
    near.send();
    near.next();  // of the send or of the answer, whichever comes first
    near.next();
    near.receive();
  }
  void answer() {
    far.next();
    far.receive();
    far.send();
    far.next();
  }

  End near, far;
};

struct TwoDevices {
  const Rnic here{g_host}, there{g_host};
};
struct EventPair : TwoDevices, EventPairOn {
  EventPair() : EventPairOn(here, there) {}
};

}  // namespace apps
