// SPDX-License-Identifier: MIT
// How a device presents itself: its GID table by every way to it, and, where it is an adapter for RoCE, what stock
// librdmacm and programs that step through the states by themselves go through. A case for each.
#include <net/if.h>

#include <fstream>
#include <initializer_list>
#include <thread>
#include <vector>

#include "pair.h"

namespace {

using apps::die;
using apps::expect_error;
using apps::g_host;
using apps::g_port;

constexpr std::uint32_t kManaged = 1;  // the number that stands for the peer's queue pair

void expect(bool good, const char* what) {
  if (!good) die("%s", what);
}

// ---- GID tables, in either view --------------------------------------------------------------------------------

std::string text_of(const ibv_gid& gid) {
  std::string text;
  for (int i = 0; i < 16; i += 2) {
    char part[8];
    std::snprintf(part, sizeof part, "%s%02x%02x", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    text += part;
  }
  return text;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void walk_gids(ibv_context* context) {
  const std::string name = ibv_get_device_name(context->device);
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(context, 1, &port), 0);
  std::vector<ibv_gid_entry> table(256);
  const ssize_t entries = ibv_query_gid_table(context, table.data(), table.size(), 0);
  expect(entries == port.gid_tbl_len, "ibv_query_gid_table has another length than the port says");
  const bool roce = context->device->transport_type == IBV_TRANSPORT_IB;
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    const std::string folder = "/sys/class/infiniband/" + name + "/ports/1/";
    const std::string number = std::to_string(index);
    ibv_gid gid{};
    ibv_gid_entry entry{};
    expect(ibv_query_gid(context, 1, index, &gid) == 0, "ibv_query_gid");
    expect_error("ibv_query_gid_ex", ibv_query_gid_ex(context, 1, static_cast<unsigned>(index), &entry, 0), 0);
    const ibv_gid_entry& listed = table[static_cast<std::size_t>(index)];
    expect(std::memcmp(&gid, &entry.gid, sizeof gid) == 0, "ibv_query_gid_ex gives another GID");
    expect(std::memcmp(&listed, &entry, sizeof entry) == 0, "ibv_query_gid_table gives another entry");
    expect(read_line(folder + "gids/" + number) == text_of(gid), "sysfs has another GID");
    expect(entry.gid_type == (roce ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1), "GID type");
    expect(read_line(folder + "gid_attrs/types/" + number) == (roce ? "RoCE v2" : "IB/RoCE v1"), "GID type in sysfs");
    const std::string interface = read_line(folder + "gid_attrs/ndevs/" + number);
    expect("uiw_" + interface == name, "network device in sysfs");
    expect(entry.ndev_ifindex == if_nametoindex(interface.c_str()), "network device");
    std::printf("%s %d %s\n", name.c_str(), index, text_of(gid).c_str());
  }
  ibv_gid_entry beyond{};
  expect(ibv_query_gid(context, 1, port.gid_tbl_len, &beyond.gid) != 0, "a GID beyond the table");
  expect(ibv_query_gid_ex(context, 1, static_cast<unsigned>(port.gid_tbl_len), &beyond, 0) != 0, "an entry beyond");
}

void gids() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  expect(count > 0, "no device");
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ibv_open_device(devices[i]);
    expect(context != nullptr, "ibv_open_device");
    walk_gids(context);
    ibv_close_device(context);
  }
  ibv_free_device_list(devices);
}

// ---- Events ----------------------------------------------------------------------------------------------------

struct Event {
  rdma_cm_id* id;
  int status;
  rdma_conn_param parameters;
  std::vector<std::uint8_t> data;
};

