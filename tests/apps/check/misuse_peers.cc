// SPDX-License-Identifier: MIT
// Misuse that shows when messages of a peer come: events that are slept for in vain, receives that are missing or are
// written into, requests that are refused.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/apps/check/misuse.h"

namespace apps {
namespace {

// ---- Memory ----

void sink_written_of(bool wrong) {
  Talk talk;
  Receive receive(talk.peers, 64, talk.peers_mr);
  if (!wrong) talk.peers[5] = 'x';
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);  // OTHER sink-written
  if (wrong) talk.peers[5] = 'x';
  Request request(IBV_WR_SEND, talk.own, 64, talk.own_mr, IBV_SEND_SIGNALED);
  ibv_post_send(talk.near.get(), &request, &bad_send);
  for (int i = 0; i < 2; ++i) {
    ibv_wc wc{};
    while (ibv_poll_cq(talk.cq.get(), 1, &wc) == 0) {  // AT sink-written
    }
    expect_own(wc);
  }
}

// The message is there, and its completion has not been polled. The check has noted the message's octets once the next
// message is there, too.
void message_written_of(bool wrong) {
  Talk talk;
  Receive receive(talk.peers, 64, talk.peers_mr), second(talk.peers + 64, 8, talk.peers_mr);
  talk.own[71] = 'x';
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);  // OTHER message-written
  ibv_post_recv(talk.far.get(), &second, &bad_receive);
  Request request(IBV_WR_SEND, talk.own, 64, talk.own_mr, IBV_SEND_SIGNALED);
  ibv_post_send(talk.near.get(), &request, &bad_send);
  Request behind(IBV_WR_SEND, talk.own + 64, 8, talk.own_mr, IBV_SEND_SIGNALED);
  ibv_post_send(talk.near.get(), &behind, &bad_send);
  ibv_wc none{};
  while (*const_cast<volatile char*>(talk.peers + 71) != 'x') ibv_poll_cq(talk.cq.get(), 0, &none);
  if (wrong) talk.peers[3] = 'y';
  for (int i = 0; i < 4; ++i) {
    ibv_wc wc{};
    while (ibv_poll_cq(talk.cq.get(), 1, &wc) == 0) {  // AT message-written
    }
    expect_own(wc);
  }
  talk.peers[3] = 'y';
}

// Drained, the queue pair sends the request only at the step to RTS.
void answer_written_of(ibv_wr_opcode opcode, bool wrong) {
  Talk talk;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    ibv_dereg_mr(talk.peers_mr);
    talk.peers_mr = reg(talk.rnic.pd(), talk.peers, sizeof talk.peers, kAll | IBV_ACCESS_REMOTE_ATOMIC);
  }
  Request request(opcode, talk.own, 8, talk.own_mr, IBV_SEND_SIGNALED);
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    request.wr.atomic.remote_addr = number(talk.peers);
    request.wr.atomic.rkey = talk.peers_mr->rkey;
  } else {
    request.to(talk.peers, talk.peers_mr);
  }
  to_state(talk.near.get(), IBV_QPS_SQD);
  if (!wrong) talk.own[3] = 'x';
  ibv_post_send(talk.near.get(), &request, &bad_send);  // OTHER read-written OTHER atomic-written
  if (wrong) talk.own[3] = 'x';
  to_state(talk.near.get(), IBV_QPS_RTS);
  ibv_wc wc{};
  while (ibv_poll_cq(talk.cq.get(), 1, &wc) == 0) {  // AT read-written AT atomic-written
  }
  expect_own(wc);
}
void read_written_of(bool wrong) { answer_written_of(IBV_WR_RDMA_READ, wrong); }
void atomic_written_of(bool wrong) { answer_written_of(IBV_WR_ATOMIC_FETCH_AND_ADD, wrong); }

// The answer is there, and its completion has not been polled.
void answer_changed_of(bool wrong) {
  Talk talk;
  talk.peers[63] = 'x';
  Request request(IBV_WR_RDMA_READ, talk.own, 64, talk.own_mr, IBV_SEND_SIGNALED);
  request.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // OTHER answer-changed
  ibv_cq* const cq = talk.cq.get();
  ibv_wc wc{};
  // It may be placed and not be complete yet, so there is a second one behind it.
  Request second(IBV_WR_RDMA_READ, talk.own + 64, 64, talk.own_mr, IBV_SEND_SIGNALED);
  second.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &second, &bad_send);
  while (*const_cast<volatile char*>(talk.own + 127) != 'x') ibv_poll_cq(cq, 0, &wc);
  if (wrong) talk.own[3] = 'y';
  for (int i = 0; i < 2; ++i) {
    while (ibv_poll_cq(cq, 1, &wc) == 0) {  // AT answer-changed
    }
    expect_own(wc);
  }
  talk.own[3] = 'y';
}

