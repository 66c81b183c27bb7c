// SPDX-License-Identifier: MIT
// Steps of ibv_modify_qp: from each state to each, without each attribute that is needed, with each that is not, and
// with bad values.
#include <functional>
#include <vector>

#include "tests/kernel/observe/observe.h"

namespace observe {
namespace {

struct Attribute {
  int bit;
  const char* name;
};
constexpr Attribute kAttributes[] = {{IBV_QP_CUR_STATE, "CUR_STATE"},
                                     {IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"},
                                     {IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
                                     {IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
                                     {IBV_QP_PORT, "PORT"},
                                     {IBV_QP_QKEY, "QKEY"},
                                     {IBV_QP_AV, "AV"},
                                     {IBV_QP_PATH_MTU, "PATH_MTU"},
                                     {IBV_QP_TIMEOUT, "TIMEOUT"},
                                     {IBV_QP_RETRY_CNT, "RETRY_CNT"},
                                     {IBV_QP_RNR_RETRY, "RNR_RETRY"},
                                     {IBV_QP_RQ_PSN, "RQ_PSN"},
                                     {IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
                                     {IBV_QP_ALT_PATH, "ALT_PATH"},
                                     {IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
                                     {IBV_QP_SQ_PSN, "SQ_PSN"},
                                     {IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
                                     {IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE"},
                                     {IBV_QP_CAP, "CAP"},
                                     {IBV_QP_DEST_QPN, "DEST_QPN"},
                                     {IBV_QP_RATE_LIMIT, "RATE_LIMIT"}};

const char* name_of(ibv_qp_type type) { return type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : "UD"; }

// What has to be given for the step into a state from the one before it (ibv_modify_qp(3)).
int needed_for(ibv_qp_type type, ibv_qp_state to) {
  const bool ud = type == IBV_QPT_UD, rc = type == IBV_QPT_RC;
  switch (to) {
    case IBV_QPS_INIT: return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    case IBV_QPS_RTR: {
      if (ud) return IBV_QP_STATE;
      const int connected = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      return connected | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
    }
    case IBV_QPS_RTS:
      return IBV_QP_STATE | IBV_QP_SQ_PSN |
             (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
    default: return IBV_QP_STATE;
  }
}

class Steps {
 public:
  Steps(const Device& device, ibv_qp_type type) : device_(device), type_(type) {}

  // A queue pair in this state; null if the provider does not get it there.
  ibv_qp* in(ibv_qp_state state) const {
    ibv_qp_init_attr init = qp_attributes(device_, type_);
    ibv_qp* const qp = ibv_create_qp(device_.pd, &init);
    if (qp == nullptr || state == IBV_QPS_RESET) return qp;
    std::vector<ibv_qp_state> way{IBV_QPS_INIT};
    if (state == IBV_QPS_ERR) way = {IBV_QPS_INIT, IBV_QPS_ERR};
    if (state == IBV_QPS_RTR) way = {IBV_QPS_INIT, IBV_QPS_RTR};
    if (state == IBV_QPS_RTS) way = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    if (state == IBV_QPS_SQD) way = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
    for (const ibv_qp_state next : way) {
      ibv_qp_attr attributes = valid(*qp, next);
      if (ibv_modify_qp(qp, &attributes, needed_for(type_, next)) == 0) continue;
      ibv_destroy_qp(qp);
      return nullptr;
    }
    return qp;
  }

  // Attributes that are right for the step: the queue pair is its own peer.
  ibv_qp_attr valid(const ibv_qp& qp, ibv_qp_state to) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = to;
    attributes.cur_qp_state = qp.state;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = qp.qp_num;
    attributes.port_num = 1;
    attributes.alt_port_num = 1;
    attributes.qkey = 0x1234;
    attributes.qp_access_flags = type_ == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.timeout = 14;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    attributes.cap = {8, 8, 1, 1, 0};
    attributes.ah_attr = own_address(device_);
    attributes.alt_ah_attr = attributes.ah_attr;
    return attributes;
  }

  // Tries a step and prints what came of it, with the state that the queue pair is in then.
  using Change = std::function<void(ibv_qp_attr&)>;
  void attempt(const std::string& what, ibv_qp_state from, ibv_qp_state to, int mask, const Change& change) const {
    ibv_qp* const qp = in(from);
    if (qp == nullptr) return;
    const std::string done =
        std::string("steps: ") + name_of(type_) + " " + observe::name_of(from) + " to " + observe::name_of(to) + what;
    ibv_qp_attr attributes = valid(*qp, to);
    attributes.cur_qp_state = from;
    change(attributes);
    say(done, result(ibv_modify_qp(qp, &attributes, mask)));
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    const int asked = ibv_query_qp(qp, &now, IBV_QP_STATE, &init);
    say(done + "; the state after it", asked == 0 ? observe::name_of(now.qp_state) : result(asked));
    ibv_destroy_qp(qp);
  }

  void all() const {
    const auto as_it_is = [](ibv_qp_attr&) {};
    constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                        IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
    for (const ibv_qp_state from : kStates) {
      if (from == IBV_QPS_SQE) continue;
      for (const ibv_qp_state to : kStates) attempt("", from, to, needed_for(type_, to), as_it_is);
    }
    constexpr ibv_qp_state kWay[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    for (int i = 0; i < 3; ++i) {
      const ibv_qp_state from = kWay[i], to = kWay[i + 1];
      const int needed = needed_for(type_, to);
      for (const Attribute& one : kAttributes) {
        const bool there = (needed & one.bit) != 0;
        attempt(std::string(there ? " without " : " with ") + one.name, from, to, needed ^ one.bit, as_it_is);
      }
    }
  }

  void bad_values() const {
    const auto to = [this](ibv_qp_state state, const char* what, const Change& change, int more = 0) {
      const ibv_qp_state from = state == IBV_QPS_INIT  ? IBV_QPS_RESET
                                : state == IBV_QPS_RTR ? IBV_QPS_INIT
                                                       : IBV_QPS_RTR;
      attempt(std::string(", ") + what, from, state, needed_for(type_, state) | more, change);
    };
    to(IBV_QPS_INIT, "port 0", [](ibv_qp_attr& it) { it.port_num = 0; });
    to(IBV_QPS_INIT, "port 2", [](ibv_qp_attr& it) { it.port_num = 2; });
    to(IBV_QPS_INIT, "pkey_index 1", [](ibv_qp_attr& it) { it.pkey_index = 1; });
    to(IBV_QPS_INIT, "pkey_index 64", [](ibv_qp_attr& it) { it.pkey_index = 64; });
    if (type_ == IBV_QPT_UD) return;
    to(IBV_QPS_INIT, "an unknown access flag", [](ibv_qp_attr& it) { it.qp_access_flags = 1U << 19; });
    to(
        IBV_QPS_INIT, "the wrong current state", [](ibv_qp_attr& it) { it.cur_qp_state = IBV_QPS_RTS; },
        IBV_QP_CUR_STATE);
    to(IBV_QPS_RTR, "path_mtu 0", [](ibv_qp_attr& it) { it.path_mtu = static_cast<ibv_mtu>(0); });
    to(IBV_QPS_RTR, "path_mtu 6", [](ibv_qp_attr& it) { it.path_mtu = static_cast<ibv_mtu>(6); });
    to(IBV_QPS_RTR, "path_mtu 4096", [](ibv_qp_attr& it) { it.path_mtu = IBV_MTU_4096; });
    to(IBV_QPS_RTR, "sgid_index 99", [](ibv_qp_attr& it) { it.ah_attr.grh.sgid_index = 99; });
    to(IBV_QPS_RTR, "an address without GRH", [](ibv_qp_attr& it) { it.ah_attr.is_global = 0; });
    to(IBV_QPS_RTR, "an address at port 2", [](ibv_qp_attr& it) { it.ah_attr.port_num = 2; });
    to(IBV_QPS_RTR, "an address at port 0", [](ibv_qp_attr& it) { it.ah_attr.port_num = 0; });
    to(IBV_QPS_RTR, "hop limit 0", [](ibv_qp_attr& it) { it.ah_attr.grh.hop_limit = 0; });
    to(IBV_QPS_RTR, "a GID of zeros", [](ibv_qp_attr& it) { it.ah_attr.grh.dgid = {}; });
    to(IBV_QPS_RTR, "a dest_qp_num of 25 bits", [](ibv_qp_attr& it) { it.dest_qp_num = 1U << 24; });
    to(IBV_QPS_RTR, "a PSN of 25 bits", [](ibv_qp_attr& it) { it.rq_psn = 1U << 24; });
    if (type_ != IBV_QPT_RC) return;
    to(IBV_QPS_RTR, "min_rnr_timer 32", [](ibv_qp_attr& it) { it.min_rnr_timer = 32; });
    to(IBV_QPS_RTR, "max_dest_rd_atomic 0", [](ibv_qp_attr& it) { it.max_dest_rd_atomic = 0; });
    to(IBV_QPS_RTR, "max_dest_rd_atomic 255", [](ibv_qp_attr& it) { it.max_dest_rd_atomic = 255; });
    to(IBV_QPS_RTS, "max_rd_atomic 0", [](ibv_qp_attr& it) { it.max_rd_atomic = 0; });
    to(IBV_QPS_RTS, "max_rd_atomic 255", [](ibv_qp_attr& it) { it.max_rd_atomic = 255; });
    to(IBV_QPS_RTS, "timeout 0", [](ibv_qp_attr& it) { it.timeout = 0; });
    to(IBV_QPS_RTS, "timeout 32", [](ibv_qp_attr& it) { it.timeout = 32; });
    to(IBV_QPS_RTS, "retry_cnt 8", [](ibv_qp_attr& it) { it.retry_cnt = 8; });
    to(IBV_QPS_RTS, "rnr_retry 8", [](ibv_qp_attr& it) { it.rnr_retry = 8; });
    to(IBV_QPS_RTS, "a PSN of 25 bits", [](ibv_qp_attr& it) { it.sq_psn = 1U << 24; });
  }

 private:
  const Device& device_;
  const ibv_qp_type type_;
};

}  // namespace

void observe_steps(const Device& device) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    const Steps steps(device, type);
    ibv_qp* const qp = steps.in(IBV_QPS_RESET);
    say(std::string("steps: a queue pair of type ") + name_of(type), made(qp));
    if (qp == nullptr) continue;
    ibv_destroy_qp(qp);
    steps.all();
    steps.bad_values();
  }
}

}  // namespace observe
