// SPDX-License-Identifier: MIT
// Each operation between the queue pairs of two processes, with each kind of error at either end: one process calls,
// a connection for each case, and the other one is called. Each shows the completions of its own end.
#include <functional>
#include <vector>

#include "tests/kernel/observe/ends.h"

namespace observe {
namespace {

struct Operation {
  ibv_wr_opcode opcode;
  const char* name;
  bool remote;    // uses memory of the peer
  bool receives;  // takes a receive
  std::uint32_t length = 64;
};
constexpr Operation kOperations[] = {{IBV_WR_SEND, "Send", false, true},
                                     {IBV_WR_SEND_WITH_IMM, "Send with immediate", false, true},
                                     {IBV_WR_RDMA_WRITE, "Write", true, false},
                                     {IBV_WR_RDMA_WRITE_WITH_IMM, "Write with immediate", true, true},
                                     {IBV_WR_RDMA_READ, "Read", true, false},
                                     {IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch-and-add", true, false, 8},
                                     {IBV_WR_ATOMIC_CMP_AND_SWP, "compare-and-swap", true, false, 8}};

bool is_atomic(const Operation& operation) {
  return operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || operation.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

struct Request : ibv_send_wr {
  ibv_sge piece{};
};
struct Receive : ibv_recv_wr {
  ibv_sge piece{};
};

// What the caller is told of the memory of the called end.
struct Exposed {
  std::uint64_t address;
  std::uint32_t key;
};

// One connection, and the piece of work that is tried on it.
struct Case {
  std::string name;
  const Operation* operation;
  std::function<void(Request&, End&)> by_caller = [](Request&, End&) {};
  std::function<void(Receive&, Exposed&, End&)> by_called = [](Receive&, Exposed&, End&) {};
  bool called_sends = false;  // the called end sends, as soon as it is connected, and the caller receives
};

Receive receive_of(End& end, const Operation& operation) {
  Receive receive{};
  receive.piece = {end.address(1024), operation.length, end.region->lkey};
  receive.wr_id = 8;
  receive.num_sge = 1;
  return receive;
}

void post(End& end, Receive& receive) {
  receive.sg_list = &receive.piece;
  observe::post(end.id->qp, receive);
}

// The next completion of the work that was sent, in words.
std::string sent_by(End& end, const Operation& operation) {
  const auto sent = end.next();
  std::string outcome = status_of(sent);
  if (sent && sent->status == IBV_WC_SUCCESS) {
    outcome += ", opcode " + std::to_string(sent->opcode);
    if (operation.opcode == IBV_WR_RDMA_READ || is_atomic(operation))
      outcome += ", length " + std::to_string(sent->byte_len);
  }
  return outcome;
}

std::string received_by(End& end) {
  const auto got = end.next();
  std::string outcome = status_of(got);
  if (got && got->status == IBV_WC_SUCCESS) {
    outcome += ", opcode " + std::to_string(got->opcode) + ", length " + std::to_string(got->byte_len);
    outcome += (got->wc_flags & IBV_WC_WITH_IMM) != 0 ? ", immediate" : "";
  }
  return outcome;
}

Request request_of(End& end, const Operation& operation, const Exposed& target) {
  Request request{};
  request.piece = {end.address(0), operation.length, end.region->lkey};
  request.wr_id = 7;
  request.num_sge = 1;
  request.opcode = operation.opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = 0x01020304;
  if (is_atomic(operation)) {
    request.wr.atomic = {target.address, 1, 1, target.key};
  } else if (operation.remote) {
    request.wr.rdma = {target.address, target.key};
  }
  return request;
}

int post(End& end, Request& request) {
  request.sg_list = &request.piece;
  return observe::post(end.id->qp, request);
}

// The caller and then the called end send a message before the work that is tried: the kernel's iw_cm ends with an oops
// if the caller ends the connection before the called end has been told that it is there. Neither is signaled, so that
// each end has one completion of it.
constexpr Operation kGreeting{IBV_WR_SEND, "greeting", false, true};
bool send_greeting(End& end) {
  Request request = request_of(end, kGreeting, {});
  request.send_flags = 0;
  return post(end, request) == 0;
}
bool receive_greeting(End& end) {
  const auto wc = end.next();
  return wc && wc->status == IBV_WC_SUCCESS;
}

void call(const Device& device, const sockaddr_in& peer, std::uint32_t number, const Case& tried) {
  const std::string done = "work: " + tried.name;
  End end(device);
  if (!end.resolve(peer)) return say(done, "no address");
  Receive receive = receive_of(end, kGreeting);
  post(end, receive);
  const auto told = end.connect(number);
  if (!told) return say(done, "no connection");
  if (tried.called_sends) return say(done, "receive: " + received_by(end));
  if (!send_greeting(end) || !receive_greeting(end)) return say(done, "no greeting");
  Exposed target{};
  std::memcpy(&target, told->data(), sizeof target);
  Request request = request_of(end, *tried.operation, target);
  tried.by_caller(request, end);
  const int error = post(end, request);
  say(done, error != 0 ? "refused with " + result(error) : sent_by(end, *tried.operation));
  if (error != 0) return;
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  const int asked = ibv_query_qp(end.id->qp, &now, IBV_QP_STATE, &init);
  say(done + "; the state after it", asked == 0 ? name_of(now.qp_state) : result(asked));
}

void answer(End& end, const Case& tried) {
  const std::string done = "work: " + tried.name + "; at the peer";
  Exposed exposed{end.address(0), end.region->rkey};
  Receive receive = receive_of(end, *tried.operation);
  tried.by_called(receive, exposed, end);
  const bool receives = tried.operation->receives && !tried.called_sends;
  Receive greeting = receive_of(end, kGreeting);
  if (!tried.called_sends) post(end, greeting);
  if (receives) post(end, receive);
  if (!end.accept(&exposed, sizeof exposed)) return say(done, "no connection");
  if (!tried.called_sends && (!receive_greeting(end) || !send_greeting(end))) return say(done, "no greeting");
  if (tried.called_sends) {
    Request request = request_of(end, *tried.operation, {});
    const int error = post(end, request);
    say(done, error != 0 ? "refused with " + result(error) : sent_by(end, *tried.operation));
  } else if (receives) {
    say(done, "receive: " + received_by(end));
  }
  say(done + ", the end", end.await_end() ? "disconnected" : "none");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Operation& one : kOperations) {
    const auto by_caller = [&](const std::string& what, std::function<void(Request&, End&)> change) {
      all.push_back({one.name + what, &one});
      all.back().by_caller = std::move(change);
    };
    const auto by_called = [&](const std::string& what, std::function<void(Receive&, Exposed&, End&)> change) {
      all.push_back({one.name + what, &one});
      all.back().by_called = std::move(change);
    };
    all.push_back({one.name, &one});
    by_caller(" with an lkey that is none", [](Request& it, End&) { it.piece.lkey = 0x7777'7777; });
    by_caller(" from beyond its region", [](Request& it, End& end) { it.piece.addr = end.address(kMemory - 4); });
    if (!is_atomic(one)) {
      by_caller(" of no octets", [](Request& it, End&) { it.num_sge = 0; });
      by_caller(" of an SGE of length 0", [](Request& it, End&) { it.piece.length = 0; });
    } else {
      by_caller(" of 4 octets", [](Request& it, End&) { it.piece.length = 4; });
      by_caller(" of no octets", [](Request& it, End&) { it.num_sge = 0; });
      by_caller(" of 16 octets", [](Request& it, End&) { it.piece.length = 16; });
      by_caller(" on a word that is not aligned", [](Request& it, End&) { it.wr.atomic.remote_addr += 4; });
    }
    if (one.remote) {
      by_called(" with an rkey that is none", [](Receive&, Exposed& it, End&) { it.key = 0x7777'7777; });
      by_called(" beyond the region", [](Receive&, Exposed& it, End&) { it.address += kMemory; });
      by_called(" before the region", [](Receive&, Exposed& it, End&) { it.address -= 8; });
      by_called(" to a region without rights",
                [](Receive&, Exposed& it, End& end) { it.key = end.another_region(IBV_ACCESS_LOCAL_WRITE)->rkey; });
      by_called(" to a region that is gone", [](Receive&, Exposed& it, End& end) {
        ibv_mr* const gone = end.another_region(kAccess);
        it.key = gone->rkey;
        end.forget(gone);
      });
    }
    if (one.opcode == IBV_WR_RDMA_READ) {
      by_caller(" into a region without local writing",
                [](Request& it, End& end) { it.piece.lkey = end.another_region(IBV_ACCESS_REMOTE_READ)->lkey; });
      by_caller(" into a region without remote writing",
                [](Request& it, End& end) { it.piece.lkey = end.another_region(IBV_ACCESS_LOCAL_WRITE)->lkey; });
    }
    if (one.receives) {
      by_called(" to a receive with an lkey that is none",
                [](Receive& it, Exposed&, End&) { it.piece.lkey = 0x7777'7777; });
      by_called(" to a receive of a region without local writing", [](Receive& it, Exposed&, End& end) {
        it.piece.lkey = end.another_region(IBV_ACCESS_REMOTE_READ)->lkey;
      });
      by_called(" to a receive that is too short", [](Receive& it, Exposed&, End&) { it.piece.length = 8; });
      by_called(" to a receive without SGEs", [](Receive& it, Exposed&, End&) { it.num_sge = 0; });
      by_caller(", solicited", [](Request& it, End&) { it.send_flags |= IBV_SEND_SOLICITED; });
    }
    by_caller(", fenced", [](Request& it, End&) { it.send_flags |= IBV_SEND_FENCE; });
  }
  all.push_back({"Send by the called end, before the caller's first", &kOperations[0]});
  all.back().called_sends = true;
  return all;
}

}  // namespace

void observe_calls(const Device& device, const sockaddr_in& peer) {
  std::uint32_t number = 0;
  for (const Case& one : cases()) call(device, peer, number++, one);
}

void observe_called(const Device& device) {
  const std::vector<Case> all = cases();
  Listener listener(device);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint32_t number = 0;
    const auto end = listener.next(number);
    if (end == nullptr) return say("work: a call", "none");
    if (number < all.size()) answer(*end, all[number]);
  }
}

}  // namespace observe