// Stores into memory into which the peer writes, or behind it.
void target_written_of(bool wrong) {
  constexpr std::uint32_t kSize = 512 * 1024;
  constexpr int kMeetings = 20;
  Side side;
  ManualPairOn pair(side);
  std::vector<char> own(kSize), peers(kSize + 64);
  ibv_mr* const own_mr = reg(side.rnic.pd(), own.data(), own.size(), kAll);
  ibv_mr* const peers_mr = ibv_reg_mr(side.rnic.pd(), peers.data(), peers.size(), kAll);  // AT target-written
  std::atomic<bool> ends{false};
  std::atomic<unsigned> stores{0};
  std::thread writer([&] {
    volatile char* const octet = peers.data() + (wrong ? 0 : kSize);
    for (; !ends; ++stores) *octet = 'x';
  });
  // The thread may not run at the time of a Write.
  for (int meetings = 0; meetings < kMeetings;) {
    const unsigned before = stores;
    Request request(IBV_WR_RDMA_WRITE, own.data(), kSize, own_mr, IBV_SEND_SIGNALED);
    request.to(peers.data(), peers_mr);
    ibv_post_send(pair.near.get(), &request, &bad_send);
    expect_own(pair.next());
    if (stores != before) ++meetings;
  }
  ends = true;
  writer.join();
  pair.near.destroy();
  pair.far.destroy();
  for (ibv_mr* const mr : {own_mr, peers_mr}) expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

struct Mapped {
  std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* octets = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void unmap() const { munmap(octets, size); }
};

void unmapped_of(bool wrong) {
  Side side;
  const Mapped memory;
  ibv_mr* const mr = ibv_reg_mr(side.rnic.pd(), memory.octets, memory.size, kAll);  // OTHER unmapped
  if (wrong) memory.unmap();
  ibv_dereg_mr(mr);  // AT unmapped
  if (!wrong) memory.unmap();
}

void read_only_of(bool wrong) {
  Side side;
  ManualQp qp(side.rnic, side.cq, {});
  qp.to_init();
  const Mapped memory;
  ibv_mr* const mr = ibv_reg_mr(side.rnic.pd(), memory.octets, memory.size, kAll);  // OTHER read-only
  mprotect(memory.octets, memory.size, PROT_READ | (wrong ? 0 : PROT_WRITE));
  Receive receive(memory.octets, 64, mr);
  ibv_post_recv(qp.get(), &receive, &bad_receive);  // AT read-only
  mprotect(memory.octets, memory.size, PROT_READ | PROT_WRITE);
  qp.destroy();
  ibv_dereg_mr(mr);
  memory.unmap();
}

// ---- Refused requests: reported where they are refused, and where they were posted ----

void refused_of(bool wrong, int rights, std::uint32_t beyond, bool gone) {
  Talk talk;
  char octets[64] = {};
  ibv_mr* mr = ibv_reg_mr(talk.rnic.pd(), octets, sizeof octets, wrong ? rights : kAll);  // AT refused
  const ibv_mr copy = *mr;
  if (wrong && gone) ibv_dereg_mr(std::exchange(mr, nullptr));  // AT refused-gone
  Request request(IBV_WR_RDMA_WRITE, talk.own, 32, talk.own_mr, IBV_SEND_SIGNALED);
  request.to(octets + (wrong ? beyond : 0), &copy);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // AT access-refused
  const ibv_wc wc = talk.next();
  expect_status("the Write", wc, wrong ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
  if (mr != nullptr) ibv_dereg_mr(mr);
}
void range_refused_of(bool wrong) { refused_of(wrong, kAll, 48, false); }
void right_refused_of(bool wrong) { refused_of(wrong, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 0, false); }
void gone_refused_of(bool wrong) { refused_of(wrong, kAll, 0, true); }

// ---- Events ----

// Two queue pairs that are connected, each with a completion queue and a channel of its own.
struct Sleepers {
  const Rnic rnic{g_host};
  const Cq near_cq{rnic, 16, true}, far_cq{rnic, 16, true};
  ManualQp near{rnic, near_cq, {}}, far{rnic, far_cq, {}};
  char octets[64] = {};
  ibv_mr* const mr = reg(rnic.pd(), octets, sizeof octets, kAll);
  explicit Sleepers(int receives = 2) {
    connect(near, far);
    for (int i = 0; i < receives; ++i) receive(i);
  }
  void receive(int which) const { far.receive(const_cast<char*>(octets) + 32 * which, 32, mr, 78); }
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;
  ~Sleepers() {
    near.destroy();
    far.destroy();
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
  // The message has arrived when this returns.
  void send(unsigned flags) {
    expect_error("ibv_post_send", near.send("hi", 3, 77, IBV_SEND_SIGNALED | flags), 0);
    ibv_wc wc{};
    while (ibv_poll_cq(near_cq.get(), 1, &wc) == 0) {
    }
  }
  static void acknowledge(ibv_cq* cq) { ibv_ack_cq_events(cq, 1); }
  int poll() const {
    ibv_wc wc{};
    return ibv_poll_cq(far_cq.get(), 1, &wc);
  }
};

void event_missed_of(bool wrong) {
  Sleepers ends;
  int messages = ends.poll();
  ends.send(0);
  ibv_req_notify_cq(ends.far_cq.get(), 0);  // OTHER event-missed
  if (!wrong) messages += ends.poll();
  std::thread late([&] {
    std::this_thread::sleep_for(kLate);
    ends.send(0);
  });
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ibv_get_cq_event(ends.far_cq.get()->channel, &cq, &context);  // AT event-missed
  Sleepers::acknowledge(cq);
  while (messages < 2) messages += ends.poll();
  late.join();
}

void event_not_requested_of(bool wrong) {
  Sleepers ends;
  ends.poll();
  const ibv_cq* const requested = wrong ? ends.near_cq.get() : ends.far_cq.get();
  ibv_req_notify_cq(const_cast<ibv_cq*>(requested), 0);  // OTHER event-not-requested
  std::thread late([&] {
    ends.send(0);
    std::this_thread::sleep_for(kLate);
    if (wrong) ibv_req_notify_cq(ends.far_cq.get(), 0);
    ends.send(0);
  });
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ibv_get_cq_event(ends.far_cq.get()->channel, &cq, &context);  // AT event-not-requested
  Sleepers::acknowledge(cq);
  late.join();
  if (!wrong) return;
  ibv_get_cq_event(ends.near_cq.get()->channel, &cq, &context);
  Sleepers::acknowledge(cq);
}

void event_not_solicited_of(bool wrong) {
  Sleepers ends(1);
  ibv_req_notify_cq(ends.far_cq.get(), 1);  // OTHER event-not-solicited
  ends.poll();
  std::thread late([&] {
    ends.send(wrong ? 0U : unsigned{IBV_SEND_SOLICITED});
    std::this_thread::sleep_for(kLate);
    ends.receive(1);
    ends.send(IBV_SEND_SOLICITED);
  });
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ibv_get_cq_event(ends.far_cq.get()->channel, &cq, &context);  // AT event-not-solicited
  Sleepers::acknowledge(cq);
  late.join();
}

// ---- Receives ----

// The message has waited for a receive for longer than the queue pairs allow.
void receive_missing_of(bool wrong) {
  Side side;
  ManualQp near(side.rnic, side.cq, {}), far(side.rnic, side.cq, {});  // not connected by connect(): they wait 10 us
  const Manners impatient{.rnr_retries = 0, .rnr_timer = 1};
  for (const auto& [own, peer] : {std::pair(&near, &far), std::pair(&far, &near)}) {
    to_init(own->get(), impatient);
    to_rtr(own->get(), side.rnic, peer->place(), impatient);
    to_rts(own->get(), 0, impatient);
  }
  char octets[32] = {};
  ibv_mr* const mr = reg(side.rnic.pd(), octets, sizeof octets, kAll);
  Receive receive(octets, sizeof octets, mr);
  ibv_wc wc{};
  const auto complete = [&] {
    for (int i = 0; i < 2; ++i) {
      if (!side.cq.next(wc)) die("no completion in time");
      expect_status("the message", wc, IBV_WC_SUCCESS);
    }
  };
  // Both ends send, and have set how often they try again.
  ibv_post_recv(near.get(), &receive, &bad_receive);
  expect_error("ibv_post_send", far.send("hi", 3, 77), 0);
  complete();
  if (!wrong) ibv_post_recv(far.get(), &receive, &bad_receive);
  expect_error("ibv_post_send", near.send("hi", 3, 77), 0);
  const auto until = Clock::now() + std::chrono::milliseconds(20);
  for (int polls = 0; wrong && (polls < 1000 || Clock::now() < until); ++polls) {
    if (ibv_poll_cq(side.cq.get(), 1, &wc) != 0) die("something has completed");
  }
  if (wrong) ibv_post_recv(far.get(), &receive, &bad_receive);  // AT receive-missing
  complete();
  near.destroy();
  far.destroy();
  ibv_dereg_mr(mr);
}

void receives_reset_of(bool wrong) {
  Talk talk;
  Receive receive(talk.peers, 64, talk.peers_mr);
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);  // OTHER receives-reset
  talk.near.to_reset();
  to_state(talk.far.get(), IBV_QPS_RESET);  // AT receives-reset
  connect(talk.near, talk.far);
  if (!wrong) ibv_post_recv(talk.far.get(), &receive, &bad_receive);
  // What it sends needs no receive.
  talk.near.receive(talk.own, 64, talk.own_mr, 78);
  expect_error("ibv_post_send", talk.far.send("hi", 3, 77), 0);
  for (int i = 0; i < 2; ++i) talk.complete();
  expect_error("ibv_post_send", talk.near.send("hi", 3, 77), 0);
  ibv_wc wc{};
  const bool came = talk.cq.next(wc, kLate);
  if (came == wrong) die("%s message has come", wrong ? "a" : "no");
  if (!wrong) talk.complete();
}

// ---- Threads ----

// The thread is told to end after the queue has gone, or before.
void used_by_another_of(bool wrong) {
  const Rnic rnic(g_host);
  ibv_cq* const cq = ibv_create_cq(rnic.context(), 16, nullptr, nullptr, 0);
  std::atomic<bool> ended{false};
  std::atomic<unsigned> polls{0};
  std::thread poller([&] {
    ibv_wc wc{};
    while (!ended) {
      ibv_poll_cq(cq, 1, &wc);  // AT used-by-another
      ++polls;
    }
  });
  while (polls < 100) std::this_thread::yield();
  if (!wrong) {
    ended = true;
    poller.join();
  }
  ibv_destroy_cq(cq);  // OTHER used-by-another
  if (!wrong) return;
  for (const unsigned before = polls; polls < before + 10;) std::this_thread::yield();
  ended = true;
  poller.join();
}

// ---- Posts that fail ----

void post_ignored_of(bool wrong) {
  Side side;
  ManualQp near(side.rnic, side.cq, {.send_wr = 8}), far(side.rnic, side.cq, {});
  connect(near, far);
  char octets[64] = {};
  ibv_mr* const mr = reg(side.rnic.pd(), octets, sizeof octets, kAll);
  const auto depth = static_cast<int>(query(near.get(), IBV_QP_CAP).cap.max_send_wr);
  int refused = 0;
  Request request(IBV_WR_SEND, octets + 63, 1, mr, IBV_SEND_SIGNALED);
  for (int i = 0; i < depth + 1; ++i) {
    if (ibv_post_send(near.get(), &request, &bad_send) != 0) ++refused;  // AT post-ignored
  }
  if (refused != 1) die("%d requests of %d were refused", refused, depth + 1);
  for (int i = 0; i < depth + 1; ++i) far.receive(octets + i, 1, mr, 78);
  const auto complete = [&](int count) {
    ibv_wc wc{};
    for (int i = 0; i < count; ++i) {
      if (!side.cq.next(wc)) die("no completion in time");
      expect_status("a message", wc, IBV_WC_SUCCESS);
    }
  };
  complete(2 * depth);
  if (!wrong) {
    ibv_post_send(near.get(), &request, &bad_send);
    complete(2);
  }
  ibv_wc wc{};
  if (side.cq.next(wc, kLate)) die("a request that was refused has completed");
  near.destroy();
  far.destroy();
  ibv_dereg_mr(mr);
}

}  // namespace

Misuses misuses_of_peers() {
  return {{"sink-written", sink_written_of},
          {"message-written", message_written_of},
          {"read-written", read_written_of},
          {"atomic-written", atomic_written_of},
          {"answer-changed", answer_changed_of},
          {"target-written", target_written_of},
          {"unmapped", unmapped_of},
          {"read-only", read_only_of},
          {"range-refused", range_refused_of},
          {"right-refused", right_refused_of},
          {"gone-refused", gone_refused_of},
          {"event-missed", event_missed_of},
          {"event-not-requested", event_not_requested_of},
          {"event-not-solicited", event_not_solicited_of},
          {"receive-missing", receive_missing_of},
          {"receives-reset", receives_reset_of},
          {"used-by-another", used_by_another_of},
          {"post-ignored", post_ignored_of}};
}

}  // namespace apps
