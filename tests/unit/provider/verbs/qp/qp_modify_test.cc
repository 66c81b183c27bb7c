// SPDX-License-Identifier: MIT
// ibv_modify_qp and ibv_query_qp in every state.
#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "provider/process/limits.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/qp/qp_attributes.h"
#include "tests/unit/provider/memory/window_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR, IBV_QPS_UNKNOWN};

int modify(Side& side, int mask, ibv_qp_attr attributes) { return side.qp->modify(attributes, mask); }

// What ibv_modify_qp() refuses where everything else is good.
struct Refused {
  int mask;
  int error;
  void (*change)(ibv_qp_attr&);
};
const Refused kRefused[] = {
    {IBV_QP_PORT, EINVAL, [](ibv_qp_attr& a) { a.port_num = 2; }},
    {IBV_QP_PORT, EINVAL, [](ibv_qp_attr& a) { a.port_num = 0; }},
    {IBV_QP_PKEY_INDEX, EINVAL, [](ibv_qp_attr& a) { a.pkey_index = 1; }},
    {IBV_QP_ACCESS_FLAGS, EINVAL, [](ibv_qp_attr& a) { a.qp_access_flags = 1U << 30; }},
    {IBV_QP_ACCESS_FLAGS, EINVAL, [](ibv_qp_attr& a) { a.qp_access_flags = 1U << 10; }},
    {IBV_QP_PATH_MTU, EINVAL, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); }},
    {IBV_QP_PATH_MTU, EINVAL, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(6); }},
    {IBV_QP_TIMEOUT, EINVAL, [](ibv_qp_attr& a) { a.timeout = 32; }},
    {IBV_QP_RETRY_CNT, EINVAL, [](ibv_qp_attr& a) { a.retry_cnt = 8; }},
    {IBV_QP_RNR_RETRY, EINVAL, [](ibv_qp_attr& a) { a.rnr_retry = 8; }},
    {IBV_QP_MIN_RNR_TIMER, EINVAL, [](ibv_qp_attr& a) { a.min_rnr_timer = 32; }},
    {IBV_QP_MAX_QP_RD_ATOMIC, EINVAL, [](ibv_qp_attr& a) { a.max_rd_atomic = provider::kMaxReadDepth + 1; }},
    {IBV_QP_MAX_DEST_RD_ATOMIC, EINVAL, [](ibv_qp_attr& a) { a.max_dest_rd_atomic = provider::kMaxReadDepth + 1; }},
    {IBV_QP_CUR_STATE, EINVAL, [](ibv_qp_attr& a) { a.cur_qp_state = IBV_QPS_RTS; }},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, EINVAL, [](ibv_qp_attr& a) { a.en_sqd_async_notify = 1; }},
    {IBV_QP_QKEY, EINVAL, [](ibv_qp_attr& a) { a.qkey = 1; }},
    {IBV_QP_AV, EINVAL, [](ibv_qp_attr&) {}},
    {IBV_QP_DEST_QPN, EINVAL, [](ibv_qp_attr&) {}},
    {IBV_QP_DEST_QPN, EINVAL, [](ibv_qp_attr& a) { a.dest_qp_num = provider::kManagedQpNumber; }},
    {1 << 21, EOPNOTSUPP, [](ibv_qp_attr&) {}},
    {1 << 30, EOPNOTSUPP, [](ibv_qp_attr&) {}},
    {IBV_QP_ALT_PATH, EOPNOTSUPP, [](ibv_qp_attr&) {}},
    {IBV_QP_CAP, EOPNOTSUPP, [](ibv_qp_attr& a) { a.cap.max_send_wr = 100; }},
    {IBV_QP_RATE_LIMIT, EOPNOTSUPP, [](ibv_qp_attr& a) { a.rate_limit = 1000; }},
    {IBV_QP_PATH_MIG_STATE, EOPNOTSUPP, [](ibv_qp_attr& a) { a.path_mig_state = IBV_MIG_REARM; }},
};

ibv_qp_attr good_attributes() {
  ibv_qp_attr good{};
  good.qp_state = IBV_QPS_INIT;
  good.port_num = 1;
  good.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  good.path_mtu = IBV_MTU_1024;
  good.timeout = 14;
  good.retry_cnt = 7;
  good.rnr_retry = 6;
  good.min_rnr_timer = 12;
  good.rq_psn = 0x123456;
  good.sq_psn = 0xABCDEF;
  good.max_rd_atomic = 3;
  good.max_dest_rd_atomic = 5;
  return good;
}
constexpr int kGood = IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
                      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;

