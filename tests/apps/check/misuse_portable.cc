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

}  // namespace

Misuses misuses_elsewhere() {
  return {{"portable-size", portable_size_of},
          {"portable-atomic", portable_atomic_of},
          {"portable-read", portable_read_of},
          {"portable-end", portable_end_of}};
}

}  // namespace apps
