// SPDX-License-Identifier: MIT
// Connections whose ends tell each other of their memory in the private data of the set-up, and whose queue pairs
// have ibv_wr_*. Both ends are on machines of one byte order: these are tests of uiw against itself.
#pragma once

#include "tests/apps/support/endpoint.h"

namespace apps {

// Memory that the other end may use.
struct Window {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t size = 0;
};

constexpr std::uint8_t kDepth = 16;  // reads and atomic operations outstanding

inline Window window_of(const void* memory, const ibv_mr* mr) {
  return {reinterpret_cast<std::uintptr_t>(memory), mr->rkey, static_cast<std::uint32_t>(mr->length)};
}

// The window that the other end sent in the private data of its request or reply.
inline Window receive_window(const Endpoint& end) {
  Window window;
  const rdma_cm_event* event = end.id()->event;
  if (event == nullptr || event->param.conn.private_data_len < sizeof window) die("no private data came");
  std::memcpy(&window, event->param.conn.private_data, sizeof window);
  return window;
}

// An end without a queue pair yet.
inline Endpoint call(const std::string& host, const std::string& port) {
  rdma_addrinfo* address = resolve(host, port, 0);
  rdma_cm_id* id = nullptr;
  if (rdma_create_ep(&id, address, nullptr, nullptr) != 0) die("rdma_create_ep: %s", std::strerror(errno));
  rdma_freeaddrinfo(address);
  return Endpoint(id);
}

class OpenListener {
 public:
  OpenListener(const std::string& host, const std::string& port, int backlog) {
    rdma_addrinfo* address = resolve(host, port, RAI_PASSIVE);
    if (rdma_create_ep(&id_, address, nullptr, nullptr) != 0) die("rdma_create_ep: %s", std::strerror(errno));
    rdma_freeaddrinfo(address);
    if (rdma_listen(id_, backlog) != 0) die("rdma_listen: %s", std::strerror(errno));
  }
  OpenListener(const OpenListener&) = delete;
  OpenListener& operator=(const OpenListener&) = delete;
  ~OpenListener() { rdma_destroy_ep(id_); }

  Endpoint request() {
    rdma_cm_id* id = nullptr;
    if (rdma_get_request(id_, &id) != 0) die("rdma_get_request: %s", std::strerror(errno));
    return Endpoint(id);
  }

 private:
  rdma_cm_id* id_ = nullptr;
};

constexpr std::uint64_t kSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;

// `recv_cq` instead of one of librdmacm's.
inline void make_qp(Endpoint& end, const Capacity& capacity, std::uint64_t send_ops = kSendOps,
                    ibv_cq* recv_cq = nullptr) {
  const ibv_qp_init_attr plain = qp_attributes(capacity);
  ibv_qp_init_attr_ex attributes{};
  attributes.cap = plain.cap;
  attributes.qp_type = plain.qp_type;
  attributes.recv_cq = recv_cq;
  attributes.pd = end.id()->pd;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  if (send_ops != 0) {
    attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = send_ops;
  }
  if (rdma_create_qp_ex(end.id(), &attributes) != 0) die("rdma_create_qp_ex: %s", std::strerror(errno));
}

inline void connect(Endpoint& end, const Window& mine) {
  rdma_conn_param parameters = connection_parameters(kDepth);
  parameters.private_data = &mine;
  parameters.private_data_len = sizeof mine;
  if (rdma_connect(end.id(), &parameters) != 0) die("rdma_connect: %s", std::strerror(errno));
}
inline void accept(Endpoint& end, const Window& mine) {
  rdma_conn_param parameters = connection_parameters(kDepth);
  parameters.private_data = &mine;
  parameters.private_data_len = sizeof mine;
  if (rdma_accept(end.id(), &parameters) != 0) die("rdma_accept: %s", std::strerror(errno));
}

inline ibv_mr* register_memory(const Endpoint& end, void* memory, std::size_t size, int access) {
  ibv_mr* mr = ibv_reg_mr(end.id()->pd, memory, size, access);
  if (mr == nullptr) die("ibv_reg_mr: %s", std::strerror(errno));
  return mr;
}

inline void post_receive(const Endpoint& end, std::uint64_t id, ibv_sge* list, int count) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = list;
  request.num_sge = count;
  ibv_recv_wr* bad = nullptr;
  if (int error = ibv_post_recv(end.qp(), &request, &bad)) die("ibv_post_recv: %s", std::strerror(error));
}

inline void must_succeed(const ibv_wc& wc, const char* what) {
  if (wc.status != IBV_WC_SUCCESS) die("%s completes with %s", what, ibv_wc_status_str(wc.status));
}

}  // namespace apps