void check_taken(const ibv_qp_attr& now, const ibv_qp_attr& good) {
  CHECK(now.qp_state == IBV_QPS_INIT);
  CHECK(now.port_num == 1);
  CHECK(now.qp_access_flags == good.qp_access_flags);
  CHECK(now.path_mtu == IBV_MTU_1024);
  CHECK(now.timeout == 14);
  CHECK(now.retry_cnt == 7);
  CHECK(now.rnr_retry == 6);
  CHECK(now.min_rnr_timer == 12);
  CHECK(now.rq_psn == 0x123456);
  CHECK(now.sq_psn == 0xABCDEF);
  CHECK(now.max_rd_atomic == 3);
  CHECK(now.max_dest_rd_atomic == 5);
  CHECK(now.path_mig_state == IBV_MIG_MIGRATED);
  CHECK(now.cap.max_send_wr == 16);
  CHECK(now.cap.max_recv_sge == 4);
}

}  // namespace

TEST_CASE_METHOD(Loopback, "qp: every step between two states of an RNIC (Verbs draft figures 6 to 11)", "[qp]") {
  struct Steps {
    ibv_qp_state from;
    std::vector<ibv_qp_state> taken, ignored;  // taken and led somewhere; taken and led nowhere
  };
  const std::vector<Steps> all{
      {IBV_QPS_INIT, {IBV_QPS_INIT, IBV_QPS_RTR}, {}},
      {IBV_QPS_RTR, {IBV_QPS_INIT, IBV_QPS_RTR}, {}},  // no stream, no RTS
      {IBV_QPS_RTS, {IBV_QPS_RTS, IBV_QPS_SQD}, {IBV_QPS_INIT, IBV_QPS_RTR}},
      {IBV_QPS_SQD, {IBV_QPS_SQD}, {}},
      {IBV_QPS_ERR, {}, {IBV_QPS_SQD}},
  };
  for (const Steps& steps : all) {
    for (const ibv_qp_state to : kStates) {
      INFO(steps.from << " to " << to);
      Side side(*context);
      std::optional<TcpStream> peer;
      if (steps.from == IBV_QPS_RTS || steps.from == IBV_QPS_SQD) peer = attach_raw(side);
      if (steps.from != IBV_QPS_INIT && steps.from != IBV_QPS_RTS) REQUIRE(side.to(steps.from) == 0);
      REQUIRE(side.qp->state() == steps.from);
      const auto among = [to](const std::vector<ibv_qp_state>& of) {
        return std::find(of.begin(), of.end(), to) != of.end();
      };
      const bool ends = to == IBV_QPS_RESET || to == IBV_QPS_ERR;
      const bool good = ends || among(steps.taken) || among(steps.ignored);
      CHECK(side.to(static_cast<ibv_qp_state>(55)) == EINVAL);
      CHECK(side.to(static_cast<ibv_qp_state>(-1)) == EINVAL);
      CHECK(modify(side, 0, {}) == 0);
      CHECK(side.qp->state() == steps.from);
      CHECK(side.to(to) == (good ? 0 : EINVAL));
      // An adapter for iWARP has one state for RESET and INIT, and its driver says INIT.
      const ibv_qp_state reached = to == IBV_QPS_RESET ? IBV_QPS_INIT : to;
      CHECK(side.qp->state() == (ends || among(steps.taken) ? reached : steps.from));
      CHECK(side.query().qp_state == side.qp->state());
      CHECK(side.query().cur_qp_state == side.qp->state());
    }
  }
}

TEST_CASE_METHOD(Pair, "qp: a new queue pair of an RNIC is in INIT, and takes receives (siw)", "[qp]") {
  CHECK(a.query().qp_state == IBV_QPS_INIT);
  for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(b.post_receive(id, {}) == 0);
  connect();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    REQUIRE(a.post(IBV_WR_SEND, id, {}) == 0);
    check_next(*b.receive_cq, id);
  }
  // So is one that was reset.
  REQUIRE(b.to(IBV_QPS_RESET) == 0);
  CHECK(b.query().qp_state == IBV_QPS_INIT);
  CHECK(b.post_receive(4, {}) == 0);
}

