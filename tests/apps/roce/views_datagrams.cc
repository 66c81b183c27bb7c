// SPDX-License-Identifier: MIT
// Datagrams by ibv_wr_*, to a queue pair itself: an event for a solicited one, and an address handle from what arrived.
#include <arpa/inet.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/apps/roce/views.h"

namespace apps::views {

namespace {

constexpr std::uint32_t kQkey = 0x11;
constexpr std::size_t kGrh = 40;

struct Datagrams {
  explicit Datagrams(ibv_context* opened) : context(opened) {
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 16, nullptr, channel, 0);
    expect(pd != nullptr && channel != nullptr && cq != nullptr, "queues");
    mr = reg(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_UD;
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {4, 4, 1, 1, 64};
    attributes.pd = pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    qp = ibv_create_qp_ex(context, &attributes);
    expect(mr != nullptr && qp != nullptr, "ibv_create_qp_ex");
    step(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    step(IBV_QPS_RTR, 0);
    step(IBV_QPS_RTS, IBV_QP_SQ_PSN);
  }
  ~Datagrams() {
    expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
    expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
    expect_error("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel), 0);
    expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), 0);
  }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  void step(ibv_qp_state state, int mask) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    attributes.qkey = kQkey;
    expect_error("ibv_modify_qp", ibv_modify_qp(qp, &attributes, mask | IBV_QP_STATE), 0);
  }

  ibv_context* context;
  ibv_pd* pd;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_mr* mr;
  ibv_qp* qp;
  std::uint8_t memory[256] = {};
};

void send_to_itself(Datagrams& own, ibv_ah* address) {
  post_receive(own.qp, {{number(own.memory), sizeof own.memory, own.mr->lkey}}, 1);
  expect_error("ibv_req_notify_cq", ibv_req_notify_cq(own.cq, 1), 0);
  char text[] = "hello";
  ibv_qp_ex* builder = ibv_qp_to_qp_ex(own.qp);
  ibv_wr_start(builder);
  builder->wr_id = 2;
  builder->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
  ibv_wr_send_imm(builder, 0x01020304);
  ibv_wr_set_inline_data(builder, text, sizeof text);
  ibv_wr_set_ud_addr(builder, address, own.qp->qp_num, kQkey);
  expect_error("ibv_wr_complete", ibv_wr_complete(builder), 0);
}

constexpr std::uint8_t kTrafficClass = 0xB8;

}  // namespace

void datagram_to_itself(ibv_context* context, std::uint8_t index, std::uint32_t label) {
  Datagrams own(context);
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  attributes.is_global = 1;
  attributes.grh.sgid_index = index;
  attributes.grh.traffic_class = kTrafficClass;
  attributes.grh.flow_label = kFlowLabel;
  expect_error("ibv_query_gid", ibv_query_gid(context, 1, index, &attributes.grh.dgid), 0);
  ibv_ah* address = ibv_create_ah(own.pd, &attributes);
  expect(address != nullptr, "ibv_create_ah");
  send_to_itself(own, address);
  pollfd ready{own.channel->fd, POLLIN, 0};
  expect(::poll(&ready, 1, 20'000) == 1, "no event for a solicited datagram");  // the program does not poll its queue
  ibv_cq* cq = nullptr;
  void* of = nullptr;
  expect_error("ibv_get_cq_event", ibv_get_cq_event(own.channel, &cq, &of), 0);
  ibv_ack_cq_events(cq, 1);
  ibv_wc completions[2];
  expect(ibv_poll_cq(own.cq, 2, completions) == 2, "not both completions");
  const ibv_wc& got = completions[completions[0].opcode == IBV_WC_RECV ? 0 : 1];
  expect(got.status == IBV_WC_SUCCESS && got.byte_len == kGrh + 6, "the receive");
  expect(got.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && got.imm_data == 0x01020304, "flags and immediate data");
  expect(got.src_qp == own.qp->qp_num && got.pkey_index == 0, "its source");
  expect(std::memcmp(own.memory + kGrh, "hello", 6) == 0, "its octets");
  ibv_wc copy = got;
  auto* grh = reinterpret_cast<ibv_grh*>(own.memory);
  ibv_ah_attr back{};
  expect_error("ibv_init_ah_from_wc", ibv_init_ah_from_wc(context, 1, &copy, grh, &back), 0);
  expect(back.grh.traffic_class == kTrafficClass, "the traffic class of the way back");
  const bool ipv4 = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(attributes.grh.dgid.raw)) != 0;
  if (!ipv4) expect((ntohl(grh->version_tclass_flow) & 0xFFFFF) == label, "the flow label");
  expect(back.grh.sgid_index == index && std::memcmp(&back.grh.dgid, &attributes.grh.dgid, 16) == 0, "the way back");
  ibv_ah* second = ibv_create_ah_from_wc(own.pd, &copy, grh, 1);
  expect(second != nullptr, "ibv_create_ah_from_wc");
  expect_error("ibv_destroy_ah", ibv_destroy_ah(second), 0);
  expect_error("ibv_destroy_ah", ibv_destroy_ah(address), 0);
}

namespace {

void walk_all(std::uint32_t label) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  expect(count > 0, "no device");
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ibv_open_device(devices[i]);
    expect(context != nullptr, "ibv_open_device");
    ibv_port_attr port{};
    expect_error("ibv_query_port", ibv_query_port(context, 1, &port), 0);
    for (int index = 0; index < port.gid_tbl_len; ++index)
      datagram_to_itself(context, static_cast<std::uint8_t>(index), label);
    ibv_close_device(context);
  }
  ibv_free_device_list(devices);
}

}  // namespace

void datagrams() { walk_all(kFlowLabel); }

// In a network namespace of its own: with a label that one socket has for itself, all others have to lease theirs.
void label_taken() {
  const int other = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  in6_flowlabel_req request{};
  request.flr_dst.s6_addr[15] = 1;
  request.flr_label = htonl(7);
  request.flr_action = IPV6_FL_A_GET;
  request.flr_share = IPV6_FL_S_EXCL;
  request.flr_flags = IPV6_FL_F_CREATE;
  expect(::setsockopt(other, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &request, sizeof request) == 0, "IPV6_FLOWLABEL_MGR");
  walk_all(0);
  ::close(other);
}

}  // namespace apps::views
