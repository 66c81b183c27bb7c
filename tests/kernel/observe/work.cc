// SPDX-License-Identifier: MIT
// Each operation between two connected queue pairs, with each kind of error at either end: the completions of both
// ends.
#include <functional>

#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

std::string text_of(const std::optional<ibv_wc>& wc) { return wc ? ibv_wc_status_str(wc->status) : "none"; }

struct Operation {
  ibv_wr_opcode opcode;
  const char* name;
  bool remote;    // uses memory of the peer
  bool receives;  // takes a receive
};
constexpr Operation kOperations[] = {{IBV_WR_SEND, "Send", false, true},
                                     {IBV_WR_SEND_WITH_IMM, "Send with immediate", false, true},
                                     {IBV_WR_RDMA_WRITE, "Write", true, false},
                                     {IBV_WR_RDMA_WRITE_WITH_IMM, "Write with immediate", true, true},
                                     {IBV_WR_RDMA_READ, "Read", true, false},
                                     {IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch-and-add", true, false},
                                     {IBV_WR_ATOMIC_CMP_AND_SWP, "compare-and-swap", true, false}};
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

bool is_atomic(const Operation& operation) {
  return operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || operation.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

struct Request : ibv_send_wr {
  ibv_sge piece{};
};
struct Receive : ibv_recv_wr {
  ibv_sge piece{};
};

// Posts the operation with a change of it and shows what comes of it at both ends.
void attempt(const Device& device, const Operation& operation, const std::string& what,
             const std::function<void(Request&, Receive&, Pair&)>& change, bool receive = true) {
  Wishes wishes;
  if (is_atomic(operation)) wishes.access |= IBV_ACCESS_REMOTE_ATOMIC;
  Pair pair(device, wishes);
  const std::string done = std::string("work: ") + operation.name + what;
  if (!pair.connected()) return say(done, "no connection");
  Request request{};
  Receive taken{};
  request.piece = {reinterpret_cast<std::uintptr_t>(pair.own.data()), is_atomic(operation) ? 8U : 64U,
                   pair.own_mr->lkey};
  request.wr_id = 7;
  request.sg_list = &request.piece;
  request.num_sge = 1;
  request.opcode = operation.opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = 0x01020304;
  if (is_atomic(operation)) {
    request.wr.atomic = {reinterpret_cast<std::uintptr_t>(pair.peers.data()), 1, 1, pair.peers_mr->rkey};
  } else if (operation.remote) {
    request.wr.rdma = {reinterpret_cast<std::uintptr_t>(pair.peers.data()), pair.peers_mr->rkey};
  }
  taken.piece = {reinterpret_cast<std::uintptr_t>(pair.peers.data() + 1024), 64, pair.peers_mr->lkey};
  taken.wr_id = 8;
  taken.sg_list = &taken.piece;
  taken.num_sge = 1;
  change(request, taken, pair);
  ibv_recv_wr* bad_receive = nullptr;
  if (receive && operation.receives) ibv_post_recv(pair.far->qp, &taken, &bad_receive);
  ibv_send_wr* bad = nullptr;
  errno = 0;  // the library of siw returns -1 without an errno
  const int error = ibv_post_send(pair.near->qp, &request, &bad);
  if (error != 0) return say(done, "refused with " + result(error));
  const auto sent = Pair::next(pair.near_cq);
  std::string outcome = text_of(sent);
  if (sent && sent->status == IBV_WC_SUCCESS) {
    outcome += ", opcode " + std::to_string(sent->opcode);
    if (operation.opcode == IBV_WR_RDMA_READ || is_atomic(operation))
      outcome += ", length " + std::to_string(sent->byte_len);
  }
  if (operation.receives) {
    const auto got = Pair::next(pair.far_cq);
    outcome += "; receive: " + text_of(got);
    if (got && got->status == IBV_WC_SUCCESS) {
      outcome += ", opcode " + std::to_string(got->opcode) + ", length " + std::to_string(got->byte_len);
      outcome += (got->wc_flags & IBV_WC_WITH_IMM) != 0 ? ", immediate" : "";
    }
  }
  say(done, outcome);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  const int asked = ibv_query_qp(pair.near->qp, &now, IBV_QP_STATE, &init);
  say(done + "; the state after it", asked == 0 ? name_of(now.qp_state) : result(asked));
}

}  // namespace

void observe_work(const Device& device) {
  for (const Operation& one : kOperations) {
    const auto with = [&](const std::string& what, auto change, bool receive = true) {
      attempt(device, one, what, change, receive);
    };
    with("", [](Request&, Receive&, Pair&) {});
    with(" with an lkey that is none", [](Request& it, Receive&, Pair&) { it.piece.lkey = 0x7777'7777; });
    with(" from beyond its region", [](Request& it, Receive&, Pair& pair) {
      it.piece.addr = reinterpret_cast<std::uintptr_t>(pair.own.data() + pair.own.size() - 4);
    });
    if (!is_atomic(one)) {
      with(" of no octets", [](Request& it, Receive&, Pair&) { it.num_sge = 0; });
      with(" of an SGE of length 0", [](Request& it, Receive&, Pair&) { it.piece.length = 0; });
    } else {
      with(" of 4 octets", [](Request& it, Receive&, Pair&) { it.piece.length = 4; });
      with(" of no octets", [](Request& it, Receive&, Pair&) { it.num_sge = 0; });
      with(" of 16 octets", [](Request& it, Receive&, Pair&) { it.piece.length = 16; });
      with(" on a word that is not aligned", [](Request& it, Receive&, Pair&) { it.wr.atomic.remote_addr += 4; });
    }
    if (one.remote) {
      const auto key = [&](Request& it) -> std::uint32_t& {
        return is_atomic(one) ? it.wr.atomic.rkey : it.wr.rdma.rkey;
      };
      const auto address = [&](Request& it) -> std::uint64_t& {
        return is_atomic(one) ? it.wr.atomic.remote_addr : it.wr.rdma.remote_addr;
      };
      with(" with an rkey that is none", [&](Request& it, Receive&, Pair&) { key(it) = 0x7777'7777; });
      with(" beyond the region", [&](Request& it, Receive&, Pair& pair) { address(it) += pair.peers.size(); });
      with(" before the region", [&](Request& it, Receive&, Pair&) { address(it) -= 8; });
      with(" to a region without rights", [&](Request& it, Receive&, Pair& pair) {
        static std::array<char, 64> others;
        ibv_mr* const mr = ibv_reg_mr(pair.pd, others.data(), others.size(), IBV_ACCESS_LOCAL_WRITE);
        key(it) = mr->rkey;
        address(it) = reinterpret_cast<std::uintptr_t>(others.data());
      });
      with(" to a region that is gone", [&](Request& it, Receive&, Pair& pair) {
        ibv_mr* const mr = ibv_reg_mr(pair.pd, pair.peers.data(), pair.peers.size(), kAll);
        key(it) = mr->rkey;
        ibv_dereg_mr(mr);
      });
    }
    if (one.opcode == IBV_WR_RDMA_READ) {
      with(" into a region without local writing", [](Request& it, Receive&, Pair& pair) {
        it.piece.lkey = ibv_reg_mr(pair.pd, pair.own.data(), pair.own.size(), IBV_ACCESS_REMOTE_READ)->lkey;
      });
      with(" into a region without remote writing", [](Request& it, Receive&, Pair& pair) {
        it.piece.lkey = ibv_reg_mr(pair.pd, pair.own.data(), pair.own.size(), IBV_ACCESS_LOCAL_WRITE)->lkey;
      });
    }
    if (one.receives) {
      with(" to a receive with an lkey that is none",
           [](Request&, Receive& it, Pair&) { it.piece.lkey = 0x7777'7777; });
      with(" to a receive of a region without local writing", [](Request&, Receive& it, Pair& pair) {
        it.piece.lkey = ibv_reg_mr(pair.pd, pair.peers.data(), pair.peers.size(), IBV_ACCESS_REMOTE_READ)->lkey;
      });
      with(" to a receive that is too short", [](Request&, Receive& it, Pair&) { it.piece.length = 8; });
      with(" to a receive without SGEs", [](Request&, Receive& it, Pair&) { it.num_sge = 0; });
      with(", solicited", [](Request& it, Receive&, Pair&) { it.send_flags |= IBV_SEND_SOLICITED; });
    }
    with(", fenced", [](Request& it, Receive&, Pair&) { it.send_flags |= IBV_SEND_FENCE; });
  }
}

}  // namespace observe
