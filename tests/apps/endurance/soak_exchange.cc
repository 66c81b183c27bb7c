// SPDX-License-Identifier: MIT
// One round of the soak at one end: connect, exchange what the plan says on several connections at a time, verify every
// octet, end some of the connections.
#include "tests/apps/endurance/soak_exchange.h"

namespace apps::soak {

namespace {

constexpr std::uint64_t kGuardSeed = 0x5AFE;
constexpr std::uint64_t kOfReceive = std::uint64_t{1} << 32, kOfWindow = std::uint64_t{1} << 33;

const char* name_of(Op op) {
  constexpr const char* kNames[kOps] = {
      "a Send", "a Send with immediate", "a Send with Invalidate", "a Write", "a Write with immediate",
      "a Read", "a compare-and-swap",    "a fetch-and-add"};
  return kNames[static_cast<unsigned>(op)];
}

ibv_wr_opcode opcode_of(Op op) {
  constexpr ibv_wr_opcode kOpcodes[kOps] = {IBV_WR_SEND,
                                            IBV_WR_SEND_WITH_IMM,
                                            IBV_WR_SEND_WITH_INV,
                                            IBV_WR_RDMA_WRITE,
                                            IBV_WR_RDMA_WRITE_WITH_IMM,
                                            IBV_WR_RDMA_READ,
                                            IBV_WR_ATOMIC_CMP_AND_SWP,
                                            IBV_WR_ATOMIC_FETCH_AND_ADD};
  return kOpcodes[static_cast<unsigned>(op)];
}

}  // namespace

Exchange::Exchange(const std::string& host, bool calls, manual::Line& line, bool sleeps)
    : own_(calls ? 0 : 1), line_(line), connections_(host, calls, line, memory_, sleeps) {}

void Exchange::round(const std::vector<Step>& steps, Tally& tally) {
  shared_posted_ = 0;
  for (const Step& step : steps)
    if (step.connects) {
      connections_.connect(step);
      ++tally.connections;
    }
  for (const Step& step : steps) prepare(step);
  for (const Step& step : steps) line_.say(connections_[step.slot].offered);
  for (const Step& step : steps) connections_[step.slot].key = line_.hear<std::uint32_t>();
  for (const Step& step : steps) post_sends(step);
  for (const Step& step : steps)
    if (step.late) post_receives(step);
  collect(steps);
  for (const Step& step : steps) verify(step, tally);
  line_.meet('v');
  // Now both have all completions. A message may arrive ahead of what an atomic before it does (RFC 7306 section 7).
  for (const Step& step : steps) verify_words(step);
  for (const Step& step : steps) take_back(step);
  line_.meet('e');
  for (const Step& step : steps)
    if (step.ending != Ending::none) connections_.end(step);
}

// Puts there what leaves this end, clears what must arrive, and lets the peer in.
void Exchange::prepare(const Step& step) {
  for (unsigned end = 0; end < 2; ++end)
    for (const Request& request : step.requests[end]) {
      const bool own = end == own_;
      if (is_atomic(request.op)) {
        const std::uint64_t at = Memory::kIn + (own ? request.result : request.to);
        memory_.put_word(at, own ? ~request.word() : request.word());
        memory_.fill(at + 8, kGuardSeed, kGuard);
        continue;
      }
      if (own == outwards(request.op)) {
        memory_.fill(request.from, request.seed, request.length);
      } else {
        memory_.fill(Memory::kIn + request.to, ~request.seed, request.length);
        memory_.fill(Memory::kIn + request.to + request.length, kGuardSeed, kGuard);
      }
    }
  Connection& connection = connections_[step.slot];
  connection.offered = 0;
  connection.sent = connection.arrived = 0;
  if (step.requests[1 - own_].empty()) return;
  if (!step.late) post_receives(step);
  offer(connection, step);
}

void Exchange::offer(Connection& connection, const Step& step) {
  connection.offered = connection.domain->region()->rkey;
  switch (step.access[own_]) {
    case Access::standing: break;
    case Access::fresh:
      connection.fresh = connection.domain->reg();
      connection.offered = connection.fresh->rkey;
      break;
    case Access::window: {
      const std::uint32_t key = ibv_inc_rkey(connection.window->rkey);
      SendRequest(IBV_WR_BIND_MW, {}, kOfWindow)
          .bind(connection.window, key,
                {connection.domain->region(), memory_.address(), Memory::kSharedAt,
                 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC})
          .post(connection.qp);
      connection.bound = true;
      connection.offered = connection.window->rkey = key;  // as the program keeps it
      expect_window(connection, "a bind", IBV_WC_BIND_MW);
      break;
    }
  }
}

// Nothing else is under way.
void Exchange::expect_window(const Connection& connection, const char* what, ibv_wc_opcode opcode) {
  const ibv_wc wc = connections_.next();
  if (wc.wr_id != kOfWindow || wc.qp_num != connection.qp->qp_num || wc.status != IBV_WC_SUCCESS || wc.opcode != opcode)
    die("%s: request %llu of QP %u: %s", what, ull(wc.wr_id), wc.qp_num, ibv_wc_status_str(wc.status));
}

void Exchange::take_back(const Step& step) {
  Connection& connection = connections_[step.slot];
  if (connection.fresh != nullptr) good("ibv_dereg_mr", ibv_dereg_mr(std::exchange(connection.fresh, nullptr)));
  if (!std::exchange(connection.bound, false)) return;
  SendRequest(IBV_WR_LOCAL_INV, {}, kOfWindow).invalidate(connection.offered).post(connection.qp);
  expect_window(connection, "an invalidation", IBV_WC_LOCAL_INV);
}

void Exchange::post_receives(const Step& step) {
  Connection& connection = connections_[step.slot];
  const std::uint32_t lkey = connection.domain->region()->lkey;
  std::uint64_t number = 0;
  for (const Request& expected : step.requests[1 - own_]) {
    if (!takes_receive(expected.op)) continue;
    if (step.shared) {  // any of the connections may take it
      const std::uint64_t at = memory_.address() + Memory::kSharedAt + shared_posted_ * kShared;
      post_receive(connection.domain->srq(), {{at, kShared, lkey}}, kOfReceive + shared_posted_++);
      continue;
    }
    std::vector<ibv_sge> list;
    if (expected.length > 0 && fills_receive(expected.op))
      list = {{memory_.address() + Memory::kIn + expected.to, expected.length, lkey}};
    post_receive(connection.qp, list, kOfReceive + number++);
  }
}

void Exchange::post_sends(const Step& step) {
  Connection& connection = connections_[step.slot];
  const std::uint32_t lkey = connection.domain->region()->lkey;
  std::uint64_t number = 0;
  for (const Request& planned : step.requests[own_]) {
    const bool atomic = is_atomic(planned.op), reads = planned.op == Op::read;
    const std::uint64_t local = atomic ? Memory::kIn + planned.result : reads ? Memory::kIn + planned.to : planned.from;
    unsigned flags = 0;
    if (planned.signaled) flags |= IBV_SEND_SIGNALED;
    if (planned.inlined) flags |= IBV_SEND_INLINE;
    // Only a fence keeps it from overtaking the answers to what reads through the window (RFC 5040 section 5.5).
    if (planned.op == Op::send_invalidate) flags |= IBV_SEND_FENCE;
    SendRequest request(opcode_of(planned.op), {memory_.address() + local, atomic ? 8 : planned.length, lkey}, number++,
                        flags);
    if (planned.op == Op::send_invalidate)
      request.invalidate(connection.key);
    else
      request.immediate(htobe32(planned.immediate()));
    const std::uint64_t far = connection.peer + (reads ? planned.from : Memory::kIn + planned.to);
    if (planned.op == Op::add)
      request.add(far, connection.key, planned.operand());
    else if (atomic)
      request.swap(far, connection.key, planned.compare(), planned.operand());
    else
      request.at(far, connection.key);
    good(name_of(planned.op), request.try_post(connection.qp));
    if (planned.inlined) memory_.fill(planned.from, kGuardSeed, planned.length);  // it is this program's again
  }
}

void Exchange::collect(const std::vector<Step>& steps) {
  std::size_t due = 0;
  for (const Step& step : steps) {
    for (const Request& request : step.requests[own_]) due += request.signaled;
    for (const Request& request : step.requests[1 - own_]) due += takes_receive(request.op);
  }
  for (; due > 0; --due) {
    const ibv_wc wc = connections_.next();
    const auto step = std::find_if(steps.begin(), steps.end(),
                                   [&](const Step& each) { return connections_[each.slot].qp->qp_num == wc.qp_num; });
    if (step == steps.end()) die("a completion of QP %u, which has no work", wc.qp_num);
    if (wc.status != IBV_WC_SUCCESS)
      die("slot %u, %s, request %llx: %s", step->slot, step->manual ? "by hand" : "rdma_cm", ull(wc.wr_id),
          ibv_wc_status_str(wc.status));
    if ((wc.wr_id & kOfReceive) != 0)
      received(*step, wc);
    else
      sent(*step, wc);
  }
}

void Exchange::sent(const Step& step, const ibv_wc& wc) {
  const std::vector<Request>& list = step.requests[own_];
  Connection& connection = connections_[step.slot];
  std::size_t& next = connection.sent;
  while (next < list.size() && !list[next].signaled) ++next;
  if (wc.wr_id != next) die("slot %u: send %llu completes, not %llu", step.slot, ull(wc.wr_id), ull(next));
  ++next;
}

// The next message that the peer has planned.
void Exchange::received(const Step& step, const ibv_wc& wc) {
  const std::vector<Request>& list = step.requests[1 - own_];
  Connection& connection = connections_[step.slot];
  std::size_t& next = connection.arrived;
  while (next < list.size() && !takes_receive(list[next].op)) ++next;
  if (next == list.size()) die("slot %u: a message more than was sent", step.slot);
  const Request& message = list[next++];
  const bool immediate = message.op == Op::send_immediate || message.op == Op::write_immediate;
  if (wc.byte_len != message.length)
    die("slot %u: %s of %u octets has %u", step.slot, name_of(message.op), message.length, wc.byte_len);
  if (wc.opcode != (message.op == Op::write_immediate ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
    die("slot %u: %s completes as %d", step.slot, name_of(message.op), wc.opcode);
  if (immediate != ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) || (immediate && be32toh(wc.imm_data) != message.immediate()))
    die("slot %u: %s: its immediate data", step.slot, name_of(message.op));
  const bool invalidates = message.op == Op::send_invalidate;
  if (invalidates != ((wc.wc_flags & IBV_WC_WITH_INV) != 0) ||
      (invalidates && wc.invalidated_rkey != connection.offered))
    die("slot %u: %s: its STag", step.slot, name_of(message.op));
  if (invalidates) connection.bound = false;
  if (!step.shared || !fills_receive(message.op)) return;
  const std::uint64_t at = Memory::kSharedAt + (wc.wr_id & (kOfReceive - 1)) * kShared;
  if (!memory_.holds(at, message.seed, message.length)) die("slot %u: the octets of a shared receive", step.slot);
}

void Exchange::verify(const Step& step, Tally& tally) {
  for (unsigned end = 0; end < 2; ++end)
    for (const Request& request : step.requests[end]) {
      const bool own = end == own_;
      if (own) ++tally.requests[static_cast<unsigned>(request.op)];
      if (own) tally.octets += request.length;
      if (is_atomic(request.op) || own == outwards(request.op)) continue;
      const std::uint64_t at = Memory::kIn + request.to;
      const bool elsewhere = step.shared && fills_receive(request.op);
      if (!memory_.holds(at, elsewhere ? ~request.seed : request.seed, request.length))
        die("slot %u: the octets of %s, %u of them", step.slot, name_of(request.op), request.length);
      if (!memory_.holds(at + request.length, kGuardSeed, kGuard))
        die("slot %u: octets behind %s", step.slot, name_of(request.op));
    }
}

void Exchange::verify_words(const Step& step) const {
  for (unsigned end = 0; end < 2; ++end)
    for (const Request& request : step.requests[end]) {
      if (!is_atomic(request.op)) continue;
      const bool own = end == own_;
      const std::uint64_t at = Memory::kIn + (own ? request.result : request.to);
      if (memory_.word(at) != (own ? request.word() : request.outcome()) || !memory_.holds(at + 8, kGuardSeed, kGuard))
        die("slot %u: %s: its word at the %s", step.slot, name_of(request.op), own ? "requester" : "responder");
    }
}

}  // namespace apps::soak
