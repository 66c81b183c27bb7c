// SPDX-License-Identifier: MIT
// What the cases of uiw_views are made of: an event channel with its identifier, and the queues that a program makes
// for one. Both are used by one thread.
#pragma once

#include <optional>
#include <vector>

#include "tests/apps/support/pair.h"

namespace apps::views {

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

  void make_id() { good("rdma_create_id", rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP)); }
  Event next(rdma_cm_event_type wanted) {
    bool is_other = false;
    return next_of(wanted, wanted, is_other);
  }
  // An event of one of two kinds; which, goes to `is_other`.
  Event next_of(rdma_cm_event_type wanted, rdma_cm_event_type other, bool& is_other) {
    pollfd ready{channel_->fd, POLLIN, 0};
    if (poll(&ready, 1, 30'000) != 1) die("no %s in time", rdma_event_str(wanted));
    rdma_cm_event* event = nullptr;
    good("rdma_get_cm_event", rdma_get_cm_event(channel_, &event));
    if (event->event != wanted && event->event != other)
      die("%s (%d), not %s", rdma_event_str(event->event), event->status, rdma_event_str(wanted));
    is_other = event->event == other;
    const auto* data = static_cast<const std::uint8_t*>(event->param.conn.private_data);
    Event taken{event->id, event->status, event->param.conn, {}};
    if (data != nullptr) taken.data.assign(data, data + event->param.conn.private_data_len);
    rdma_ack_cm_event(event);
    return taken;
  }
  bool silent() const {
    pollfd ready{channel_->fd, POLLIN, 0};
    return poll(&ready, 1, 0) == 0;
  }

  rdma_cm_id* id = nullptr;

 private:
  rdma_event_channel* channel_;
};

inline rdma_addrinfo* address(int flags) { return resolve(g_host, g_port, flags); }

inline void start_listening(Channel& server) {
  server.make_id();
  rdma_addrinfo* local = address(RAI_PASSIVE);
  good("rdma_bind_addr", rdma_bind_addr(server.id, local->ai_src_addr));
  rdma_freeaddrinfo(local);
  good("rdma_listen", rdma_listen(server.id, 4));
}

inline void resolve_address(Channel& client) {
  client.make_id();
  rdma_addrinfo* remote = address(0);
  good("rdma_resolve_addr", rdma_resolve_addr(client.id, nullptr, remote->ai_dst_addr, 2000));
  rdma_freeaddrinfo(remote);
  client.next(RDMA_CM_EVENT_ADDR_RESOLVED);
}

inline void resolve_route(Channel& client) {
  good("rdma_resolve_route", rdma_resolve_route(client.id, 2000));
  client.next(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

inline void resolve(Channel& client) {
  resolve_address(client);
  resolve_route(client);
}

inline ibv_context* open_device(const char* name) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  expect(devices != nullptr, "ibv_get_device_list");
  ibv_context* context = nullptr;
  for (int i = 0; devices[i] != nullptr; ++i)
    if (std::strcmp(ibv_get_device_name(devices[i]), name) == 0) context = ibv_open_device(devices[i]);
  ibv_free_device_list(devices);
  expect(context != nullptr, "ibv_open_device");
  return context;
}

inline rdma_conn_param with_data(const std::vector<std::uint8_t>& data, std::uint32_t qp_number = 0) {
  rdma_conn_param parameters = connection_parameters();
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.size());
  parameters.qp_num = qp_number;
  return parameters;
}

// What a program makes of an id that knows its device: a queue pair of librdmacm's or of its own.
struct Queues {
  explicit Queues(rdma_cm_id* of) : id(of) {
    pd = made("ibv_alloc_pd", ibv_alloc_pd(id->verbs));
    cq = made("ibv_create_cq", ibv_create_cq(id->verbs, 256, nullptr, nullptr, 0));
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
    ibv_qp_init_attr attributes = qp_attributes({});
    attributes.send_cq = attributes.recv_cq = cq;
    return attributes;
  }
  void managed() {
    ibv_qp_init_attr attributes = initial();
    good("rdma_create_qp", rdma_create_qp(id, pd, &attributes));
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
    good("rdma_init_qp_attr", rdma_init_qp_attr(id, &attributes, &given));
    if (given != mask) die("rdma_init_qp_attr of state %d gives mask %#x, not %#x", state, given, mask);
    expect_error("ibv_modify_qp", ibv_modify_qp(own, &attributes, given), 0);
    return attributes;
  }
  void post_receive(void* to, std::uint32_t size) {
    mr = reg(pd, to, size, IBV_ACCESS_LOCAL_WRITE);
    apps::post_receive(own, {{number(to), size, mr->lkey}});
  }
  void send(const void* data, std::uint32_t size) const {
    SendRequest(IBV_WR_SEND, {number(data), size, 0}, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(own);
  }
  void complete(const char* what) const {
    ibv_wc wc{};
    expect(Endpoint::completion(cq, nullptr, false, wc), what);
    expect_status(what, wc, IBV_WC_SUCCESS);
  }

  rdma_cm_id* id;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_qp* own = nullptr;
  ibv_mr* mr = nullptr;
};

// The fixture Pair by event channels, as far as its caller has come: it has called, with a queue pair of librdmacm's,
// and the server has the request.
struct CalledPair {
  explicit CalledPair(Channel& server, rdma_conn_param asked = connection_parameters()) {
    resolve(client);
    near.emplace(client.id);
    near->managed();
    good("rdma_connect", rdma_connect(client.id, &asked));
    request = server.next(RDMA_CM_EVENT_CONNECT_REQUEST);
  }
  CalledPair(const CalledPair&) = delete;
  CalledPair& operator=(const CalledPair&) = delete;
  ~CalledPair() {
    if (request.id != nullptr) rdma_destroy_id(request.id);
  }
  // The caller hears of it though the id is gone.
  void reject(const void* why, std::uint8_t octets) {
    good("rdma_reject", rdma_reject(request.id, why, octets));
    good("rdma_destroy_id", rdma_destroy_id(std::exchange(request.id, nullptr)));
  }

  Channel client;
  std::optional<Queues> near;
  Event request{};
};

// Both ends are connected.
struct Pair : CalledPair {
  Pair(Channel& server, const rdma_conn_param& asked, rdma_conn_param accepted)
      : CalledPair(server, asked), far(request.id) {
    far.managed();
    good("rdma_accept", rdma_accept(request.id, &accepted));
    response = client.next(RDMA_CM_EVENT_ESTABLISHED);
    server.next(RDMA_CM_EVENT_ESTABLISHED);
  }

  Queues far;
  Event response{};
};

// See views_datagrams.cc. `index`: of the GID.
void datagrams();
void label_taken();
// Sends with this flow label; `label` is the one that a receiver of IPv6 finds.
constexpr std::uint32_t kFlowLabel = 0x12345;
void datagram_to_itself(ibv_context* context, std::uint8_t index, std::uint32_t label);
// See views_world.cc.
void world();
void connecting_cases(Cases& cases);

}  // namespace apps::views
