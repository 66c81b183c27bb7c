// SPDX-License-Identifier: MIT
// Datagrams (UD): what arrives and with which header, address handles, and groups.
#include <arpa/inet.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/kernel/observe/pair.h"

namespace observe {
namespace {

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::size_t kHeader = 40;

// Two queue pairs of this process; the first one sends to the second.
class Datagrams {
 public:
  explicit Datagrams(const Device& device) : device_(device) {
    for (int i = 0; i < 2; ++i) {
      cq_[i] = ibv_create_cq(device.context, 32, nullptr, nullptr, 0);
      ibv_qp_init_attr attributes = qp_attributes(device, IBV_QPT_UD);
      attributes.send_cq = attributes.recv_cq = cq_[i];
      attributes.cap.max_inline_data = 32;
      qp_[i] = ibv_create_qp(device.pd, &attributes);
    }
    memory_.resize(32 * 1024);
    mr_ = ibv_reg_mr(device.pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  }
  ~Datagrams() {
    for (ibv_qp* const qp : qp_)
      if (qp != nullptr) ibv_destroy_qp(qp);
    for (ibv_cq* const cq : cq_)
      if (cq != nullptr) ibv_destroy_cq(cq);
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
  }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;
  bool ready() const { return qp_[0] != nullptr && qp_[1] != nullptr && mr_ != nullptr; }

  int step(ibv_qp* qp, ibv_qp_state to) {
    ibv_qp_attr attributes{};
    attributes.qp_state = to;
    attributes.port_num = 1;
    attributes.qkey = kQkey;
    const int mask = to == IBV_QPS_INIT  ? IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY
                     : to == IBV_QPS_RTS ? int{IBV_QP_SQ_PSN}
                                         : 0;
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask);
  }
  int post_receive(std::uint32_t length, int which = 1) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory_.data()), length, mr_->lkey};
    std::fill_n(memory_.begin(), length, char{0});
    return observe::post_receive(qp_[which], piece);
  }
  struct Send {
    std::uint32_t length = 32;
    unsigned flags = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    std::uint32_t qkey = kQkey;
    std::uint32_t to = 0;  // 0: the second queue pair
  };
  std::string send(const Send& wanted, ibv_ah* ah) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory_.data()) + 16 * 1024, wanted.length, mr_->lkey};
    ibv_send_wr request{};
    request.opcode = wanted.opcode;
    request.send_flags = IBV_SEND_SIGNALED | wanted.flags;
    request.imm_data = htobe32(0x01020304);
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.ud = {ah, wanted.to != 0 ? wanted.to : qp_[1]->qp_num, wanted.qkey};
    return outcome_of(qp_[0], request);
  }
  std::optional<ibv_wc> arrived(int which = 1) { return Pair::next(cq_[which], std::chrono::milliseconds(400)); }
  static std::string text(const std::optional<ibv_wc>& wc) {
    if (!wc) return "nothing";
    if (wc->status != IBV_WC_SUCCESS) return ibv_wc_status_str(wc->status);
    return std::to_string(wc->byte_len) + " octets" + ((wc->wc_flags & IBV_WC_GRH) != 0 ? " with GRH" : "") +
           ((wc->wc_flags & IBV_WC_WITH_IMM) != 0 ? ", immediate" : "");
  }

  void states();
  void messages();
  void headers();
  void replies();
  void groups();
  static void look_at_errors(const Device& device);

 private:
  void look(const std::string& what, std::uint32_t receive, const Send& wanted,
            const std::function<void(ibv_ah_attr&)>& change = {}) {
    ibv_ah_attr attributes = own_address(device_);
    if (change) change(attributes);
    ibv_ah* const ah = ibv_create_ah(device_.pd, &attributes);
    if (ah == nullptr) return say("datagrams: " + what, "no address handle: " + result(-1));
    if (receive != 0) post_receive(receive);
    const std::string sent = send(wanted, ah);
    const auto came = arrived();
    say("datagrams: " + what, sent + "; " + text(came));
    ibv_qp_attr state{};
    ibv_qp_init_attr init{};
    if (ibv_query_qp(qp_[0], &state, IBV_QP_STATE, &init) == 0 && state.qp_state == IBV_QPS_SQE) {
      say("datagrams: " + what + ", the state then", "SQE");
      state.qp_state = IBV_QPS_RTS;
      ibv_modify_qp(qp_[0], &state, IBV_QP_STATE);
    }
    // A receive that was not used is used up.
    if (receive != 0 && !came) send({}, ah), arrived();
    ibv_destroy_ah(ah);
  }

  const Device& device_;
  std::vector<char> memory_;
  ibv_mr* mr_ = nullptr;
  ibv_cq* cq_[2] = {};
  ibv_qp* qp_[2] = {};
};

