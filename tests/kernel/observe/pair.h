// SPDX-License-Identifier: MIT
// Two queue pairs of this process that rdma_cm has connected with each other.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <optional>

#include "tests/kernel/observe/observe.h"

namespace observe {

class Pair {
 public:
  // With `srq` the far queue pair takes its receives from there.
  explicit Pair(const Device& device, ibv_srq* srq = nullptr);
  ~Pair() { end(); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  bool connected() const { return connected_; }
  // Disconnects, and destroys everything.
  void end();
  rdma_cm_id* near = nullptr;
  rdma_cm_id* far = nullptr;
  ibv_cq* near_cq = nullptr;
  ibv_cq* far_cq = nullptr;
  ibv_pd* pd = nullptr;
  std::array<char, 4096> own{}, peers{};
  ibv_mr* own_mr = nullptr;
  ibv_mr* peers_mr = nullptr;

  // The next completion, or nothing within some seconds.
  static std::optional<ibv_wc> next(ibv_cq* cq, std::chrono::milliseconds patience = std::chrono::seconds(5));

 private:
  rdma_cm_event* await(rdma_cm_event_type type);
  void make_qp(rdma_cm_id* id, ibv_cq* cq, ibv_srq* srq = nullptr);

  const Device& device_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  bool connected_ = false;
};

// A request is posted: the error that refuses it, or how it completes.
inline std::string outcome_of(ibv_qp* qp, const ibv_send_wr& request) {
  const int error = post(qp, request);
  return error != 0 ? "refused with " + result(error) : status_of(Pair::next(qp->send_cq));
}

}  // namespace observe
