// SPDX-License-Identifier: MIT
// The commands for queue pairs of type UD. `recv` is the one of all queue pairs.
#include <arpa/inet.h>

#include <cstring>

#include "tests/wire/target/target.h"

namespace target {

namespace {

ibv_gid gid_of(const std::string& text) {
  const sockaddr_storage address = parse_address(text, "0");
  ibv_gid gid{};
  if (address.ss_family == AF_INET6) {
    std::memcpy(&gid, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof gid);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  return gid;
}

void modify(ibv_qp* qp, ibv_qp_state state, std::uint32_t qkey = 0) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.port_num = 1;
  attributes.qkey = qkey;
  ibv_qp_attr now{};
  ibv_qp_init_attr initial{};
  must(ibv_query_qp(qp, &now, IBV_QP_STATE, &initial), "query_qp");
  const int mask = state == IBV_QPS_INIT         ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
                   : now.qp_state == IBV_QPS_RTR ? IBV_QP_SQ_PSN
                                                 : 0;
  must(ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE), "modify_qp");
}

void add_ud(const Words& word) {  // ud NAME: in RESET
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = g_target.cq;
  attributes.qp_type = IBV_QPT_UD;
  attributes.cap = {64, 64, 8, 8, 256};
  ibv_qp* qp = made(ibv_create_qp(find(g_target.pds, "pd"), &attributes), "create_qp");
  g_target.datagram_qps[word[1]] = qp;
  say("ok 0x%x", qp->qp_num);
}

void step(const Words& word) {  // ud_step NAME STATE(number of ibv_qp_state) [QKEY]
  modify(find(g_target.datagram_qps, word[1]), static_cast<ibv_qp_state>(number(word[2])),
         word.size() > 3 ? static_cast<std::uint32_t>(number(word[3])) : 0);
  say("ok");
}

void end_ud(const Words& word) {  // ud_destroy NAME
  ibv_qp* qp = find(g_target.datagram_qps, word[1]);
  g_target.datagram_qps.erase(word[1]);
  must(ibv_destroy_qp(qp), "destroy_qp");
  say("ok");
}

// ah NAME SOURCE DESTINATION [class=N] [hops=N] [label=N]: addresses, the source is one of the device
void add_ah(const Words& word) {
  const ibv_gid source = gid_of(word[2]);
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.is_global = 1;
  attributes.grh.dgid = gid_of(word[3]);
  const std::uint64_t hops = value_of(word, "hops");
  attributes.grh.hop_limit = static_cast<std::uint8_t>(hops == 0 ? 64 : hops);
  attributes.grh.traffic_class = static_cast<std::uint8_t>(value_of(word, "class"));
  attributes.grh.flow_label = static_cast<std::uint32_t>(value_of(word, "label"));
  ibv_gid gid{};
  for (int index = 0; ibv_query_gid(g_target.verbs, 1, index, &gid) == 0; ++index) {
    if (std::memcmp(&gid, &source, sizeof gid) != 0) continue;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(index);
    ibv_pd* pd = find(g_target.pds, "pd");
    g_target.address_handles[word[1]] = made(ibv_create_ah(pd, &attributes), "create_ah");
    return say("ok");
  }
  throw std::runtime_error("0 the device has no GID " + word[2]);
}

// ud_send NAME WR_ID FLAGS(as of post) AH QPN QKEY [SGE... imm=NUMBER]: with imm= a Send with immediate
void send(const Words& word) {
  Work work;
  work.list = parse_sges(word, 7);
  work.request.wr_id = number(word[2]);
  work.request.opcode = IBV_WR_SEND;
  for (const std::string& one : word) {
    if (one.starts_with("imm=")) work.request.opcode = IBV_WR_SEND_WITH_IMM;
  }
  work.request.imm_data = htonl(static_cast<std::uint32_t>(value_of(word, "imm")));
  work.request.send_flags = flags_of(word[3]);
  work.request.wr.ud.ah = find(g_target.address_handles, word[4]);
  work.request.wr.ud.remote_qpn = static_cast<std::uint32_t>(number(word[5]));
  work.request.wr.ud.remote_qkey = static_cast<std::uint32_t>(number(word[6]));
  post_work(find(g_target.datagram_qps, word[1]), std::move(work), word[3]);
  say("ok");
}

}  // namespace

std::span<const Command> datagram_commands() {
  static constexpr Command kCommands[] = {
      {"ud", 2, add_ud}, {"ud_step", 3, step}, {"ud_destroy", 2, end_ud}, {"ah", 4, add_ah}, {"ud_send", 7, send},
  };
  return kCommands;
}

}  // namespace target
