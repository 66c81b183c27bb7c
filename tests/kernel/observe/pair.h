// SPDX-License-Identifier: MIT
// Two queue pairs of this process that rdma_cm has connected with each other.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <optional>

#include "tests/kernel/observe/observe.h"

namespace observe {

// What a queue pair may be given to differ from the default.
struct Wishes {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  std::uint8_t reads = 1;        // at once
  std::uint8_t rnr_retries = 7;  // without end
};

class Pair {
 public:
  Pair(const Device& device, const Wishes& wishes = {});
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  bool connected() const { return connected_; }
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
  void make_qp(rdma_cm_id* id, ibv_cq* cq);

  const Device& device_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  bool connected_ = false;
};

}  // namespace observe