void Datagrams::states() {
  ibv_ah_attr attributes = own_address(device_);
  ibv_ah* const ah = ibv_create_ah(device_.pd, &attributes);
  say("datagrams: a receive in RESET", result(post_receive(100)));
  say("datagrams: a step to INIT", result(step(qp_[1], IBV_QPS_INIT)) + ", " + result(step(qp_[0], IBV_QPS_INIT)));
  say("datagrams: a receive in INIT", result(post_receive(kHeader + 32)));
  say("datagrams: a Send in INIT", send({}, ah));
  say("datagrams: a step to RTR", result(step(qp_[1], IBV_QPS_RTR)) + ", " + result(step(qp_[0], IBV_QPS_RTR)));
  say("datagrams: a Send in RTR", send({}, ah));
  say("datagrams: a step to RTS", result(step(qp_[0], IBV_QPS_RTS)));
  const std::string sent = send({}, ah);
  say("datagrams: a Send to one in RTR", sent + "; " + text(arrived()));
  say("datagrams: a step to RTS of that", result(step(qp_[1], IBV_QPS_RTS)));
  if (ah != nullptr) ibv_destroy_ah(ah);
}

void Datagrams::messages() {
  ibv_port_attr port{};
  ibv_query_port(device_.context, 1, &port);
  const std::uint32_t mtu = 128U << port.active_mtu;
  look("a Send", kHeader + 32, {});
  look("a Send with immediate", kHeader + 32, {.opcode = IBV_WR_SEND_WITH_IMM});
  look("an inline Send", kHeader + 32, {.flags = IBV_SEND_INLINE});
  look("a Send of no octets", kHeader, {.length = 0});
  look("a Send of one MTU", kHeader + mtu, {.length = mtu});
  look("a Send of one MTU and an octet", kHeader + mtu + 1, {.length = mtu + 1});
  look("without a receive", 0, {});
  look("with another Q_Key", kHeader + 32, {.qkey = kQkey + 1});
  look("with a Q_Key whose highest bit is set, which stands for that of the queue pair", kHeader + 32,
       {.qkey = 0x80000000U});
  look("to a queue pair that is none", kHeader + 32, {.to = 0xABCDE});
}

// Each with queue pairs of its own, since they may end in ERR.
void Datagrams::look_at_errors(const Device& device) {
  const auto alone = [&](const std::string& what, std::uint32_t receive, const Send& wanted) {
    Datagrams datagrams(device);
    if (!datagrams.ready()) return;
    for (ibv_qp* const qp : datagrams.qp_)
      for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) datagrams.step(qp, next);
    datagrams.look(what, receive, wanted);
  };
  alone("to a receive that is an octet too short", kHeader + 31, {});
  alone("to a receive without room for the GRH", 8, {});
  alone("an RDMA Write", 0, {.opcode = IBV_WR_RDMA_WRITE});
  alone("an RDMA Read", 0, {.opcode = IBV_WR_RDMA_READ});
}

// The 40 octets in front: for IPv4 its header is in the last 20.
void Datagrams::headers() {
  ibv_ah_attr attributes = own_address(device_);
  attributes.grh.traffic_class = 0x28;
  attributes.grh.hop_limit = 7;
  attributes.sl = 3;
  ibv_ah* const ah = ibv_create_ah(device_.pd, &attributes);
  if (ah == nullptr || post_receive(kHeader + 32) != 0) return;
  send({}, ah);
  const auto wc = arrived();
  if (!wc) return say("datagrams: its header", "none");
  const auto* const octets = reinterpret_cast<const unsigned char*>(memory_.data());
  const auto field = [](const std::string& name, unsigned value) {
    say("datagrams: its header, " + name, std::to_string(value));
  };
  field("version and length", octets[20]);
  field("traffic class", octets[21]);
  field("total length", octets[22] * 256U + octets[23]);
  field("hop limit", octets[28]);
  field("protocol", octets[29]);
  say("datagrams: its header, source and destination",
      std::memcmp(octets + 32, &device_.address.sin_addr, 4) == 0 &&
              std::memcmp(octets + 36, &device_.address.sin_addr, 4) == 0
          ? "right"
          : "wrong");
  const auto of_wc = [](const std::string& name, unsigned value) {
    say("datagrams: its completion, " + name, std::to_string(value));
  };
  of_wc("opcode", wc->opcode);
  of_wc("pkey_index", wc->pkey_index);
  of_wc("slid", wc->slid);
  of_wc("sl", wc->sl);
  of_wc("dlid_path_bits", wc->dlid_path_bits);
  say("datagrams: its completion, src_qp", wc->src_qp == qp_[0]->qp_num ? "right" : "wrong");
  say("datagrams: its completion, qp_num", wc->qp_num == qp_[1]->qp_num ? "right" : "wrong");
  ibv_destroy_ah(ah);
}

