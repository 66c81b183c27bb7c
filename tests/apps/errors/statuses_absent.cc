// SPDX-License-Identifier: MIT
// Peers that are not there, that have gone to ERR, or that have no receive for a Send.
#include "tests/apps/errors/statuses.h"

namespace apps::manual::statuses {

namespace {

// `patience`: at least as long the work waits, and not much longer.
void check_gives_up(Requester& requester, ibv_wc_status status, std::chrono::milliseconds patience) {
  const auto began = Clock::now();
  requester.post();
  const auto first = requester.end.sent();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  if (first.wr_id != requester.work.front().wr_id || first.status != status)
    die("request %llu: %s", ull(first.wr_id), ibv_wc_status_str(first.status));
  if (took < patience || took > patience * 3 + std::chrono::seconds(3))
    die("after %lld ms", static_cast<long long>(took.count()));
  for (std::size_t i = 1; i < requester.work.size(); ++i) check_flushed(requester.end.sent(), requester.work[i].wr_id);
  check_no_event(requester.end);
  check_dead(requester.end, {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
}

Wanted impatient() {
  Wanted wanted;
  wanted.timeout = 10;
  wanted.retries = 1;
  return wanted;
}
constexpr std::chrono::milliseconds kRetryTime{500};  // the least that uiw gives a connection

void give_up(const std::string& host, Line& line) {
  Requester requester(host, impatient());
  requester.end.connect(line);
  requester.exposed = line.hear<Exposed>();
  requester.add(kCulprit, IBV_WR_RDMA_WRITE, 4000);
  requester.add_later();
  check_gives_up(requester, IBV_WC_RETRY_EXC_ERR, kRetryTime);
  line.meet('d');
}

void destroy_queue_pair(const std::string& host, Line& line) {
  std::optional<End> end(std::in_place, host, Wanted{});
  line.say(end->place());
  line.hear<Place>();
  end.reset();
  line.say(Exposed{});
  line.meet('d');
}

void stay_in_init(const std::string& host, Line& line) {
  End end(host, {});
  end.to_init();
  line.say(end.place());
  line.hear<Place>();
  line.say(Exposed{});
  line.meet('d');
  check_no_event(end);
  check_state(end, IBV_QPS_INIT);
}

void connect_to_another(const std::string& host, Line& line) {
  End end(host, {}), other(host, {});
  end.to_init();
  line.say(end.place());
  line.hear<Place>();
  end.to_rtr(other.place());
  end.to_rts();
  line.say(Exposed{});
  line.meet('d');
  check_no_event(end);
  check_state(end, IBV_QPS_RTS);
}

void go_to_error(const std::string& host, Line& line) {
  Requester requester(host, {});
  requester.end.connect(line);
  requester.exposed = line.hear<Exposed>();
  requester.add(kCulprit, IBV_WR_RDMA_READ, kLong, 131'072);
  requester.add_later();
  requester.add(24, IBV_WR_RDMA_READ, kLong, 131'072);
  line.hear<char>();
  requester.post();
  requester.end.to_error();
  bool flushed = false;
  for (const ibv_send_wr& request : requester.work) {
    const ibv_wc wc = requester.end.sent();
    flushed = flushed || wc.status != IBV_WC_SUCCESS;
    if (flushed) check_flushed(wc, request.wr_id);
  }
  check_no_event(requester.end);
  check_dead(requester.end, {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
  line.meet('d');
  line.meet('e');
}

void learn_nothing(const std::string& host, Line& line) {
  Responder responder(host, {});
  responder.end.connect(line);
  line.say(responder.exposed());
  line.say('g');
  line.meet('d');
  check_no_event(responder.end, 100);
  check_state(responder.end,
              IBV_QPS_RTS);  // as on InfiniBand it learns nothing until it needs its peer
  line.meet('e');
}

// `others`: there are Writes before and between the Sends.
void send_to_no_receive(const std::string& host, Line& line, bool others) {
  const char* rule = std::getenv("UIW_COMPLETION");
  const bool local = rule != nullptr && std::strcmp(rule, "local") == 0;
  Wanted wanted;
  wanted.rnr_retries = 1;
  Requester requester(host, wanted);
  requester.end.connect(line);
  requester.exposed = line.hear<Exposed>();
  if (others) requester.add(1, IBV_WR_RDMA_WRITE, 4000);
  requester.add(2, IBV_WR_SEND, kMessage);
  if (others) requester.add(3, IBV_WR_RDMA_WRITE, 4000, 8192);
  requester.add(kCulprit, IBV_WR_SEND, kMessage);
  requester.add_later();
  const auto began = Clock::now();
  requester.post();
  Failing what;
  what.status = IBV_WC_RNR_RETRY_EXC_ERR;
  check_sent(requester, what, local);
  if (Clock::now() - began > std::chrono::seconds(3)) die("too late for this min_rnr_timer and rnr_retry");
  check_dead(requester.end, {reinterpret_cast<std::uint64_t>(requester.memory.data()), 16, requester.mr->lkey});
  line.meet('d');
}

// There is a receive for the first Send, and none for the second.
void receive_one(const std::string& host, Line& line) {
  Responder responder(host, {});
  responder.end.connect(line);
  responder.post_receive(1);
  line.say(responder.exposed());
  const ibv_wc wc = responder.end.received();
  if (wc.wr_id != 1 || wc.status != IBV_WC_SUCCESS) die("the first Send: %s", ibv_wc_status_str(wc.status));
  line.meet('d');
  check_no_event(responder.end);
  check_state(responder.end, IBV_QPS_RTS);
}

}  // namespace

void add_absent_cases(Cases& cases) {
  cases["retry_no_queue_pair"] = {give_up, destroy_queue_pair};
  cases["retry_no_rtr"] = {give_up, stay_in_init};
  cases["retry_other_peer"] = {give_up, connect_to_another};
  cases["flush_by_modify"] = {go_to_error, learn_nothing};
}

void add_rnr_cases(Cases& cases) {
  for (const bool others : {false, true}) {
    cases[others ? "rnr_behind_a_write" : "rnr"] = {
        [others](const std::string& host, Line& line) { send_to_no_receive(host, line, others); }, receive_one};
  }
}

}  // namespace apps::manual::statuses
