// SPDX-License-Identifier: MIT
// Programs in the shape of faults that public programs had. Others of that kind are among the other cases: a send
// buffer that only the depth of a queue guards (posted-again), an event that is requested after the last poll
// (event-missed), receives that are not posted again after RESET (receives-reset).
#include <algorithm>
#include <thread>
#include <vector>

#include "tests/apps/check/misuse.h"

namespace apps {
namespace {

void post_write(const Talk& talk, const char* octets, std::uint32_t size, unsigned flags) {
  Request request(IBV_WR_RDMA_WRITE, octets, size, talk.own_mr, flags);
  request.to(talk.peers, talk.peers_mr);
  int error = ENOMEM;
  while (error == ENOMEM) {
    error = ibv_post_send(talk.near.get(), &request, &bad_send);  // AT seldom-signaled AT head-pointer
    ibv_wc none{};
    ibv_poll_cq(talk.cq.get(), 0, &none);
  }
  expect_error("ibv_post_send", error, 0);
}

// A counter has each 64th message signaled, and the queue has 64 places; acknowledgements are not counted.
void seldom_signaled_of(bool wrong) {
  Talk talk;
  const std::uint32_t depth = query(talk.near.get(), IBV_QP_CAP).cap.max_send_wr;
  std::uint32_t counted = 0;
  const auto post = [&](bool counts) {
    const bool signaled = (counts || !wrong) && ++counted % depth == 0;
    post_write(talk, talk.own, 8, signaled ? unsigned{IBV_SEND_SIGNALED} : 0U);
    if (signaled) talk.complete();
  };
  for (std::uint32_t i = 0; i < 3 * depth; ++i) {
    post(true);
    if (i % 8 == 0) post(false);
  }
}

// A cache of regions gives up the one that was used longest ago, though the Write from it may not have completed.
void cache_of(bool wrong) {
  Talk talk;
  char octets[2][64] = {};
  ibv_mr* const mr = reg(talk.rnic.pd(), octets[0], sizeof octets[0], kAll);
  Request request(IBV_WR_RDMA_WRITE, octets[0], sizeof octets[0], mr, IBV_SEND_SIGNALED);
  request.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // OTHER cache
  if (!wrong) talk.complete();
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);  // AT cache
  if (wrong) talk.next();
}

// After the connection was lost the program makes a new queue pair, and forgets that its receives were the old one's.
void reconnected_of(bool wrong) {
  Side side;
  char octets[64] = {};
  ibv_mr* const mr = reg(side.rnic.pd(), octets, sizeof octets, kAll);
  Receive receive(octets, sizeof octets, mr);
  for (int time = 0; time < 2; ++time) {
    ManualQp near(side.rnic, side.cq, {});
    ManualQp far(side.rnic, side.cq, {});  // AT reconnected
    connect(near, far);
    if (time == 0 || !wrong) ibv_post_recv(far.get(), &receive, &bad_receive);
    expect_error("ibv_post_send", near.send("hi", 3, 77), 0);
    ibv_wc wc{};
    for (int i = 0; i < 2; ++i) {
      const bool came = side.cq.next(wc, kLate);
      if (came == (wrong && time == 1)) die("%s has come", came ? "something" : "nothing");
      if (!came) break;
    }
  }
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

// wr_id is the address of a variable of a function that has returned when the completion comes.
__attribute__((noinline)) void post_with_context(const Talk& talk, std::uint64_t* lasting) {
  std::uint64_t context = 1;
  Request request(IBV_WR_RDMA_WRITE, talk.own, 8, talk.own_mr, IBV_SEND_SIGNALED);
  request.to(talk.peers, talk.peers_mr);
  request.wr_id = reinterpret_cast<std::uintptr_t>(lasting != nullptr ? lasting : &context);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // OTHER wr-id-gone
}

void wr_id_gone_of(bool wrong) {
  Talk talk;
  std::uint64_t lasting = 1;
  post_with_context(talk, wrong ? nullptr : &lasting);
  ibv_wc wc{};
  while (ibv_poll_cq(talk.cq.get(), 1, &wc) == 0) {  // AT wr-id-gone
  }
  expect_status("the Write", wc, IBV_WC_SUCCESS);
}

// A ring's head is written to the peer from one variable, which the program counts up while the last Write of it may
// be under way.
void head_pointer_of(bool wrong) {
  Talk talk;
  for (int i = 0; i < 3; ++i) {
    ++talk.own[0];
    post_write(talk, talk.own, 1, IBV_SEND_SIGNALED);  // OTHER head-pointer
    if (!wrong) talk.complete();
  }
  for (int i = 0; wrong && i < 3; ++i) talk.complete();
}

// The program posts the receive again before it has read the message.
void posted_too_early() {
  Talk talk;
  char message[8] = "before";
  ibv_mr* const message_mr = reg(talk.rnic.pd(), message, sizeof message, IBV_ACCESS_LOCAL_WRITE);
  Receive receive(message, sizeof message, message_mr);
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);
  expect_error("ibv_post_send", talk.near.send("hi", 3, 77), 0);
  for (int i = 0; i < 2; ++i) talk.complete();
  if (std::memcmp(message, "hi\0ore", 7) != 0) die("what is behind the message has changed");
  ibv_post_recv(talk.far.get(), &receive, &bad_receive);
  std::printf("the message is %s\n", std::string(message, 2) == "hi" ? "there" : "gone");
  // A post that is refused leaves the memory as it is.
  char own[8] = "mine";
  ibv_mr* const mr = reg(talk.rnic.pd(), own, sizeof own, IBV_ACCESS_LOCAL_WRITE);
  Receive refused(own, sizeof own, mr);
  while (ibv_post_recv(talk.far.get(), &refused, &bad_receive) == 0) std::memcpy(own, "mine", 5);
  if (std::string(own) != "mine") die("a refused receive has changed its memory");
  talk.far.to_reset();
  if (std::string(message, 2) != "hi") die("a receive that was dropped has not left its memory as it was");
  for (const bool flushed : {true, false}) {
    ManualQp qp(talk.rnic, talk.cq, {});
    qp.to_init();
    ibv_post_recv(qp.get(), &receive, &bad_receive);
    if (flushed) {
      to_state(qp.get(), IBV_QPS_ERR);
      expect_status("the receive", talk.next(), IBV_WC_WR_FLUSH_ERR);
    }
    if (!flushed) qp.destroy();
    if (std::string(message, 2) != "hi") die("a receive that got no message has not left its memory as it was");
  }
  talk.far.destroy();
  for (ibv_mr* const each : {mr, message_mr}) expect_error("ibv_dereg_mr", ibv_dereg_mr(each), 0);
}

// The last octet of a message is its flag: when it has come, the program takes the others to be there. Ends once that
// was wrong, or with the last message.
int seen_in_part(int messages) {
  constexpr std::uint32_t kSize = 16 * 1024;
  const Side side;
  const ManualPairOn pair(side);
  std::vector<char> own(kSize), peers(kSize);
  ibv_mr* const own_mr = reg(side.rnic.pd(), own.data(), own.size(), kAll);
  ibv_mr* const peers_mr = reg(side.rnic.pd(), peers.data(), peers.size(), kAll);
  bool whole = true;
  for (int i = 0; whole && i < messages; ++i) {
    const char value = i % 2 == 0 ? 'x' : 'y';
    std::fill(own.begin(), own.end(), value);
    Request request(IBV_WR_RDMA_WRITE, own.data(), kSize, own_mr, IBV_SEND_SIGNALED);
    request.to(peers.data(), peers_mr);
    std::thread poster([&] { expect_error("ibv_post_send", ibv_post_send(pair.near.get(), &request, &bad_send), 0); });
    const volatile char* const seen = peers.data();
    while (seen[kSize - 1] != value) {
    }
    for (std::uint32_t at = 0; at < kSize; ++at) whole = whole && seen[at] == value;
    poster.join();
    expect_own(pair.next());
  }
  for (ibv_mr* const mr : {own_mr, peers_mr}) expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  return whole ? 0 : 1;
}

// The head of a ring goes to the peer by another queue pair than the ring's entries. The right program waits until an
// entry has been written before it writes the head.
int pointer_first(bool waits) {
  const Side side;
  const ManualPairOn entries(side), heads(side);
  char own[64], peers[64] = {};
  volatile std::uint64_t peers_head = 0;
  std::uint64_t head = 0;
  ibv_mr* const own_mr = reg(side.rnic.pd(), own, sizeof own, kAll);
  ibv_mr* const peers_mr = reg(side.rnic.pd(), peers, sizeof peers, kAll);
  ibv_mr* const head_mr = reg(side.rnic.pd(), &head, sizeof head, kAll);
  auto* const peers_word = const_cast<std::uint64_t*>(&peers_head);
  ibv_mr* const peers_head_mr = reg(side.rnic.pd(), peers_word, sizeof *peers_word, kAll);
  int times = 0;
  for (char value = 1; value < 100; ++value) {
    std::memset(own, value, sizeof own);
    ++head;
    Request entry(IBV_WR_RDMA_WRITE, own, sizeof own, own_mr, IBV_SEND_SIGNALED);
    entry.to(peers, peers_mr);
    Request pointer(IBV_WR_RDMA_WRITE, &head, sizeof head, head_mr, IBV_SEND_SIGNALED);
    pointer.to(peers_word, peers_head_mr);
    expect_error("ibv_post_send", ibv_post_send(entries.near.get(), &entry, &bad_send), 0);
    if (waits) expect_own(entries.next());
    expect_error("ibv_post_send", ibv_post_send(heads.near.get(), &pointer, &bad_send), 0);
    while (peers_head != head) {
    }
    if (*const_cast<volatile char*>(peers + sizeof peers - 1) != value) ++times;
    for (int i = waits ? 1 : 0; i < 2; ++i) expect_own(entries.next());
  }
  for (ibv_mr* const mr : {own_mr, peers_mr, head_mr, peers_head_mr}) expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  return times;
}

}  // namespace

void show_posted_too_early() { posted_too_early(); }
void count_pointer_first(bool waits) {
  std::printf("%d entries were not there when their pointer was\n", pointer_first(waits));
}
void count_seen_in_part(int messages) { std::printf("%d messages were seen in part\n", seen_in_part(messages)); }

Misuses misuses_in_public() {
  return {{"seldom-signaled", seldom_signaled_of},
          {"cache", cache_of},
          {"reconnected", reconnected_of},
          {"wr-id-gone", wr_id_gone_of},
          {"head-pointer", head_pointer_of}};
}

}  // namespace apps
