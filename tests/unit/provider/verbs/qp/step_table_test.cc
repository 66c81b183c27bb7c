// SPDX-License-Identifier: MIT
// ibv_modify_qp in the RoCE view: which steps there are between two states, and which attributes each of them requires
// and takes, for queue pairs that are connected by hand and by rdma_cm.
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "provider/verbs/datagram/datagram_qp.h"
#include "provider/verbs/qp/qp_attributes.h"
#include "tests/unit/provider/pair.h"

namespace uiw::test {

namespace {

using provider::QueuePair;

// One letter for each attribute.
const std::map<char, int> kLetters{
    {'u', IBV_QP_CUR_STATE},
    {'e', IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {'f', IBV_QP_ACCESS_FLAGS},
    {'k', IBV_QP_PKEY_INDEX},
    {'p', IBV_QP_PORT},
    {'q', IBV_QP_QKEY},
    {'v', IBV_QP_AV},
    {'m', IBV_QP_PATH_MTU},
    {'t', IBV_QP_TIMEOUT},
    {'c', IBV_QP_RETRY_CNT},
    {'y', IBV_QP_RNR_RETRY},
    {'b', IBV_QP_RQ_PSN},
    {'x', IBV_QP_MAX_QP_RD_ATOMIC},
    {'l', IBV_QP_ALT_PATH},
    {'n', IBV_QP_MIN_RNR_TIMER},
    {'s', IBV_QP_SQ_PSN},
    {'z', IBV_QP_MAX_DEST_RD_ATOMIC},
    {'g', IBV_QP_PATH_MIG_STATE},
    {'a', IBV_QP_CAP},
    {'d', IBV_QP_DEST_QPN},
    {'r', IBV_QP_RATE_LIMIT},
};
int mask_of(std::string_view letters) {
  int mask = 0;
  for (const char one : letters) mask |= kLetters.at(one);
  return mask;
}

// What the kernel's table says (qp_state_table of drivers/infiniband/core/verbs.c): required attributes, then those
// that are taken as well.
struct Allowed {
  std::string_view required, optional;
};
using Table = std::map<std::pair<ibv_qp_state, ibv_qp_state>, Allowed>;

Table table_of(ibv_qp_type type) {
  Table table{{{IBV_QPS_RESET, IBV_QPS_RESET}, {}}};
  for (const ibv_qp_state from : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR}) {
    table[{from, IBV_QPS_RESET}] = table[{from, IBV_QPS_ERR}] = {};
  }
  const auto add = [&](ibv_qp_state from, ibv_qp_state to, Allowed rc, Allowed uc, Allowed ud) {
    table[{from, to}] = type == IBV_QPT_RC ? rc : type == IBV_QPT_UC ? uc : ud;
  };
  add(IBV_QPS_RESET, IBV_QPS_INIT, {"kpf", ""}, {"kpf", ""}, {"kpq", ""});
  add(IBV_QPS_INIT, IBV_QPS_INIT, {"", "kpf"}, {"", "kpf"}, {"", "kpq"});
  add(IBV_QPS_INIT, IBV_QPS_RTR, {"vmdbzn", "lfk"}, {"vmdb", "lfk"}, {"", "kq"});
  add(IBV_QPS_RTR, IBV_QPS_RTS, {"tcysx", "ulfng"}, {"s", "ulfg"}, {"s", "uq"});
  add(IBV_QPS_RTS, IBV_QPS_RTS, {"", "uflgn"}, {"", "uflg"}, {"", "uq"});
  add(IBV_QPS_RTS, IBV_QPS_SQD, {"", "e"}, {"", "e"}, {"", "e"});
  add(IBV_QPS_SQD, IBV_QPS_RTS, {"", "ulfng"}, {"", "ulfg"}, {"", "uq"});
  add(IBV_QPS_SQD, IBV_QPS_SQD, {"", "pvtcyxzlfkng"}, {"", "vlfkg"}, {"", "kq"});
  add(IBV_QPS_SQE, IBV_QPS_RTS, {"", ""}, {"", "uf"}, {"", "uq"});
  return table;
}

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

// What the kernel's rule answers; a device without alternate paths refuses them where the table takes them.
int expected(const Table& table, ibv_qp_state from, ibv_qp_state to, int mask) {
  if ((mask & IBV_QP_RATE_LIMIT) != 0 || mask >> 21 != 0) return EOPNOTSUPP;
  const auto found = table.find({from, to});
  if (found == table.end()) return EINVAL;
  const int required = mask_of(found->second.required), optional = mask_of(found->second.optional);
  if ((mask & required) != required || (mask & ~(IBV_QP_STATE | required | optional)) != 0) return EINVAL;
  return (mask & IBV_QP_ALT_PATH) != 0 ? EOPNOTSUPP : 0;
}

// A queue pair of any type.
struct End : Surroundings {
  End(Context& in, ibv_qp_type type) : Surroundings(in) {
    ibv_qp_init_attr attributes = attributes_of(type);
    qp = QueuePair::create(in, pd, send_cq.get(), receive_cq.get(), attributes, nullptr, nullptr);
    REQUIRE(qp);
  }
  // All attributes have values that are good for this queue pair in the state `from`.
  ibv_qp_attr values(ibv_qp_state from, ibv_qp_state to) const {
    ibv_qp_attr good{};
    good.qp_state = to;
    good.cur_qp_state = from;
    good.port_num = 1;
    good.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    good.path_mtu = IBV_MTU_1024;
    good.timeout = 14;
    good.retry_cnt = good.rnr_retry = 7;
    good.min_rnr_timer = 12;
    good.path_mig_state = IBV_MIG_MIGRATED;
    good.max_rd_atomic = good.max_dest_rd_atomic = 1;
    good.dest_qp_num = by_manager ? provider::kManagedQpNumber : qp->number();  // by hand it is its own peer
    good.ah_attr.is_global = good.ah_attr.port_num = 1;
    std::memcpy(good.ah_attr.grh.dgid.raw, context.device().gids[0].data(), sizeof good.ah_attr.grh.dgid.raw);
    return good;
  }
  int step(ibv_qp_state from, ibv_qp_state to, int mask) const { return qp->modify(values(from, to), mask); }
  ibv_qp_state state() const {
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    qp->query(now, init);
    return now.qp_state;
  }
  // Makes the steps to this state; SQE is not among them.
  void bring_to(const Table& table, ibv_qp_state wanted) {
    peer.reset();
    if (state() != IBV_QPS_RESET) REQUIRE(step(state(), IBV_QPS_RESET, IBV_QP_STATE) == 0);
    const auto go = [&](ibv_qp_state from, ibv_qp_state to) {
      if (wanted == from) return false;
      REQUIRE(step(from, to, IBV_QP_STATE | mask_of(table.at({from, to}).required)) == 0);
      return true;
    };
    if (!go(IBV_QPS_RESET, IBV_QPS_INIT)) return;
    if (by_manager) connect();
    if (wanted == IBV_QPS_ERR) {
      go(IBV_QPS_INIT, IBV_QPS_ERR);
    } else if (go(IBV_QPS_INIT, IBV_QPS_RTR) && go(IBV_QPS_RTR, IBV_QPS_RTS)) {
      go(IBV_QPS_RTS, IBV_QPS_SQD);
    }
    REQUIRE(state() == wanted);
  }
  // The connection manager connects; the program makes its steps behind that.
  void connect() {
    auto [one, two] = tcp_pair();
    REQUIRE(static_cast<Qp&>(*qp).attach(two, attachment_of(kRaw, false)) == 0);
    peer.emplace(std::move(one));
  }

