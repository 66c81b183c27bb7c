// SPDX-License-Identifier: MIT
// The commands that make connections and end them.
#include <arpa/inet.h>

#include "tests/wire/target/target.h"

namespace target {

namespace {

void listen(const Words& word) {  // listen NAME ADDRESS PORT
  rdma_cm_id*& id = g_target.ids[word[1]];
  must(rdma_create_id(g_target.channel, &id, nullptr, RDMA_PS_TCP), "create_id");
  sockaddr_storage address = parse_address(word[2], word[3]);
  must(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), "bind_addr");
  must(rdma_listen(id, 64), "listen");
  say("ok %u", ntohs(rdma_get_src_port(id)));
}

void resolve(const Words& word) {  // resolve NAME ADDRESS PORT
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), "create_id");
  g_target.ids[word[1]] = id;
  sockaddr_storage address = parse_address(word[2], word[3]);
  must(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 5000), "resolve_addr");
  must(rdma_resolve_route(id, 5000), "resolve_route");
  must(rdma_migrate_id(id, g_target.channel), "migrate_id");
  say("ok");
}

void add_qp(const Words& word) {  // qp NAME [PD [SEND_WR [RECV_WR]]]
  rdma_cm_id* id = find(g_target.ids, word[1]);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = g_target.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = word.size() > 3 ? static_cast<std::uint32_t>(number(word[3])) : 64;
  attributes.cap.max_recv_wr = word.size() > 4 ? static_cast<std::uint32_t>(number(word[4])) : 64;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 8;
  attributes.cap.max_inline_data = 256;
  must(rdma_create_qp(id, find(g_target.pds, word.size() > 2 ? word[2] : "pd"), &attributes), "create_qp");
  say("ok 0x%x", id->qp->qp_num);
}

void connect_or_accept(const Words& word) {  // connect|accept NAME IRD ORD PRIVATE_DATA
  rdma_cm_id* id = find(g_target.ids, word[1]);
  const auto data = from_hex(word[4]);
  rdma_conn_param parameters{};
  parameters.responder_resources = static_cast<std::uint8_t>(number(word[2]));
  parameters.initiator_depth = static_cast<std::uint8_t>(number(word[3]));
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.retry_count = parameters.rnr_retry_count = 7;
  if (word[0] == "connect")
    must(rdma_connect(id, &parameters), "connect");
  else
    must(rdma_accept(id, &parameters), "accept");
  say("ok");
}

void reject(const Words& word) {  // reject NAME PRIVATE_DATA
  const auto data = from_hex(word[2]);
  must(rdma_reject(find(g_target.ids, word[1]), data.data(), static_cast<std::uint8_t>(data.size())), "reject");
  say("ok");
}

void disconnect(const Words& word) {  // disconnect NAME
  must(rdma_disconnect(find(g_target.ids, word[1])), "disconnect");
  say("ok");
}

void destroy(const Words& word) {  // destroy NAME
  rdma_cm_id* id = find(g_target.ids, word[1]);
  g_target.ids.erase(word[1]);
  if (id->qp != nullptr) rdma_destroy_qp(id);
  must(rdma_destroy_id(id), "destroy_id");
  say("ok");
}

void state(const Words& word) {  // state NAME
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  must(ibv_query_qp(find(g_target.ids, word[1])->qp, &attributes, IBV_QP_STATE, &initial), "query_qp");
  say("ok %d", static_cast<int>(attributes.qp_state));
}

void fail(const Words& word) {  // fail NAME: the program moves its QP to ERR
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  must(ibv_modify_qp(find(g_target.ids, word[1])->qp, &attributes, IBV_QP_STATE), "modify_qp");
  say("ok");
}

}  // namespace

std::span<const Command> connection_commands() {
  static constexpr Command kCommands[] = {
      {"listen", 4, listen},
      {"resolve", 4, resolve},
      {"qp", 2, add_qp},
      {"connect", 5, connect_or_accept},
      {"accept", 5, connect_or_accept},
      {"reject", 3, reject},
      {"disconnect", 2, disconnect},
      {"destroy", 2, destroy},
      {"state", 2, state},
      {"fail", 2, fail},
  };
  return kCommands;
}

}  // namespace target
