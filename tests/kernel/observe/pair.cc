// SPDX-License-Identifier: MIT
#include "tests/kernel/observe/pair.h"

namespace observe {

// Events of other identifiers that come meanwhile are acknowledged, and the far identifier is kept.
rdma_cm_event* Pair::await(rdma_cm_event_type type) {
  for (;;) {
    pollfd waits{channel_->fd, POLLIN, 0};
    if (poll(&waits, 1, 10'000) != 1) return nullptr;
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0) return nullptr;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) far = event->id;
    if (event->event == type) return event;
    const rdma_cm_event_type other = event->event;
    rdma_ack_cm_event(event);
    if (other == RDMA_CM_EVENT_CONNECT_ERROR || other == RDMA_CM_EVENT_REJECTED || other == RDMA_CM_EVENT_ADDR_ERROR ||
        other == RDMA_CM_EVENT_ROUTE_ERROR || other == RDMA_CM_EVENT_UNREACHABLE)
      return nullptr;
  }
}

void Pair::make_qp(rdma_cm_id* id, ibv_cq* cq, ibv_srq* srq) {
  ibv_qp_init_attr attributes = qp_attributes(device_);
  attributes.srq = srq;
  attributes.send_cq = attributes.recv_cq = cq;
  rdma_create_qp(id, pd, &attributes);
}

Pair::Pair(const Device& device, ibv_srq* srq) : device_(device) {
  channel_ = rdma_create_event_channel();
  rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP);
  sockaddr_in address = device.address;
  if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)) != 0 || rdma_listen(listener_, 1) != 0) return;
  address.sin_port = rdma_get_src_port(listener_);
  rdma_create_id(channel_, &near, nullptr, RDMA_PS_TCP);
  const auto arrived = [this](rdma_cm_event_type type) {
    rdma_cm_event* const event = await(type);
    if (event != nullptr) rdma_ack_cm_event(event);
    return event != nullptr;
  };
  if (rdma_resolve_addr(near, nullptr, reinterpret_cast<sockaddr*>(&address), 2000) != 0 ||
      !arrived(RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(near, 2000) != 0 ||
      !arrived(RDMA_CM_EVENT_ROUTE_RESOLVED))
    return;
  pd = ibv_alloc_pd(near->verbs);
  near_cq = ibv_create_cq(near->verbs, 32, nullptr, nullptr, 0);
  far_cq = ibv_create_cq(near->verbs, 32, nullptr, nullptr, 0);
  make_qp(near, near_cq);
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  if (rdma_connect(near, &parameters) != 0 || !arrived(RDMA_CM_EVENT_CONNECT_REQUEST)) return;
  make_qp(far, far_cq, srq);
  if (rdma_accept(far, &parameters) != 0 || !arrived(RDMA_CM_EVENT_ESTABLISHED) || !arrived(RDMA_CM_EVENT_ESTABLISHED))
    return;
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  own_mr = ibv_reg_mr(pd, own.data(), own.size(), kAccess);
  peers_mr = ibv_reg_mr(pd, peers.data(), peers.size(), kAccess);
  connected_ = own_mr != nullptr && peers_mr != nullptr;
}

void Pair::end() {
  if (channel_ == nullptr) return;
  for (rdma_cm_id* const id : {near, far}) {
    if (id == nullptr) continue;
    rdma_disconnect(id);
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  for (ibv_mr* const mr : {own_mr, peers_mr})
    if (mr != nullptr) ibv_dereg_mr(mr);
  for (ibv_cq* const cq : {near_cq, far_cq})
    if (cq != nullptr) ibv_destroy_cq(cq);
  if (pd != nullptr) ibv_dealloc_pd(pd);
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  rdma_destroy_event_channel(channel_);
  channel_ = nullptr;
}

std::optional<ibv_wc> Pair::next(ibv_cq* cq, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    ibv_wc wc{};
    const int count = ibv_poll_cq(cq, 1, &wc);
    if (count > 0) return wc;
    if (count < 0) break;
  } while (std::chrono::steady_clock::now() < end);
  return std::nullopt;
}

}  // namespace observe