TEST_CASE_METHOD(Single,
                 "qp: each attribute is taken or refused, and then nothing changes (manual page of ibv_modify_qp)",
                 "[qp]") {
  const ibv_qp_attr good = good_attributes();
  for (const Refused& bad : kRefused) {
    INFO("mask " << bad.mask);
    ibv_qp_attr attributes = good;
    bad.change(attributes);
    CHECK(modify(a, IBV_QP_STATE | kGood | bad.mask, attributes) == bad.error);
    CHECK(a.qp->state() == IBV_QPS_INIT);
    CHECK(a.query().timeout == 0);
    CHECK(a.query().port_num == 0);
  }
  REQUIRE(modify(a, IBV_QP_STATE | kGood, good) == 0);
  check_taken(a.query(), good);
  // Without a state it is the same.
  ibv_qp_attr more{};
  more.min_rnr_timer = 1;
  more.path_mig_state = IBV_MIG_MIGRATED;
  CHECK(modify(a, IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE, more) == 0);
  CHECK(a.query().min_rnr_timer == 1);
  CHECK(a.query().timeout == 14);
  CHECK(a.to(IBV_QPS_RESET) == 0);
  CHECK(a.query().min_rnr_timer == 0);
  CHECK(a.query().port_num == 0);
}

TEST_CASE_METHOD(Loopback,
                 "qp: the present state of a new queue pair may be named as libibverbs says it, and as it is queried",
                 "[qp]") {
  for (const ibv_qp_state said : {IBV_QPS_RESET, IBV_QPS_INIT}) {
    Side side(*context);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.cur_qp_state = said;
    CHECK(modify(side, IBV_QP_STATE | IBV_QP_CUR_STATE, attributes) == 0);
  }
}

TEST_CASE_METHOD(Single, "qp: optional access flags are ignored, and those of a flush are rights", "[qp]") {
  constexpr std::uint32_t kFlush = ddp::kFlushGlobal | ddp::kFlushPersistent;
  const auto denied = [this](unsigned more) {
    ibv_qp_attr attributes{};
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | more;
    CHECK(modify(a, IBV_QP_ACCESS_FLAGS, attributes) == 0);
    return provider::denied_rights(attributes.qp_access_flags) & ~(ddp::kRemoteWrite | ddp::kRemoteAtomic);
  };
  CHECK(denied(IBV_ACCESS_RELAXED_ORDERING) == kFlush);
  CHECK(denied(IBV_ACCESS_OPTIONAL_RANGE) == kFlush);
  CHECK(denied(1U << 8) == ddp::kFlushPersistent);  // IBV_ACCESS_FLUSH_GLOBAL
  CHECK(denied(1U << 8 | 1U << 9) == 0);
}

TEST_CASE_METHOD(PairApart, "qp: completions that nobody has polled go with a reset, and with the queue pair", "[qp]") {
  const bool destroyed = GENERATE(false, true);
  connect();
  Registered memory(a, Bytes(64), kLocal);
  for (std::uint64_t id = 0; id < 3; ++id) REQUIRE(a.post_receive(id, {memory.sge()}) == 0);
  REQUIRE(a.to(IBV_QPS_ERR) == 0);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE_FALSE(a.receive_cq->empty());
  if (destroyed) {
    a.qp.reset();
  } else {
    REQUIRE(a.to(IBV_QPS_RESET) == 0);
  }
  CHECK(a.receive_cq->empty());
}

TEST_CASE_METHOD(PairApart,
                 "qp: a reset holds nobody up that posts while a completion queue is polled (ibv_start_poll)", "[qp]") {
  connect();
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
  REQUIRE(eventually([&] { return !a.send_cq->empty(); }));
  ibv_wc completion{};
  provider::Cq::Stamp stamp;
  REQUIRE(a.send_cq->begin_poll(completion, stamp));
  std::thread other([&] { a.to(IBV_QPS_RESET); });
  // It waits for this poll before it takes completions away, and for nothing before that.
  const bool in_reset = eventually([&] { return a.qp->state() == IBV_QPS_INIT; });
  CHECK(in_reset);
  if (in_reset) CHECK(a.post(IBV_WR_SEND, 2, {}) == EINVAL);
  a.send_cq->end_poll();
  other.join();
  CHECK(a.send_cq->empty());
}

