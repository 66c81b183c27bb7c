// SPDX-License-Identifier: MIT
// One end of a reliable connection, made with the synchronous calls of stock librdmacm, for the programs
// here. Every wait has a deadline. Errors end the program with a message: it is a test.
#pragma once

#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "tests/apps/support/calls.h"

namespace apps {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{30};

struct Capacity {
  std::uint32_t send_wr = 64, recv_wr = 64, send_sge = 4, recv_sge = 4, inline_data = 256;
};

inline ibv_qp_init_attr qp_attributes(const Capacity& capacity) {
  ibv_qp_init_attr attributes{};
  attributes.cap.max_send_wr = capacity.send_wr;
  attributes.cap.max_recv_wr = capacity.recv_wr;
  attributes.cap.max_send_sge = capacity.send_sge;
  attributes.cap.max_recv_sge = capacity.recv_sge;
  attributes.cap.max_inline_data = capacity.inline_data;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 0;
  return attributes;
}

inline rdma_addrinfo* resolve(const std::string& host, const std::string& port, int flags) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* result = nullptr;
  if (rdma_getaddrinfo(host.c_str(), port.c_str(), &hints, &result) != 0)
    die("rdma_getaddrinfo %s %s: %s", host.c_str(), port.c_str(), std::strerror(errno));
  return result;
}

// With attributes: a queue pair too, or, for one that listens, one for each call.
inline rdma_cm_id* create_ep(const std::string& host, const std::string& port, int flags,
                             ibv_qp_init_attr* attributes = nullptr, ibv_pd* pd = nullptr) {
  rdma_addrinfo* address = resolve(host, port, flags);
  rdma_cm_id* id = nullptr;
  good("rdma_create_ep", rdma_create_ep(&id, address, pd, attributes));
  rdma_freeaddrinfo(address);
  return id;
}
inline rdma_cm_id* create_ep(const std::string& host, const std::string& port, int flags, const Capacity& capacity) {
  ibv_qp_init_attr attributes = qp_attributes(capacity);
  return create_ep(host, port, flags, &attributes);
}

class Endpoint {
 public:
  explicit Endpoint(rdma_cm_id* id) : id_(id) {}
  Endpoint(Endpoint&& other) noexcept : id_(std::exchange(other.id_, nullptr)), disconnected_(other.disconnected_) {}
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint() {
    if (id_ == nullptr) return;
    disconnect();
    rdma_destroy_ep(id_);
  }

  // Once. Waits until the peer has gone too.
  void disconnect() {
    if (!std::exchange(disconnected_, true)) rdma_disconnect(id_);
  }

  rdma_cm_id* id() const { return id_; }
  ibv_qp* qp() const { return id_->qp; }
  ibv_pd* pd() const { return id_->qp->pd; }

  ibv_qp_cap capacity() const { return query(qp(), IBV_QP_CAP).cap; }

  // The next completion of this CQ; by polling, or by sleeping on the channel. False when none comes in time.
  static bool completion(ibv_cq* cq, ibv_comp_channel* channel, bool sleep, ibv_wc& wc,
                         Clock::duration patience = kPatience) {
    const auto end = Clock::now() + patience;
    for (bool armed = false;;) {
      const int count = ibv_poll_cq(cq, 1, &wc);
      if (count < 0) die("ibv_poll_cq: %d", count);
      if (count == 1) return true;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return false;
      if (!sleep) {
        sched_yield();
        continue;
      }
      if (!armed) {
        good("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
        armed = true;
        continue;  // what arrived in between
      }
      pollfd descriptor{channel->fd, POLLIN, 0};
      if (poll(&descriptor, 1, static_cast<int>(left)) <= 0) continue;
      ibv_cq* which = nullptr;
      void* context = nullptr;
      good("ibv_get_cq_event", ibv_get_cq_event(channel, &which, &context));
      if (which != cq) die("ibv_get_cq_event tells of another CQ");
      ibv_ack_cq_events(cq, 1);
      armed = false;
    }
  }

  bool send_completion(ibv_wc& wc, bool sleep = false, Clock::duration patience = kPatience) const {
    return completion(id_->send_cq, id_->send_cq_channel, sleep, wc, patience);
  }
  bool recv_completion(ibv_wc& wc, bool sleep = false, Clock::duration patience = kPatience) const {
    return completion(id_->recv_cq, id_->recv_cq_channel, sleep, wc, patience);
  }

 private:
  rdma_cm_id* id_;
  bool disconnected_ = false;
};

inline rdma_conn_param connection_parameters(std::uint8_t depth = 8) {
  rdma_conn_param parameters{};
  parameters.responder_resources = depth;
  parameters.initiator_depth = depth;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  return parameters;
}

// The active side: created, so that receives may be posted; then connected.
inline Endpoint create(const std::string& host, const std::string& port, const Capacity& capacity) {
  return Endpoint(create_ep(host, port, 0, capacity));
}
inline void connect(Endpoint& endpoint, rdma_conn_param parameters = connection_parameters()) {
  good("rdma_connect", rdma_connect(endpoint.id(), &parameters));
}
inline void accept(Endpoint& endpoint, rdma_conn_param parameters = connection_parameters()) {
  good("rdma_accept", rdma_accept(endpoint.id(), &parameters));
}

// The passive side: made listening; request() takes one connection, for accept().
class Listener {
 public:
  explicit Listener(rdma_cm_id* id, int backlog = 4) : id_(id) { good("rdma_listen", rdma_listen(id, backlog)); }
  Listener(const std::string& host, const std::string& port, const Capacity& capacity)
      : Listener(create_ep(host, port, RAI_PASSIVE, capacity)) {}
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { rdma_destroy_ep(id_); }

  rdma_cm_id* id() const { return id_; }

  // The QP exists when request() returns; receives may be posted before accept().
  Endpoint request() {
    rdma_cm_id* id = nullptr;
    good("rdma_get_request", rdma_get_request(id_, &id));
    return Endpoint(id);
  }

 private:
  rdma_cm_id* id_;
};

// Connecting and disconnecting take both ends at a time. The far end is there when both are connected.
inline Endpoint connected(Listener& listener, Endpoint& near) {
  std::thread caller([&] { connect(near); });
  Endpoint far = listener.request();
  accept(far);
  caller.join();
  return far;
}
inline void disconnect(Endpoint& near, Endpoint& far) {
  std::thread other([&] { near.disconnect(); });
  far.disconnect();
  other.join();
}

}  // namespace apps