class Channel {
 public:
  Channel() : channel_(rdma_create_event_channel()) { expect(channel_ != nullptr, "rdma_create_event_channel"); }
  ~Channel() {
    if (id != nullptr) rdma_destroy_id(id);
    rdma_destroy_event_channel(channel_);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void make_id() { expect(rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id"); }
  Event next(rdma_cm_event_type wanted) {
    pollfd ready{channel_->fd, POLLIN, 0};
    if (poll(&ready, 1, 30'000) != 1) die("no %s in time", rdma_event_str(wanted));
    rdma_cm_event* event = nullptr;
    expect(rdma_get_cm_event(channel_, &event) == 0, "rdma_get_cm_event");
    if (event->event != wanted)
      die("%s (%d), not %s", rdma_event_str(event->event), event->status, rdma_event_str(wanted));
    const auto* data = static_cast<const std::uint8_t*>(event->param.conn.private_data);
    Event taken{event->id, event->status, event->param.conn, {}};
    if (data != nullptr) taken.data.assign(data, data + event->param.conn.private_data_len);
    rdma_ack_cm_event(event);
    return taken;
  }

  rdma_cm_id* id = nullptr;

 private:
  rdma_event_channel* channel_;
};

rdma_addrinfo* address(int flags) { return apps::resolve(g_host, g_port, flags); }

void start_listening(Channel& server) {
  server.make_id();
  rdma_addrinfo* local = address(RAI_PASSIVE);
  expect(rdma_bind_addr(server.id, local->ai_src_addr) == 0, "rdma_bind_addr");
  rdma_freeaddrinfo(local);
  expect(rdma_listen(server.id, 4) == 0, "rdma_listen");
}

void resolve_address(Channel& client) {
  client.make_id();
  rdma_addrinfo* remote = address(0);
  expect(rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, 2000) == 0, "rdma_resolve_addr");
  rdma_freeaddrinfo(remote);
  client.next(RDMA_CM_EVENT_ADDR_RESOLVED);
}

void resolve(Channel& client) {
  resolve_address(client);
  expect(rdma_resolve_route(client.id, 2000) == 0, "rdma_resolve_route");
  client.next(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

rdma_conn_param with_data(const std::vector<std::uint8_t>& data, std::uint32_t qp_number = 0) {
  rdma_conn_param parameters = apps::connection_parameters();
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.qp_num = qp_number;
  return parameters;
}

// What a program makes of an id that knows its device: a queue pair of librdmacm's or of its own.
struct Queues {
  explicit Queues(rdma_cm_id* of) : id(of) {
    pd = ibv_alloc_pd(id->verbs);
    cq = ibv_create_cq(id->verbs, 256, nullptr, nullptr, 0);
    expect(pd != nullptr && cq != nullptr, "ibv_alloc_pd, ibv_create_cq");
  }
  ~Queues() {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    if (own != nullptr) ibv_destroy_qp(own);
    if (mr != nullptr) ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
  }
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  ibv_qp_init_attr initial() const {
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    attributes.send_cq = attributes.recv_cq = cq;
    return attributes;
  }
  void managed() {
    ibv_qp_init_attr attributes = initial();
    expect(rdma_create_qp(id, pd, &attributes) == 0, "rdma_create_qp");
  }
  void by_program() {
    ibv_qp_init_attr attributes = initial();
    own = ibv_create_qp(pd, &attributes);
    expect(own != nullptr, "ibv_create_qp");
  }
  // With the attributes that rdma_cm gives.
  ibv_qp_attr step(ibv_qp_state state, int mask) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int given = 0;
    expect(rdma_init_qp_attr(id, &attributes, &given) == 0, "rdma_init_qp_attr");
    if (given != mask) die("rdma_init_qp_attr of state %d gives mask %#x, not %#x", state, given, mask);
    expect_error("ibv_modify_qp", ibv_modify_qp(own, &attributes, given), 0);
    return attributes;
  }
  void post_receive(void* to, std::uint32_t size) {
    mr = apps::reg(pd, to, size, IBV_ACCESS_LOCAL_WRITE);
    ibv_sge sge{apps::number(to), size, mr->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.sg_list = &sge;
    request.num_sge = 1;
    expect_error("ibv_post_recv", ibv_post_recv(own, &request, &bad), 0);
  }
  void send(const void* data, std::uint32_t size) const {
    ibv_sge sge{apps::number(data), size, 0};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    expect_error("ibv_post_send", ibv_post_send(own, &request, &bad), 0);
  }
  void complete(const char* what) const {
    ibv_wc wc{};
    expect(apps::Endpoint::completion(cq, nullptr, false, wc), what);
    apps::expect_status(what, wc, IBV_WC_SUCCESS);
  }

  rdma_cm_id* id;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_qp* own = nullptr;
  ibv_mr* mr = nullptr;
};

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MAX_QP_RD_ATOMIC;

void check_path(rdma_cm_id* id) {
  expect(id->route.num_paths == 1, "not one path");
  const ibv_sa_path_rec& path = id->route.path_rec[0];
  const rdma_ib_addr& ib = id->route.addr.addr.ibaddr;
  expect(std::memcmp(&path.sgid, &ib.sgid, sizeof path.sgid) == 0, "the path's source");
  expect(std::memcmp(&path.dgid, &ib.dgid, sizeof path.dgid) == 0, "the path's destination");
  expect(path.pkey == 0xffff && path.hop_limit > 0 && path.reversible == 1 && path.dlid == 0, "the path's fields");
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(id->verbs, 1, &port), 0);
  expect(path.mtu == port.active_mtu, "the path's MTU");
}

void check_message(const Event& event, std::size_t room, const std::vector<std::uint8_t>& data, std::uint8_t depth) {
  expect(event.data.size() == room, "room for private data");
  std::vector<std::uint8_t> wanted = data;
  wanted.resize(room);
  expect(event.data == wanted, "private data");
  expect(event.parameters.qp_num == kManaged, "the peer's number");
  expect(event.parameters.retry_count == 7 && event.parameters.rnr_retry_count == 7, "retries");
  expect(event.parameters.responder_resources == depth && event.parameters.initiator_depth == depth, "depths");
}

void check_rtr(const Queues& end, const ibv_qp_attr& attributes) {
  expect(attributes.dest_qp_num == kManaged, "dest_qp_num");
  expect(attributes.ah_attr.is_global == 1 && attributes.ah_attr.port_num == 1, "the address handle");
  const rdma_ib_addr& ib = end.id->route.addr.addr.ibaddr;
  expect(std::memcmp(&attributes.ah_attr.grh.dgid, &ib.dgid, sizeof ib.dgid) == 0, "dgid");
  ibv_gid source{};
  expect(ibv_query_gid(end.id->verbs, 1, attributes.ah_attr.grh.sgid_index, &source) == 0, "ibv_query_gid");
  expect(std::memcmp(&source, &ib.sgid, sizeof source) == 0, "sgid_index");
  ibv_qp_attr now{};
  ibv_qp_init_attr initial{};
  expect_error("ibv_query_qp", ibv_query_qp(end.own, &now, IBV_QP_AV | IBV_QP_DEST_QPN, &initial), 0);
  expect(now.dest_qp_num == kManaged && now.ah_attr.is_global == 1, "ibv_query_qp tells of another peer");
}

// ---- Cases of the RoCE view ------------------------------------------------------------------------------------

void device() {
  Channel client;
  resolve(client);
  ibv_context* context = client.id->verbs;
  expect(context->device->node_type == IBV_NODE_CA, "node type");
  expect(context->device->transport_type == IBV_TRANSPORT_IB, "transport");
  ibv_device_attr attributes{};
  expect_error("ibv_query_device", ibv_query_device(context, &attributes), 0);
  expect(attributes.max_ah > 0 && attributes.max_pkeys == 1, "max_ah, max_pkeys");
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(context, 1, &port), 0);
  expect(port.state == IBV_PORT_ACTIVE && port.phys_state == 5 && port.link_layer == IBV_LINK_LAYER_ETHERNET, "link");
  expect(port.lid == 0 && port.sm_lid == 0 && port.pkey_tbl_len == 1, "numbers of InfiniBand");
  expect((port.flags & IBV_QPF_GRH_REQUIRED) != 0 && (port.port_cap_flags & IBV_PORT_IP_BASED_GIDS) != 0, "flags");
  __be16 pkey = 0;
  expect(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff, "ibv_query_pkey");
  expect(ibv_get_pkey_index(context, 1, pkey) == 0, "ibv_get_pkey_index");

  Queues queues(client.id);
  ibv_ah_attr address{};
  address.port_num = 1;
  address.is_global = 1;
  address.grh.dgid = client.id->route.addr.addr.ibaddr.dgid;
  ibv_gid source{};
  while (ibv_query_gid(context, 1, address.grh.sgid_index, &source) == 0 &&
         std::memcmp(&source, &client.id->route.addr.addr.ibaddr.sgid, sizeof source) != 0)
    ++address.grh.sgid_index;
  expect(address.grh.sgid_index < port.gid_tbl_len, "the connection's GID is not in the table");
  std::uint8_t mac[6];
  std::uint16_t vlan = 0;
  expect_error("ibv_resolve_eth_l2_from_gid", ibv_resolve_eth_l2_from_gid(context, &address, mac, &vlan), 0);
  ibv_ah* handle = ibv_create_ah(queues.pd, &address);
  expect(handle != nullptr && handle->pd == queues.pd, "ibv_create_ah");
  expect_error("ibv_dealloc_pd with an address handle", ibv_dealloc_pd(queues.pd), EBUSY);
  expect_error("ibv_destroy_ah", ibv_destroy_ah(handle), 0);
  const auto refused = [&](const char* what, const ibv_ah_attr& bad) {
    ibv_ah_attr copy = bad;
    expect(ibv_create_ah(queues.pd, &copy) == nullptr, what);
    expect_error(what, errno, EINVAL);
  };
  ibv_ah_attr bad = address;
  bad.port_num = 2;
  refused("port 2", bad);
  bad = address;
  bad.is_global = 0;
  refused("no GRH", bad);
  bad = address;
  bad.grh.sgid_index = static_cast<std::uint8_t>(port.gid_tbl_len);
  refused("a GID beyond the table", bad);

  ibv_qp_init_attr datagrams = queues.initial();
  datagrams.qp_type = IBV_QPT_UD;
  expect(ibv_create_qp(queues.pd, &datagrams) == nullptr, "a queue pair for datagrams");
  expect_error("a queue pair for datagrams", errno, EOPNOTSUPP);
}

// The program owns its queue pairs: librdmacm knows none of them, and shows CONNECT_RESPONSE.
void own_steps() {
  Channel server, client;
  start_listening(server);
  resolve(client);
  check_path(client.id);
  Queues near(client.id);
  near.by_program();
  near.step(IBV_QPS_INIT, kInit);
  char message[16] = {}, answer[16] = {};
  near.post_receive(answer, sizeof answer);
  const std::vector<std::uint8_t> question{1, 2, 3}, reply{9, 8};
  const std::vector<std::uint8_t> too_long(57);
  rdma_conn_param parameters = with_data(too_long, near.own->qp_num);
  expect(rdma_connect(client.id, &parameters) != 0, "57 octets of private data in a REQ");
  expect_error("57 octets of private data in a REQ", errno, EINVAL);
  parameters = with_data(question, near.own->qp_num);
  parameters.retry_count = 5;
  expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect");

  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  check_message(request, 56, question, 8);
  ibv_qp_attr early{};
  early.qp_state = IBV_QPS_RTR;
  int mask = 0;
  expect(rdma_init_qp_attr(client.id, &early, &mask) != 0, "attributes for RTR before the peer has answered");
  expect_error("attributes for RTR before the peer has answered", errno, EINVAL);

  {
    check_path(request.id);
    Queues far(request.id);
    far.by_program();
    far.step(IBV_QPS_INIT, kInit);
    far.post_receive(message, sizeof message);
    check_rtr(far, far.step(IBV_QPS_RTR, kRtr));
    far.step(IBV_QPS_RTS, kRts);
    rdma_conn_param accepted = with_data(reply, far.own->qp_num);
    accepted.responder_resources = accepted.initiator_depth = 4;
    expect(rdma_accept(request.id, &accepted) == 0, "rdma_accept");

    const Event response = client.next(RDMA_CM_EVENT_CONNECT_RESPONSE);
    check_message(response, 196, reply, 4);
    near.step(IBV_QPS_INIT, kInit);
    const ibv_qp_attr rtr = near.step(IBV_QPS_RTR, kRtr);
    check_rtr(near, rtr);
    expect(rtr.max_dest_rd_atomic == 4, "max_dest_rd_atomic");
    const ibv_qp_attr rts = near.step(IBV_QPS_RTS, kRts);
    expect(rts.max_rd_atomic == 4 && rts.retry_cnt == 5 && rts.rnr_retry == 7, "attributes for RTS");
    expect(near.own->state == IBV_QPS_RTS, "the state that libibverbs keeps");
    expect(rdma_establish(client.id) == 0, "rdma_establish");
    server.next(RDMA_CM_EVENT_ESTABLISHED);

    near.send("ping", 5);
    far.complete("the ping's receive");
    expect(std::strcmp(message, "ping") == 0, "the ping's data");
    far.send("pong", 5);
    near.complete("the ping");
    near.complete("the pong's receive");
    expect(std::strcmp(answer, "pong") == 0, "the pong's data");
    expect(rdma_disconnect(client.id) == 0, "rdma_disconnect");
    client.next(RDMA_CM_EVENT_DISCONNECTED);
    server.next(RDMA_CM_EVENT_DISCONNECTED);
  }
  rdma_destroy_id(request.id);
}

void ack_timeout() {
  Channel server, client;
  start_listening(server);
  resolve_address(client);
  std::uint8_t timeout = 12;
  expect(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0,
         "RDMA_OPTION_ID_ACK_TIMEOUT");
  expect(rdma_resolve_route(client.id, 2000) == 0, "rdma_resolve_route");
  client.next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  expect(client.id->route.path_rec[0].packet_life_time == 11, "the path's lifetime");
  Queues near(client.id);
  near.managed();
  rdma_conn_param parameters = apps::connection_parameters();
  expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect");
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  {
    Queues far(request.id);
    far.managed();
    // It holds from the next step on, whatever the path said; so the passive side can set it too.
    for (const auto& [id, value] : {std::pair(client.id, std::uint8_t{14}), std::pair(request.id, std::uint8_t{0})}) {
      timeout = value;
      expect(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout) == 0,
             "RDMA_OPTION_ID_ACK_TIMEOUT behind the path");
    }
    expect(rdma_accept(request.id, &parameters) == 0, "rdma_accept");
    client.next(RDMA_CM_EVENT_ESTABLISHED);
    ibv_qp_attr now{};
    ibv_qp_init_attr initial{};
    expect_error("ibv_query_qp", ibv_query_qp(client.id->qp, &now, IBV_QP_TIMEOUT, &initial), 0);
    expect(now.timeout == 14, "the queue pair's timeout");
    expect_error("ibv_query_qp", ibv_query_qp(request.id->qp, &now, IBV_QP_TIMEOUT, &initial), 0);
    expect(now.timeout == 0, "the timeout of the passive side");
  }
  rdma_destroy_id(request.id);
}

// A program may bring the path, and say what extensions it knows.
void path_and_ece() {
  Channel server, client;
  start_listening(server);
  resolve_address(client);
  ibv_path_data record{};
  record.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY;
  const auto set = [&](std::size_t size) {
    return rdma_set_option(client.id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &record, size) == 0 ? 0 : errno;
  };
  expect_error("a path that leads one way", set(sizeof record), EINVAL);
  record.flags |= IBV_PATH_FLAG_BIDIRECTIONAL;
  expect_error("part of a path", set(sizeof record - 1), EINVAL);
  expect_error("a path", set(sizeof record), 0);
  client.next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  check_path(client.id);
  ibv_ece known{7, 1, 0};
  expect(rdma_set_local_ece(client.id, &known) == 0, "rdma_set_local_ece");
  Queues near(client.id);
  near.by_program();
  near.step(IBV_QPS_INIT, kInit);
  rdma_conn_param parameters = with_data({}, near.own->qp_num);
  expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect");
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  ibv_ece of_peer{1, 1, 1};
  expect(rdma_get_remote_ece(request.id, &of_peer) == 0 && of_peer.vendor_id == 0, "rdma_get_remote_ece");
  {
    Queues far(request.id);
    far.managed();
    expect(rdma_accept(request.id, &parameters) == 0, "rdma_accept");
    client.next(RDMA_CM_EVENT_CONNECT_RESPONSE);
    expect(rdma_establish(client.id) == 0, "rdma_establish");
    server.next(RDMA_CM_EVENT_ESTABLISHED);
  }
  rdma_destroy_id(request.id);
}

void rejected() {
  Channel server, client;
  resolve(client);
  Queues queues(client.id);
  queues.managed();
  rdma_conn_param parameters = apps::connection_parameters();
  expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect");
  expect(client.next(RDMA_CM_EVENT_REJECTED).status == 8, "nobody listens: the reason");

  start_listening(server);
  Channel other;
  resolve(other);
  Queues more(other.id);
  more.managed();
  expect(rdma_connect(other.id, &parameters) == 0, "rdma_connect");
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  const std::vector<std::uint8_t> why{4, 5, 6}, too_long(149);
  expect(rdma_reject(request.id, too_long.data(), 149) != 0, "149 octets of private data in a REJ");
  expect_error("149 octets of private data in a REJ", errno, EINVAL);
  expect(rdma_reject(request.id, why.data(), 3) == 0, "rdma_reject");
  rdma_destroy_id(request.id);
  const Event answer = other.next(RDMA_CM_EVENT_REJECTED);
  expect(answer.status == 28, "the reason");
  expect(answer.data.size() == 148 && std::memcmp(answer.data.data(), why.data(), why.size()) == 0, "private data");
}

// The peer may be gone before librdmacm takes its answer: then the connection stood, and has ended.
void ended_first() {
  Channel server, client;
  start_listening(server);
  resolve(client);
  Queues near(client.id);
  near.managed();
  rdma_conn_param parameters = apps::connection_parameters();
  expect(rdma_connect(client.id, &parameters) == 0, "rdma_connect");
  const Event request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  {
    Queues far(request.id);
    far.managed();
    expect(rdma_accept(request.id, &parameters) == 0, "rdma_accept");
    server.next(RDMA_CM_EVENT_ESTABLISHED);
    expect(rdma_disconnect(request.id) == 0, "rdma_disconnect");
    server.next(RDMA_CM_EVENT_DISCONNECTED);
  }
  const auto end = apps::Clock::now() + apps::kPatience;
  ibv_qp_attr now{};
  ibv_qp_init_attr initial{};
  do {
    expect_error("ibv_query_qp", ibv_query_qp(client.id->qp, &now, IBV_QP_STATE, &initial), 0);
    expect(apps::Clock::now() < end, "the stream does not end");
    sched_yield();
  } while (now.qp_state != IBV_QPS_ERR);
  expect(client.next(RDMA_CM_EVENT_ESTABLISHED).status == 0, "ESTABLISHED");
  client.next(RDMA_CM_EVENT_DISCONNECTED);
  // From here on the program's steps are its own.
  now.qp_state = IBV_QPS_INIT;
  expect_error("from ERR to INIT", ibv_modify_qp(client.id->qp, &now, IBV_QP_STATE), EINVAL);
  rdma_destroy_id(request.id);
}

// rdma_disconnect() takes the queue pair to ERR: what had completed by then arrives all the same.
void delivered() {
  constexpr std::uint32_t kCount = 60, kSize = 65536;
  apps::Listener listener(g_host, g_port, {});
  apps::Endpoint near = apps::create(g_host, g_port, {});
  std::vector<char> source(kSize, 'x'), sink(kSize);
  std::thread caller([&] {
    apps::connect(near);
    ibv_mr* mr = apps::reg(near.pd(), source.data(), kSize, 0);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      ibv_sge sge{apps::number(source.data()), kSize, mr->lkey};
      ibv_send_wr request{};
      request.opcode = IBV_WR_SEND;
      request.sg_list = &sge;
      request.num_sge = 1;
      expect_error("ibv_post_send", apps::post(near, request), 0);
    }
    for (std::uint32_t i = 0; i < kCount; ++i) apps::expect_status("a send", apps::sent(near), IBV_WC_SUCCESS);
    near.disconnect();
    ibv_dereg_mr(mr);
  });
  apps::Endpoint far = listener.request();
  ibv_mr* mr = apps::reg(far.pd(), sink.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  for (std::uint32_t i = 0; i < kCount; ++i)
    expect_error("ibv_post_recv", apps::post_recv(far, {{apps::number(sink.data()), kSize, mr->lkey}}), 0);
  apps::Listener::accept(far);
  caller.join();
  for (std::uint32_t i = 0; i < kCount; ++i) apps::expect_status("a receive", apps::received(far), IBV_WC_SUCCESS);
  far.disconnect();
  ibv_dereg_mr(mr);
}

const apps::Cases kCases = {
    {"ack_timeout", ack_timeout},   {"delivered", delivered}, {"device", device},     {"ended_first", ended_first},
    {"gids", gids},                 {"own_steps", own_steps}, {"path_and_ece", path_and_ece}, {"rejected", rejected},
};

}  // namespace

int main(int argc, char** argv) { return apps::run_case(argc, argv, kCases); }
