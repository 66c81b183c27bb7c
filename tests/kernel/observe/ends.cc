// SPDX-License-Identifier: MIT
#include "tests/kernel/observe/ends.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace observe {

namespace {

// Milliseconds: a peer that is called may be waiting for completions of the call before.
constexpr int kPatience = 5'000, kPatienceAfterEnd = 2'000, kPatienceForCalls = 30'000;

rdma_conn_param parameters(const void* data, std::size_t size) {
  rdma_conn_param all{};
  all.private_data = data;
  all.private_data_len = static_cast<std::uint8_t>(size);
  all.responder_resources = all.initiator_depth = 1;
  all.retry_count = all.rnr_retry_count = 7;
  return all;
}

bool is_ready(const rdma_event_channel& channel, int milliseconds) {
  pollfd waits{channel.fd, POLLIN, 0};
  return poll(&waits, 1, milliseconds) == 1;
}

}  // namespace

End::End(const Device& device) : device_(device), channel_(rdma_create_event_channel()) {
  rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP);
}

End::End(const Device& device, rdma_cm_id* requested) : id(requested), device_(device) {
  channel_ = rdma_create_event_channel();
  rdma_migrate_id(id, channel_);
  make_queue_pair();
}

End::~End() {
  if (id != nullptr) {
    if (!ended_) rdma_disconnect(id);
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  for (ibv_mr* const one : others_) ibv_dereg_mr(one);
  if (region != nullptr) ibv_dereg_mr(region);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  rdma_destroy_event_channel(channel_);
}

void End::make_queue_pair() {
  cq_ = ibv_create_cq(id->verbs, 32, nullptr, nullptr, 0);
  ibv_qp_init_attr attributes = qp_attributes(device_);
  attributes.send_cq = attributes.recv_cq = cq_;
  rdma_create_qp(id, device_.pd, &attributes);
  const int atomics = device_.limits.atomic_cap != IBV_ATOMIC_NONE ? IBV_ACCESS_REMOTE_ATOMIC : 0;
  region = ibv_reg_mr(device_.pd, memory_.data(), memory_.size(), kAccess | atomics);
}

rdma_cm_event* End::event(int milliseconds) const {
  rdma_cm_event* found = nullptr;
  return is_ready(*channel_, milliseconds) && rdma_get_cm_event(channel_, &found) == 0 ? found : nullptr;
}

bool End::await(rdma_cm_event_type type, Told* told) {
  rdma_cm_event* const found = event(kPatienceForCalls);
  if (found == nullptr) return false;
  const bool right = found->event == type;
  if (right && told != nullptr && found->param.conn.private_data != nullptr)
    std::memcpy(told->data(), found->param.conn.private_data,
                std::min<std::size_t>(told->size(), found->param.conn.private_data_len));
  rdma_ack_cm_event(found);
  return right;
}

bool End::resolve(const sockaddr_in& peer) {
  sockaddr_in to = peer;
  if (rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kPatience) != 0 ||
      !await(RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(id, kPatience) != 0 ||
      !await(RDMA_CM_EVENT_ROUTE_RESOLVED))
    return false;
  make_queue_pair();
  return id->qp != nullptr && region != nullptr;
}

std::optional<Told> End::connect(std::uint32_t number) {
  rdma_conn_param all = parameters(&number, sizeof number);
  Told told{};
  if (rdma_connect(id, &all) != 0 || !await(RDMA_CM_EVENT_ESTABLISHED, &told)) return std::nullopt;
  return told;
}

bool End::accept(const void* told, std::size_t size) {
  rdma_conn_param all = parameters(told, size);
  return rdma_accept(id, &all) == 0 && await(RDMA_CM_EVENT_ESTABLISHED);
}

bool End::look_for_end(int milliseconds) {
  if (ended_) return true;
  rdma_cm_event* const found = event(milliseconds);
  if (found == nullptr) return false;
  const bool ends = found->event == RDMA_CM_EVENT_DISCONNECTED;
  rdma_ack_cm_event(found);
  if (ends) rdma_disconnect(id);
  return ends;
}

std::optional<ibv_wc> End::next() {
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + std::chrono::milliseconds(kPatience);
  do {
    ibv_wc wc{};
    const int count = ibv_poll_cq(cq_, 1, &wc);
    if (count > 0) return wc;
    if (count < 0) break;
    const bool had_ended = std::exchange(ended_, look_for_end(0));
    if (ended_ && !had_ended) end = Clock::now() + std::chrono::milliseconds(kPatienceAfterEnd);
  } while (Clock::now() < end);
  return std::nullopt;
}

bool End::await_end() {
  ended_ = look_for_end(kPatience);
  return ended_;
}

ibv_mr* End::another_region(int access) {
  others_.push_back(ibv_reg_mr(device_.pd, memory_.data(), memory_.size(), access));
  return others_.back();
}

void End::forget(ibv_mr* gone) {
  others_.erase(std::find(others_.begin(), others_.end(), gone));
  ibv_dereg_mr(gone);
}

Listener::Listener(const Device& device) : device_(device), channel_(rdma_create_event_channel()) {
  rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP);
  sockaddr_in address = device.address;
  address.sin_port = htons(kPort);
  if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)) != 0 || rdma_listen(id_, 8) != 0) {
    std::perror("uiw_observe: listen");
    std::exit(1);
  }
  say("the called end", "listens");
}

Listener::~Listener() {
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(channel_);
}

std::unique_ptr<End> Listener::next(std::uint32_t& number) {
  rdma_cm_event* found = nullptr;
  if (!is_ready(*channel_, kPatienceForCalls) || rdma_get_cm_event(channel_, &found) != 0) return nullptr;
  rdma_cm_id* const calls = found->id;
  const bool right = found->event == RDMA_CM_EVENT_CONNECT_REQUEST && found->param.conn.private_data != nullptr &&
                     found->param.conn.private_data_len >= sizeof number;
  if (right) std::memcpy(&number, found->param.conn.private_data, sizeof number);
  rdma_ack_cm_event(found);
  return right ? std::make_unique<End>(device_, calls) : nullptr;
}

}  // namespace observe