  std::unique_ptr<QueuePair> qp;
  bool by_manager = false;
  std::optional<TcpStream> peer;
};

void walk(End& end, ibv_qp_type type) {
  const Table table = table_of(type);
  for (const ibv_qp_state from : kStates) {
    if (from == IBV_QPS_SQE) continue;  // a program cannot go there
    end.bring_to(table, from);
    for (const ibv_qp_state to : kStates) {
      const auto found = table.find({from, to});
      const int required = found == table.end() ? 0 : mask_of(found->second.required);
      const auto try_mask = [&](int mask) {
        INFO("type " << type << ", " << from << " to " << to << ", mask " << mask);
        const int wanted = expected(table, from, to, mask);
        CHECK(end.step(from, to, mask) == wanted);
        CHECK(end.state() == (wanted == 0 ? to : from));
        if (wanted == 0 && (to != from || to == IBV_QPS_RESET)) end.bring_to(table, from);
      };
      if (from == to) try_mask(required);  // a call without a state keeps it
      try_mask(IBV_QP_STATE | required);
      for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
        if (bit != IBV_QP_STATE) try_mask((IBV_QP_STATE | required) ^ bit);
      }
    }
    INFO("from " << from);
    CHECK(end.step(from, static_cast<ibv_qp_state>(7), IBV_QP_STATE) == EINVAL);
    CHECK(end.step(from, static_cast<ibv_qp_state>(-1), IBV_QP_STATE) == EINVAL);
  }
}

}  // namespace

