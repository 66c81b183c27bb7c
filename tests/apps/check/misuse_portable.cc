// SPDX-License-Identifier: MIT
// What works here and not on every adapter, which `--check=all` warns of.
#include "tests/apps/check/misuse.h"

namespace apps {
namespace {

void portable_size_of(bool wrong) {
  Side side;
  ibv_qp_init_attr attributes = qp_attributes({.inline_data = wrong ? 512U : 64U});
  attributes.send_cq = attributes.recv_cq = side.cq.get();
  ibv_qp* const qp = ibv_create_qp(side.rnic.pd(), &attributes);  // AT portable-size
  ibv_destroy_qp(qp);
}

void portable_atomic_of(bool wrong) {
  Talk talk;
  alignas(8) std::uint64_t word = 0;
  ibv_mr* const mr = reg(talk.rnic.pd(), &word, sizeof word, kAll | IBV_ACCESS_REMOTE_ATOMIC);
  Request request(wrong ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_RDMA_WRITE, talk.own, 8, talk.own_mr, IBV_SEND_SIGNALED);
  request.to(&word, mr);
  if (wrong) {
    request.wr.atomic.compare_add = 1;
    request.wr.atomic.rkey = mr->rkey;
  }
  ibv_post_send(talk.near.get(), &request, &bad_send);  // AT portable-atomic
  talk.complete();
  ibv_dereg_mr(mr);
}

// On iWARP the peer's RDMA Read Response is a tagged message, as a Write is.
void portable_read_of(bool wrong) {
  Talk talk;
  char octets[8] = {};
  const int access = IBV_ACCESS_LOCAL_WRITE | (wrong ? 0 : IBV_ACCESS_REMOTE_WRITE);
  ibv_mr* const mr = reg(talk.rnic.pd(), octets, sizeof octets, access);
  Request request(IBV_WR_RDMA_READ, octets, sizeof octets, mr, IBV_SEND_SIGNALED);
  request.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // AT portable-read
  talk.complete();
  ibv_dereg_mr(mr);
}

void portable_end_of(bool wrong) {
  Talk talk;
  Request request(IBV_WR_RDMA_WRITE, talk.own, 8, talk.own_mr, wrong ? 0U : unsigned{IBV_SEND_SIGNALED});
  request.to(talk.peers, talk.peers_mr);
  ibv_post_send(talk.near.get(), &request, &bad_send);  // AT portable-end
  if (!wrong) talk.complete();
}

// More Reads at once than the peer takes. With `late` the queue pairs connect after the step to RTS, which says how
// many Reads this end makes; without it they mostly connect before that step.
void portable_reads_of(bool wrong, bool late) {
  Side side;
  ManualQp near(side.rnic, side.cq, {.inline_data = 64});  // AT portable-reads AT portable-reads-late
  ManualQp far(side.rnic, side.cq, {});
  near.to_init();
  near.to_rtr(far.place());
  if (late) near.to_rts();
  Manners few;
  few.reads_held = wrong ? 4 : 8;
  far.to_init();
  to_rtr(far.get(), side.rnic, near.place(), few);
  if (!late) near.to_rts();
  far.to_rts();
  char octet = 0;
  ibv_mr* const mr = reg(side.rnic.pd(), &octet, 1, IBV_ACCESS_LOCAL_WRITE);
  far.receive(&octet, 1, mr, 78);
  expect_error("ibv_post_send", near.send("x", 1, 77), 0);
  for (int i = 0; i < 2; ++i) {
    ibv_wc wc{};
    if (!side.cq.next(wc)) die("no completion in time");
  }
  expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

// The target of atomic operations is counted up by the processor, too.
void portable_words_of(bool wrong) {
  Talk talk;
  alignas(8) volatile std::uint64_t word = 0;
  auto* const target = const_cast<std::uint64_t*>(&word);
  ibv_mr* const mr =
      ibv_reg_mr(talk.rnic.pd(), target, sizeof word, kAll | IBV_ACCESS_REMOTE_ATOMIC);  // AT portable-words
  for (int i = 0; i < 40; ++i) {
    Request request(IBV_WR_ATOMIC_FETCH_AND_ADD, talk.own, 8, talk.own_mr, IBV_SEND_SIGNALED);
    request.wr.atomic.remote_addr = number(target);
    request.wr.atomic.compare_add = 1;
    request.wr.atomic.rkey = mr->rkey;
    ibv_post_send(talk.near.get(), &request, &bad_send);
    talk.complete();
    if (wrong) word = word + 1;
  }
  ibv_dereg_mr(mr);
}

}  // namespace

Misuses misuses_elsewhere() {
  return {{"portable-size", portable_size_of},
          {"portable-atomic", portable_atomic_of},
          {"portable-read", portable_read_of},
          {"portable-reads", [](bool wrong) { portable_reads_of(wrong, false); }},
          {"portable-reads-late", [](bool wrong) { portable_reads_of(wrong, true); }},
          {"portable-words", portable_words_of},
          {"portable-end", portable_end_of}};
}

}  // namespace apps
