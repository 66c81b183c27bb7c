// SPDX-License-Identifier: MIT
// Posts in each state of a queue pair, and requests that are refused when they are posted.
#include <array>
#include <functional>

#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

std::string sent(ibv_qp* qp, const ibv_send_wr& request) { return result(post(qp, request)); }
std::string received(ibv_qp* qp, const ibv_recv_wr& request) { return result(post(qp, request)); }

void unconnected(const Device& device) {
  ibv_qp_init_attr init = qp_attributes(device);
  ibv_qp* const qp = ibv_create_qp(device.pd, &init);
  if (qp == nullptr) return;
  ibv_send_wr send{};
  send.send_flags = IBV_SEND_SIGNALED;
  say("posts: a Send in RESET", sent(qp, send));
  say("posts: a receive in RESET", received(qp, {}));
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  const int error =
      ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
  say("posts: the step to INIT", result(error));
  say("posts: a Send in INIT", sent(qp, send));
  say("posts: a receive in INIT", received(qp, {}));
  to_error(qp);
  say("posts: a Send in ERR", sent(qp, send));
  say("posts: a receive in ERR", received(qp, {}));
  for (int i = 0; i < 3; ++i)
    say("posts: completion " + std::to_string(i) + " after ERR", status_of(Pair::next(device.cq)));
  ibv_destroy_qp(qp);
}

void refused(const Device& device) {
  Pair pair(device);
  if (!pair.connected()) return say("posts: a connection", "none");
  ibv_qp* const qp = pair.near->qp;
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ibv_query_qp(qp, &now, IBV_QP_CAP, &init);
  std::array<ibv_sge, 64> pieces{};
  for (ibv_sge& piece : pieces) piece = {reinterpret_cast<std::uintptr_t>(pair.own.data()), 8, pair.own_mr->lkey};
  ibv_send_wr send{};
  send.sg_list = pieces.data();
  const auto with = [&](const char* what, const std::function<void(ibv_send_wr&)>& change) {
    ibv_send_wr request = send;
    change(request);
    say(std::string("posts: a request ") + what, sent(qp, request));
  };
  with("with more SGEs than the queue pair has",
       [&](ibv_send_wr& it) { it.num_sge = static_cast<int>(now.cap.max_send_sge) + 1; });
  with("with -1 SGEs", [](ibv_send_wr& it) { it.num_sge = -1; });
  with("with an unknown opcode", [](ibv_send_wr& it) { it.opcode = static_cast<ibv_wr_opcode>(99); });
  with("with more inline data than the queue pair has", [&](ibv_send_wr& it) {
    pieces[0].length = now.cap.max_inline_data + 1;
    it.num_sge = 1;
    it.send_flags = IBV_SEND_INLINE;
  });
  ibv_recv_wr receive{};
  receive.sg_list = pieces.data();
  receive.num_sge = static_cast<int>(now.cap.max_recv_sge) + 1;
  say("posts: a receive with more SGEs than the queue pair has", received(qp, receive));
  receive.num_sge = -1;
  say("posts: a receive with -1 SGEs", received(qp, receive));
  std::uint32_t taken = 0;
  receive.num_sge = 1;
  while (taken < 100'000 && received(qp, receive) == "0") ++taken;
  say("posts: as many receives as the queue pair says", taken >= now.cap.max_recv_wr ? "taken" : "not taken");
  say("posts: receives beyond that", taken < 100'000 ? received(qp, receive) : "taken");
  to_error(qp);
  say("posts: a receive is flushed by the step to ERR", status_of(Pair::next(pair.near_cq)));
  send.num_sge = 0;
  say("posts: a Send after that", sent(qp, send));
}

template <typename Request>
void third_is_bad(const std::string& what, ibv_qp* qp, int (*post)(ibv_qp*, Request*, Request**)) {
  std::array<ibv_sge, 64> pieces{};
  std::array<Request, 4> requests{};
  for (std::size_t i = 0; i < 3; ++i) requests[i].next = &requests[i + 1];
  requests[2].num_sge = static_cast<int>(pieces.size());
  requests[2].sg_list = pieces.data();
  Request* bad = nullptr;
  errno = 0;
  say("posts: a list of " + what + " whose third is bad", result(post(qp, requests.data(), &bad)));
  say("posts: of " + what + ", that which is said to be bad", bad == &requests[2] ? "the third" : "another");
}

void lists(const Device& device) {
  Pair pair(device);
  if (!pair.connected()) return;
  third_is_bad<ibv_recv_wr>("receives", pair.near->qp, ibv_post_recv);
  third_is_bad<ibv_send_wr>("Sends", pair.near->qp, ibv_post_send);
}

void unsignaled(const Device& device) {
  Pair pair(device);
  if (!pair.connected()) return;
  ibv_send_wr send{};
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(pair.peers.data()), 8, pair.peers_mr->lkey};
  post_receive(pair.far->qp, piece);
  send.opcode = IBV_WR_SEND;
  say("posts: a Send that is not signaled", sent(pair.near->qp, send));
  say("posts: its receive", status_of(Pair::next(pair.far_cq)));
  say("posts: its completion", status_of(Pair::next(pair.near_cq)));
  send.send_flags = IBV_SEND_SIGNALED;
  say("posts: the peer is gone", result(rdma_disconnect(pair.far)));
  rdma_disconnect(pair.near);
  say("posts: a Send after the disconnection", sent(pair.near->qp, send));
  say("posts: the completion of that", status_of(Pair::next(pair.near_cq)));
}

}  // namespace

void observe_posts(const Device& device) {
  unconnected(device);
  refused(device);
  lists(device);
  unsignaled(device);
}

}  // namespace observe
