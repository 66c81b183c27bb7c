// SPDX-License-Identifier: MIT
// Asynchronous events: which come, about what, and when; the limits of shared receive queues, and completion queues
// that overrun.
#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

constexpr int kQuiet = 700;  // milliseconds after which no more events are waited for

std::string told(const Device& device, const Pair* pair = nullptr) {
  return await_events(device, kQuiet, [pair](const ibv_async_event& event) {
    std::string text = ibv_event_type_str(event.event_type);
    if (pair != nullptr && event.element.qp == pair->near->qp) text += " (near)";
    if (pair != nullptr && pair->far != nullptr && event.element.qp == pair->far->qp) text += " (far)";
    return text;
  });
}

ibv_send_wr request_of(ibv_wr_opcode opcode, ibv_sge& piece) {
  ibv_send_wr request{};
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &piece;
  request.num_sge = 1;
  return request;
}

// What each end is told of an error.
void errors(const Device& device) {
  const auto at = [](auto& memory) { return reinterpret_cast<std::uint64_t>(memory.data()); };
  const auto look = [&](const std::string& what, auto act) {
    Pair pair(device);
    if (!pair.connected()) return say("events: " + what, "not connected");
    told(device);
    ibv_sge piece{at(pair.own), 64, pair.own_mr->lkey};
    act(pair, piece);
    say("events: " + what, told(device, &pair));
  };
  const auto one_sided = [&](ibv_wr_opcode opcode, bool right) {
    return [&, opcode, right](Pair& pair, ibv_sge& piece) {
      ibv_send_wr request = request_of(opcode, piece);
      request.wr.rdma = {at(pair.peers), right ? pair.peers_mr->rkey : 0xABCDEF01};
      outcome_of(pair.near->qp, request);
    };
  };
  look("a connection, and nothing more", [](Pair&, ibv_sge&) {});
  look("a Write that succeeds", one_sided(IBV_WR_RDMA_WRITE, true));
  look("a Write to a key that is none", one_sided(IBV_WR_RDMA_WRITE, false));
  look("a Read from a key that is none", one_sided(IBV_WR_RDMA_READ, false));
  look("a Read into a key that is none", [&](Pair& pair, ibv_sge& piece) {
    piece.lkey = 0xABCDEF01;
    one_sided(IBV_WR_RDMA_READ, true)(pair, piece);
  });
  look("a Send that is longer than its receive", [&](Pair& pair, ibv_sge& piece) {
    post_receive(pair.far->qp, {at(pair.peers), 8, pair.peers_mr->lkey});
    outcome_of(pair.near->qp, request_of(IBV_WR_SEND, piece));
  });
  look("a Send with an lkey that is none", [&](Pair& pair, ibv_sge& piece) {
    post_receive(pair.far->qp, {at(pair.peers), 64, pair.peers_mr->lkey});
    piece.lkey = 0xABCDEF01;
    outcome_of(pair.near->qp, request_of(IBV_WR_SEND, piece));
  });
  look("a Send to a receive with an lkey that is none", [&](Pair& pair, ibv_sge& piece) {
    post_receive(pair.far->qp, {at(pair.peers), 64, 0xABCDEF01});
    outcome_of(pair.near->qp, request_of(IBV_WR_SEND, piece));
  });
  look("the near end goes to ERR", [&](Pair& pair, ibv_sge&) { to_error(pair.near->qp); });
  look("the near end goes to ERR with receives", [&](Pair& pair, ibv_sge&) {
    post_receive(pair.near->qp, {at(pair.own), 64, pair.own_mr->lkey});
    to_error(pair.near->qp);
  });
  look("the near end disconnects", [](Pair& pair, ibv_sge&) { rdma_disconnect(pair.near); });
}

// A shared receive queue, and a queue pair of the far end that uses it.
void shared_receives(const Device& device) {
  ibv_srq_init_attr attributes{};
  attributes.attr = {16, 1, 0};
  ibv_srq* const srq = ibv_create_srq(device.pd, &attributes);
  if (srq == nullptr) return say("events: an SRQ", result(-1));
  const auto arm = [&](std::uint32_t limit) {
    ibv_srq_attr wanted{0, 0, limit};
    return result(ibv_modify_srq(srq, &wanted, IBV_SRQ_LIMIT));
  };
  static char memory[8];
  ibv_mr* const mr = ibv_reg_mr(device.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  const auto post_receives = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ibv_sge piece{reinterpret_cast<std::uint64_t>(memory), sizeof memory, mr != nullptr ? mr->lkey : 0};
      ibv_recv_wr request{}, *bad = nullptr;
      request.sg_list = &piece;
      request.num_sge = 1;
      ibv_post_srq_recv(srq, &request, &bad);
    }
  };
  Pair pair(device, srq);
  if (!pair.connected()) {
    say("events: an SRQ's connection", "none");
  } else {
    const auto send = [&] {
      ibv_send_wr request{};
      request.opcode = IBV_WR_SEND;
      request.send_flags = IBV_SEND_SIGNALED;
      post(pair.near->qp, request);
      const bool sent = Pair::next(pair.near_cq).has_value(), came = Pair::next(pair.far_cq).has_value();
      return (sent && came ? "" : "no message; ") + told(device, &pair);
    };
    post_receives(5);
    say("events: a limit of 3 is set on 5 receives", arm(3) + "; " + told(device));
    say("events: a message, 4 are left", send());
    say("events: a message, 3 are left", send());
    say("events: a message, 2 are left", send());
    ibv_srq_attr now{};
    ibv_query_srq(srq, &now);
    say("events: the limit after its event", std::to_string(now.srq_limit));
    say("events: a message, 1 is left", send());
    post_receives(2);
    say("events: a limit of 8 is set on 3 receives", arm(8) + "; " + told(device));
    say("events: a message after that", send());
    post_receives(8);
    say("events: a limit of 2, and it is taken back", arm(2) + ", " + arm(0) + "; " + told(device));
    to_error(pair.far->qp);
    say("events: the queue pair goes to ERR", told(device, &pair));
  }
  pair.end();
  ibv_destroy_srq(srq);
  if (mr != nullptr) ibv_dereg_mr(mr);
}

// More completions than a completion queue has places.
void overrun(const Device& device) {
  ibv_cq* const cq = ibv_create_cq(device.context, 1, nullptr, nullptr, 0);
  if (cq == nullptr) return say("events: a CQ of 1 place", result(-1));
  const int places = cq->cqe;
  {
    ibv_qp_init_attr attributes = qp_attributes(device);
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap.max_recv_wr = static_cast<std::uint32_t>(places) + 4;
    ibv_qp* const qp = ibv_create_qp(device.pd, &attributes);
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = 1;
    ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
    for (int i = 0; i < places + 3; ++i) post(qp, ibv_recv_wr{});
    to_error(qp);
    say("events: flushed receives overrun a CQ", told(device));
    int polled = 0;
    while (Pair::next(cq, std::chrono::milliseconds(100))) ++polled;
    say("events: completions of that", polled == places ? "as many as it has places" : polled == 0 ? "none" : "others");
    ibv_destroy_qp(qp);
  }
  ibv_destroy_cq(cq);
}

}  // namespace

void observe_events(const Device& device) {
  errors(device);
  shared_receives(device);
  overrun(device);
}

}  // namespace observe
