// SPDX-License-Identifier: MIT
// Decides whether posted work has waited too long for the peer, on a manual connection or on an rdma_cm connection in
// the RoCE view. The program sets the limits by the attributes timeout, retry_cnt and rnr_retry of ibv_modify_qp. An
// adapter counts its retransmissions. Here TCP retransmits, so the limit is the time that the retransmissions of an
// adapter would take, with an addition for busy hosts.
//
// This class only decides; the caller ends the session. Called with the sender's lock held.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "rdmap/work.h"

namespace uiw::provider {

class RetryTimer {
 public:
  using Clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;

  // How long work may wait; 0: for ever.
  struct Limits {
    milliseconds retry{0};  // without an answer
    milliseconds rnr{0};    // until the peer posts a receive
  };
  static Limits limits_of(const ibv_qp_attr& attributes, bool reliable);
  // How long an adapter lets work wait until the peer posts a receive; nothing if it lets it wait for ever.
  static std::optional<std::chrono::microseconds> adapters_rnr_time(const ibv_qp_attr& attributes);

  enum class Peer : std::uint8_t {
    none,  // there is no connection yet
    answers,
    silent,          // there is a connection, and the peer does not answer
    has_no_receive,  // the peer has reported that it has no receive posted
    gone,            // the peer has closed the connection
  };

  // Whether the oldest work has changed since work_at() was called last. `head` is the sequence number of the oldest
  // work in the send queue.
  bool has_moved(std::uint64_t head) const { return head != head_; }
  void work_at(std::uint64_t head, Clock::time_point now) {
    head_ = head;
    since_ = now;
    without_receive_.reset();
  }
  // Subtracts `time`, which the peer has not caused, from the time that the oldest work has waited.
  void discount(Clock::duration time, Clock::time_point now) {
    since_ = time < now - since_ ? since_ + time : std::max(since_, now);
  }
  // Whether the oldest work has waited for so long that the caller must find out whether the peer answers.
  bool asks_for_answers(const Limits& limits, Clock::time_point now) const {
    return limits.retry.count() > 0 && now - since_ > limits.retry;
  }
  // The status with which the oldest work fails now; empty if it has time left. The time to wait for a receive begins
  // when the peer is first found without one.
  std::optional<rdmap::Status> verdict(const Limits& limits, Peer peer, Clock::time_point now);

 private:
  std::uint64_t head_ = ~std::uint64_t{0};
  Clock::time_point since_;
  std::optional<Clock::time_point> without_receive_;
};

}  // namespace uiw::provider
