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
inline Endpoint call(const std::string& host, const std::string& port) { return Endpoint(create_ep(host, port, 0)); }

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
  good("rdma_create_qp_ex", rdma_create_qp_ex(end.id(), &attributes));
}

inline rdma_conn_param parameters_with(const Window& mine) {
  rdma_conn_param parameters = connection_parameters(kDepth);
  parameters.private_data = &mine;
  parameters.private_data_len = sizeof mine;
  return parameters;
}
inline void connect(Endpoint& end, const Window& mine) { connect(end, parameters_with(mine)); }
inline void accept(Endpoint& end, const Window& mine) { accept(end, parameters_with(mine)); }

inline void must_succeed(const ibv_wc& wc, const char* what) {
  if (wc.status != IBV_WC_SUCCESS) die("%s completes with %s", what, ibv_wc_status_str(wc.status));
}

}  // namespace apps