// What libibverbs makes of the completion and the header.
void Datagrams::replies() {
  ibv_ah_attr attributes = own_address(device_);
  attributes.grh.traffic_class = 0x28;
  ibv_ah* const ah = ibv_create_ah(device_.pd, &attributes);
  if (ah == nullptr || post_receive(kHeader + 32) != 0) return;
  send({}, ah);
  auto wc = arrived();
  ibv_destroy_ah(ah);
  if (!wc) return say("datagrams: to be answered", "none");
  auto* const header = reinterpret_cast<ibv_grh*>(memory_.data());
  ibv_ah_attr back{};
  say("datagrams: ibv_init_ah_from_wc", result(ibv_init_ah_from_wc(device_.context, 1, &*wc, header, &back)));
  say("datagrams: the address of an answer, is_global", std::to_string(back.is_global));
  say("datagrams: the address of an answer, port_num", std::to_string(back.port_num));
  say("datagrams: the address of an answer, sgid_index", back.grh.sgid_index == device_.gid_index ? "right" : "wrong");
  say("datagrams: the address of an answer, dgid",
      std::memcmp(&back.grh.dgid, &device_.gid, sizeof back.grh.dgid) == 0 ? "right" : "wrong");
  say("datagrams: the address of an answer, traffic class", std::to_string(back.grh.traffic_class));
  ibv_ah* const answer = ibv_create_ah_from_wc(device_.pd, &*wc, header, 1);
  say("datagrams: ibv_create_ah_from_wc", made(answer));
  if (answer == nullptr) return;
  post_receive(kHeader + 32);
  const std::string sent = send({}, answer);
  say("datagrams: a Send by it", sent + "; " + text(arrived()));
  ibv_destroy_ah(answer);
}

void Datagrams::groups() {
  const auto group = [](const char* address) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xFF;
    inet_pton(AF_INET, address, gid.raw + 12);
    return gid;
  };
  const ibv_gid one = group("239.1.2.3"), other = group("239.1.2.4"), unicast = device_.gid;
  say("datagrams: a group that is no group is joined", result(ibv_attach_mcast(qp_[1], &unicast, 0)));
  say("datagrams: a group is left that was never joined", result(ibv_detach_mcast(qp_[1], &other, 0)));
  say("datagrams: a group is joined", result(ibv_attach_mcast(qp_[1], &one, 0)));
  say("datagrams: it is joined again", result(ibv_attach_mcast(qp_[1], &one, 0)));
  const auto to_group = [&](const ibv_gid& gid) {
    return [&gid](ibv_ah_attr& attributes) { attributes.grh.dgid = gid, attributes.grh.hop_limit = 1; };
  };
  look("to the group", kHeader + 32, {.to = 0xFFFFFF}, to_group(one));
  look("to another group", kHeader + 32, {.to = 0xFFFFFF}, to_group(other));
  ibv_qp_init_attr attributes = qp_attributes(device_, IBV_QPT_UD);
  ibv_qp* const qp = ibv_create_qp(device_.pd, &attributes);
  ibv_attach_mcast(qp, &one, 0);
  say("datagrams: a member of a group is destroyed", result(ibv_destroy_qp(qp)));
  say("datagrams: it leaves it", result(ibv_detach_mcast(qp, &one, 0)));
  say("datagrams: and is destroyed", result(ibv_destroy_qp(qp)));
  say("datagrams: the group is left", result(ibv_detach_mcast(qp_[1], &one, 0)));
  look("to the group that was left", kHeader + 32, {.to = 0xFFFFFF}, to_group(one));
}

}  // namespace

void observe_datagrams(const Device& device) {
  Datagrams datagrams(device);
  say("datagrams: queue pairs", datagrams.ready() ? "made" : "none");
  if (!datagrams.ready()) return;
  datagrams.states();
  datagrams.messages();
  datagrams.headers();
  datagrams.replies();
  datagrams.groups();
  Datagrams::look_at_errors(device);
}

}  // namespace observe