TEST_CASE_METHOD(Pair, "qp: ORD is what the program asks for, and at most what was agreed on (Verbs draft section 6.5)",
                 "[qp]") {
  Registered memory(b, Bytes(4096), kLocal | IBV_ACCESS_REMOTE_READ);
  Registered sink(a, Bytes(4096), kLocal);
  ibv_qp_attr attributes{};
  const bool before = GENERATE(true, false);
  if (before) {
    REQUIRE(a.to(IBV_QPS_INIT) == 0);
    attributes.max_rd_atomic = 2;
    REQUIRE(modify(a, IBV_QP_MAX_QP_RD_ATOMIC, attributes) == 0);
    CHECK(a.query().max_rd_atomic == 2);
  }
  connect();
  CHECK(a.query().max_rd_atomic == (before ? 2 : 4));
  CHECK(a.query().max_dest_rd_atomic == 4);
  const auto read = [&](std::uint64_t count) {
    for (std::uint64_t id = 0; id < count; ++id) {
      REQUIRE(a.post(IBV_WR_RDMA_READ, id, {sink.sge()}, memory) == 0);
    }
    for (std::uint64_t id = 0; id < count; ++id) check_next(*a.send_cq, id);
  };
  read(8);
  for (const auto& [asked, granted] : {std::pair{1, 1}, {4, 4}, {100, 4}}) {
    attributes.max_rd_atomic = static_cast<std::uint8_t>(asked);
    REQUIRE(modify(a, IBV_QP_MAX_QP_RD_ATOMIC, attributes) == 0);
    CHECK(a.query().max_rd_atomic == granted);
    read(8);
  }
  attributes.max_rd_atomic = 0;
  REQUIRE(modify(a, IBV_QP_MAX_QP_RD_ATOMIC, attributes) == 0);
  CHECK(a.post(IBV_WR_RDMA_READ, 1, {sink.sge()}, memory) == EINVAL);
}

TEST_CASE_METHOD(Pair, "qp: work outstanding is counted, and SQD drains it", "[qp]") {
  Registered memory(a, Bytes(24'000'000));
  CHECK(a.qp->sends_outstanding() == 0);
  connect();
  REQUIRE(a.post_receive(1, {}) == 0);
  REQUIRE(a.post_receive(2, {}) == 0);
  CHECK(a.qp->receives_outstanding() == 2);
  // More than two sockets hold, and no receive at the other end.
  REQUIRE(a.post(IBV_WR_SEND, 1, {memory.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {}) == 0);
  CHECK(a.qp->sends_outstanding() == 2);
  CHECK(a.query().sq_draining == 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  REQUIRE(modify(a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, attributes) == 0);
  CHECK(a.query().qp_state == IBV_QPS_SQD);
  CHECK(a.query().sq_draining == 1);
  CHECK(a.to(IBV_QPS_RTS) == EINVAL);
  CHECK_FALSE(next_event(*context, 0));
  Registered inbox(b, Bytes(24'000'000), kLocal);
  REQUIRE(b.post_receive(1, {inbox.sge()}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next_type(*context) == IBV_EVENT_SQ_DRAINED);
  CHECK(a.query().sq_draining == 0);
  CHECK(a.qp->sends_outstanding() == 0);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(a.qp->receives_outstanding() == 0);
  CHECK(enter_error());
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(PairApart, "qp: the peer does only what qp_access_flags give (Verbs draft section 8.1.2.2)", "[qp]") {
  Registered memory(b, Bytes(4096), kAll);
  Registered sink(a, Bytes(4096), kLocal);
  struct Operation {
    ibv_wr_opcode opcode;
    unsigned right;
  };
  const auto operation = GENERATE(Operation{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
                                  Operation{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
                                  Operation{IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC});
  const auto post = [&](std::uint64_t id) {
    const ibv_sge sge = sink.sge(0, 8);
    REQUIRE((operation.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? a.post_atomic(id, sge, memory.key(), memory.address(), 0)
                                                             : a.post(operation.opcode, id, {sge}, memory)) == 0);
  };
  connect();
  post(1);  // nothing was said
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = operation.right;
  REQUIRE(modify(b, IBV_QP_ACCESS_FLAGS, attributes) == 0);
  post(2);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 3, {}) == 0);  // reads no octet, and says that the Write was placed
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  attributes.qp_access_flags = kAll & ~operation.right;
  REQUIRE(modify(b, IBV_QP_ACCESS_FLAGS, attributes) == 0);
  post(4);
  const auto completion = next(*a.send_cq);
  // A Write is complete once TCP has it.
  CHECK(completion.status == (operation.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
  CHECK(next_type(*context_b) == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(enter_error());
}
