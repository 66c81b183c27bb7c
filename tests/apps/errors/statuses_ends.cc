// SPDX-License-Identifier: MIT
// What the requester and the responder of a case do, and what each must see of the request that fails.
#include "tests/apps/errors/statuses.h"

namespace apps::manual::statuses {

namespace {

void check_read(const Requester& requester) {
  for (std::size_t i = 0; i < 1000; ++i)
    if (requester.memory[65536 + i] != kUntouched) die("a Read that succeeded brought nothing");
}

}  // namespace

void check_sent(Requester& requester, const Failing& what, bool local_rule) {
  const bool may_succeed = local_rule && !what.here;
  bool passed = false, failed = false, told = false;
  for (const ibv_send_wr& request : requester.work) {
    const bool is_culprit = request.wr_id == kCulprit;
    passed = passed || is_culprit;
    if (!passed && (request.send_flags & IBV_SEND_SIGNALED) == 0) continue;
    const ibv_wc wc = requester.end.sent();
    if (wc.wr_id != request.wr_id)
      die("request %llu completes, not %llu: %s", ull(wc.wr_id), ull(request.wr_id), ibv_wc_status_str(wc.status));
    if (wc.qp_num != requester.end.qp()->qp_num) die("of QP %u", wc.qp_num);
    bool right;
    if (!passed) {
      // The local rule does not wait for answers before an error that is found here.
      failed = failed || (local_rule && what.here && wc.status == IBV_WC_WR_FLUSH_ERR);
      right = failed || wc.status == IBV_WC_SUCCESS;
    } else if (is_culprit) {
      right = wc.status == what.status || (may_succeed && !answered(request.opcode) && wc.status == IBV_WC_SUCCESS);
      told = wc.status == what.status;
      failed = wc.status != IBV_WC_SUCCESS;
    } else if (!failed && wc.status == IBV_WC_SUCCESS) {
      right = !answered(request.opcode);  // with TCP before the error was heard of
    } else {
      right = wc.status == IBV_WC_WR_FLUSH_ERR;
      failed = true;
    }
    if (!right) die("request %llu: %s", ull(request.wr_id), ibv_wc_status_str(wc.status));
    if (wc.wr_id == 4 && wc.status == IBV_WC_SUCCESS) check_read(requester);
  }
  if (!failed) die("nothing failed");
  // The error is told of once: here, or by an event where its request has completed before.
  ibv_event_type type{};
  if (!told && !(requester.end.event(type, kPatience) && type == IBV_EVENT_QP_FATAL)) die("no event, or another");
  check_no_event(requester.end);
}

namespace {

void request(const Failing& what, const std::string& host, Line& line) {
  const char* rule = std::getenv("UIW_COMPLETION");
  Requester requester(host, {});
  requester.end.connect(line);
  requester.end.post_receive(50, {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
  requester.exposed = line.hear<Exposed>();
  requester.add_earlier(what.peer.access);
  what.add_culprit(requester);
  if (!what.late) requester.add_later();
  requester.post();
  check_sent(requester, what, rule != nullptr && std::strcmp(rule, "local") == 0);
  check_flushed(requester.end.received(), 50);
  check_dead(requester.end, {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
  line.meet('d');
}

void respond(const Failing& what, const std::string& host, Line& line) {
  Responder responder(host, what.peer);
  responder.end.connect(line);
  responder.post_receive(1);
  what.post_receive(responder);
  responder.post_receive(3);
  responder.post_receive(4);
  line.say(responder.exposed());

  const ibv_wc first = responder.end.received();
  if (first.wr_id != 1 || first.status != IBV_WC_SUCCESS || first.byte_len != kMessage)
    die("the receive before: %s", ibv_wc_status_str(first.status));
  if (what.here) {
    line.meet('d');
    check_no_event(responder.end, 100);
    check_state(responder.end, IBV_QPS_RTS);
    responder.end.post_send(1, {reinterpret_cast<std::uint64_t>(responder.inbox.data()), 16, responder.in->lkey});
    const ibv_wc wc = responder.end.sent();
    if (wc.status != IBV_WC_RETRY_EXC_ERR) die("a Send to a peer in error: %s", ibv_wc_status_str(wc.status));
  }
  const ibv_wc second = responder.end.received();
  if (second.wr_id != 2 || second.status != what.receive) die("receive 2: %s", ibv_wc_status_str(second.status));
  check_flushed(responder.end.received(), 3);
  check_flushed(responder.end.received(), 4);
  if (what.event) {
    ibv_event_type type{};
    if (!responder.end.event(type, kPatience)) die("no event");
    if (type != *what.event) die("event %s", ibv_event_type_str(type));
  }
  if (!what.here) line.meet('d');
  check_no_event(responder.end);
  check_dead(responder.end, {reinterpret_cast<std::uint64_t>(responder.inbox.data()), 16, responder.in->lkey});
  const auto& memory = responder.memory;
  if ((what.peer.access & IBV_ACCESS_REMOTE_WRITE) == 0) return;
  for (const auto& [at, size] : {std::pair(0U, 4000U), {8192U, 3000U}, {16384U, 5000U}})
    for (std::uint32_t i = at; i < at + size; ++i)
      if (memory[i] != static_cast<unsigned char>(i * 7 + 1)) die("a Write that succeeded left octet %u as it was", i);
  if (std::any_of(memory.begin() + kLaterAt, memory.begin() + kLaterAt + 4000, [](auto c) { return c != kUntouched; }))
    die("work behind the error has been carried out");
}

}  // namespace

void add_case(Cases& cases, const std::string& name, const Failing& what) {
  cases[name] = {[what](const std::string& host, Line& line) { request(what, host, line); },
                 [what](const std::string& host, Line& line) { respond(what, host, line); }};
}

}  // namespace apps::manual::statuses
