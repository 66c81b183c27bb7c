// SPDX-License-Identifier: MIT
// Queue pairs that their program connects itself: number and GID are told to the peer by other means, then
// ibv_modify_qp. Needs no rdma_cm.
#pragma once

#include <arpa/inet.h>
#include <unistd.h>

#include <memory>

#include "tests/apps/support/pair.h"

namespace apps {

// Where a queue pair is, as its peer must know it.
struct Place {
  std::uint32_t qp = 0, psn = 0;
  ibv_gid gid{};
};

// What an end says on its way to RTS. What cannot reach its peer fails after (retries + 1) times 4.096 us * 2^timeout,
// but not before four seconds; by default receives are waited for without end.
struct Manners {
  unsigned access =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint8_t timeout = 14, retries = 7, rnr_retries = 7, rnr_timer = 12, reads = 8, reads_held = 8;
};

// The device that has this address, opened, and one protection domain.
class Rnic {
 public:
  explicit Rnic(const std::string& address) {
    ibv_gid wanted{};
    if (inet_pton(AF_INET6, address.find(':') != std::string::npos ? address.c_str() : ("::ffff:" + address).c_str(),
                  wanted.raw) != 1)
      die("%s is no address", address.c_str());
    ibv_device** list = made("ibv_get_device_list", ibv_get_device_list(nullptr));
    for (ibv_device** device = list; *device != nullptr && context_ == nullptr; ++device) {
      context_ = made("ibv_open_device", ibv_open_device(*device));
      for (gid_index_ = 0; ibv_query_gid(context_, 1, gid_index_, &gid_) == 0; ++gid_index_)
        if (std::memcmp(gid_.raw, wanted.raw, sizeof wanted.raw) == 0) break;
      if (std::memcmp(gid_.raw, wanted.raw, sizeof wanted.raw) == 0) continue;
      ibv_close_device(context_);
      context_ = nullptr;
    }
    ibv_free_device_list(list);
    if (context_ == nullptr) die("no device has the address %s", address.c_str());
    pd_ = made("ibv_alloc_pd", ibv_alloc_pd(context_));
  }
  Rnic(const Rnic&) = delete;
  Rnic& operator=(const Rnic&) = delete;
  ~Rnic() {
    expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd_), 0);
    expect_error("ibv_close_device", ibv_close_device(context_), 0);
  }

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const ibv_gid& gid() const { return gid_; }
  int gid_index() const { return gid_index_; }

 private:
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_gid gid_{};
  int gid_index_ = 0;
};

// Who sleeps for completions does so on a channel.
class Cq {
 public:
  Cq(const Rnic& rnic, int size, bool sleeps = false) : Cq(rnic.context(), size, sleeps) {}
  Cq(ibv_context* context, int size, bool sleeps = false) {
    if (sleeps) channel_ = made("ibv_create_comp_channel", ibv_create_comp_channel(context));
    cq_ = made("ibv_create_cq", ibv_create_cq(context, size, nullptr, channel_, 0));
  }
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;
  ~Cq() {
    expect_error("ibv_destroy_cq", ibv_destroy_cq(cq_), 0);
    if (channel_ != nullptr) expect_error("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel_), 0);
  }

  ibv_cq* get() const { return cq_; }
  bool next(ibv_wc& wc, Clock::duration patience = kPatience) const {
    return Endpoint::completion(cq_, channel_, channel_ != nullptr, wc, patience);
  }

 private:
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

// A reliable queue pair, made in RESET. Null with errno where it cannot be made.
inline ibv_qp* make_qp(const Rnic& rnic, const Cq& cq, const Capacity& capacity) {
  ibv_qp_init_attr attributes = qp_attributes(capacity);
  attributes.send_cq = attributes.recv_cq = cq.get();
  return ibv_create_qp(rnic.pd(), &attributes);
}

inline void modify(ibv_qp* qp, const char* what, ibv_qp_attr& attributes, int mask) {
  good(("ibv_modify_qp " + std::string(what)).c_str(), ibv_modify_qp(qp, &attributes, mask));
}
inline void to_init(ibv_qp* qp, const Manners& manners) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = manners.access;
  modify(qp, "to INIT", attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}
// 0 or the errno.
inline int try_rtr(ibv_qp* qp, const Rnic& rnic, const Place& peer, const Manners& manners) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.qp;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = manners.reads_held;
  attributes.min_rnr_timer = manners.rnr_timer;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(rnic.gid_index());
  attributes.ah_attr.grh.hop_limit = 64;
  return ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}
inline void to_rtr(ibv_qp* qp, const Rnic& rnic, const Place& peer, const Manners& manners) {
  good("ibv_modify_qp to RTR", try_rtr(qp, rnic, peer, manners));
}
inline void to_rts(ibv_qp* qp, std::uint32_t psn, const Manners& manners) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = manners.timeout;
  attributes.retry_cnt = manners.retries;
  attributes.rnr_retry = manners.rnr_retries;
  attributes.max_rd_atomic = manners.reads;
  attributes.sq_psn = psn;
  modify(qp, "to RTS", attributes,
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}
inline void to_state(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  modify(qp, state == IBV_QPS_RESET ? "to RESET" : "to ERR", attributes, IBV_QP_STATE);
}

class ManualQp {
 public:
  ManualQp(const Rnic& rnic, const Cq& cq, const Capacity& capacity)
      : ManualQp(rnic, made("ibv_create_qp", make_qp(rnic, cq, capacity))) {}
  ManualQp(const Rnic& rnic, ibv_qp* qp) : rnic_(&rnic), qp_(qp) {}
  ManualQp(ManualQp&& other) noexcept : rnic_(other.rnic_), qp_(std::exchange(other.qp_, nullptr)) {}
  ManualQp& operator=(ManualQp&&) = delete;
  ~ManualQp() { destroy(); }

  ibv_qp* get() const { return qp_; }
  Place place() const { return {qp_->qp_num, 0, rnic_->gid()}; }

  void to_init() const { apps::to_init(qp_, {}); }
  void to_rtr(const Place& peer) const { apps::to_rtr(qp_, *rnic_, peer, {}); }
  void to_rts(std::uint8_t timeout = Manners{}.timeout) const {
    Manners manners;
    manners.timeout = timeout;
    apps::to_rts(qp_, 0, manners);
  }
  void to_reset() const { to_state(qp_, IBV_QPS_RESET); }
  void connect(const Place& peer) const {
    to_init();
    to_rtr(peer);
    to_rts();
  }

  // 0 or the errno. Inline: the memory is free again at once.
  int send(const void* octets, std::uint32_t size, std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) const {
    return SendRequest(IBV_WR_SEND, {number(octets), size, 0}, id, flags | IBV_SEND_INLINE).try_post(qp_);
  }
  void receive(void* to, std::uint32_t size, const ibv_mr* mr, std::uint64_t id) const {
    post_receive(qp_, {{number(to), size, mr->lkey}}, id);
  }
  void destroy() {
    if (qp_ != nullptr) expect_error("ibv_destroy_qp", ibv_destroy_qp(std::exchange(qp_, nullptr)), 0);
  }

 private:
  const Rnic* rnic_;
  ibv_qp* qp_;
};

inline void connect(const ManualQp& near, const ManualQp& far) {
  near.connect(far.place());
  far.connect(near.place());
}

inline std::uint16_t port_of(std::uint32_t qp_number) { return static_cast<std::uint16_t>(qp_number >> 8); }

}  // namespace apps