TEST_CASE("The table of steps has what the kernel's has, with each attribute, for each type") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    const Table table = table_of(type);
    for (const ibv_qp_state from : kStates) {
      for (const ibv_qp_state to : kStates) {
        const auto found = table.find({from, to});
        const int required = found == table.end() ? 0 : mask_of(found->second.required);
        for (int bit = 1; bit <= 1 << 30 && bit > 0; bit <<= 1) {
          INFO("type " << type << ", " << from << " to " << to << ", attribute " << bit);
          const int mask = (IBV_QP_STATE | required) ^ (bit == IBV_QP_STATE ? 0 : bit);
          const int wanted = expected(table, from, to, mask);
          const bool unsupported = (mask & IBV_QP_ALT_PATH) != 0 && wanted == EOPNOTSUPP && mask >> 21 == 0;
          CHECK(provider::check_step(from, to, type, mask) == (unsupported ? 0 : wanted));
        }
      }
    }
  }
}

TEST_CASE_METHOD(Loopback, "Queue pairs that are connected by hand make the steps of InfiniBand, and no others") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    End end(*context, type);
    walk(end, type);
  }
}

TEST_CASE_METHOD(Loopback, "Queue pairs that rdma_cm connects make the steps of InfiniBand, and no others") {
  End end(*context, IBV_QPT_RC);
  end.by_manager = true;
  walk(end, IBV_QPT_RC);
}

TEST_CASE_METHOD(Loopback,
                 "Unsent work takes a queue pair for datagrams to SQE, and the steps of InfiniBand out of it") {
  const Table table = table_of(IBV_QPT_UD);
  End end(*context, IBV_QPT_UD);
  for (const ibv_qp_state to : kStates) {
    end.bring_to(table, IBV_QPS_RTS);
    end.qp->identity().state = IBV_QPS_SQE;
    INFO("SQE to " << to);
    for (const int more : {int{IBV_QP_PORT}, int{IBV_QP_PKEY_INDEX}, 0}) {
      const int wanted = expected(table, IBV_QPS_SQE, to, IBV_QP_STATE | more);
      CHECK(end.step(IBV_QPS_SQE, to, IBV_QP_STATE | more) == wanted);
      CHECK(end.state() == (wanted == 0 ? to : IBV_QPS_SQE));
    }
  }
}

TEST_CASE_METHOD(Pair, "In SQD a queue pair of rdma_cm holds what is posted, and goes back to RTS") {
  for (Side* side : {&a, &b}) side->qp->identity().state = IBV_QPS_RTS;  // the program has made its steps
  connect();
  REQUIRE(a.to(IBV_QPS_SQD) == 0);
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {}) == 0);
  // A round trip the other way passes what would have come before it.
  REQUIRE(a.post_receive(3, {}) == 0);
  REQUIRE(b.post(IBV_WR_SEND, 4, {}) == 0);
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.send_cq).status == IBV_WC_SUCCESS);
  CHECK(none(*b.receive_cq));
  REQUIRE(a.to(IBV_QPS_RTS) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(Pair, "rdma_cm's number for the peer connects nothing, before the stream comes and after") {
  const bool first = GENERATE(true, false);
  const auto step_all = [](Side& side) {
    ibv_qp_attr attributes{};
    attributes.dest_qp_num = provider::kManagedQpNumber;
    attributes.ah_attr.is_global = attributes.ah_attr.port_num = 1;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4;
    attributes.port_num = 1;
    attributes.qp_state = IBV_QPS_INIT;
    REQUIRE(side.qp->modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attributes.qp_state = IBV_QPS_RTR;
    REQUIRE(side.qp->modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attributes.qp_state = IBV_QPS_RTS;
    REQUIRE(side.qp->modify(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    CHECK(side.query().dest_qp_num == provider::kManagedQpNumber);
  };
  if (first) {
    step_all(a);
    step_all(b);
  }
  connect();
  if (!first) {
    step_all(a);
    step_all(b);
  }
  CHECK(a.qp->state() == IBV_QPS_RTS);
  CHECK(a.query().max_rd_atomic == 4);
  Registered memory(a, Bytes(16));
  Registered sink(b, Bytes(16), kLocal);
  REQUIRE(b.post_receive(1, {sink.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {memory.sge()}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
}

}  // namespace uiw::test
