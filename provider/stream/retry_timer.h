// SPDX-License-Identifier: MIT
// How long posted work may wait for its peer on a manual connection: what ibv_modify_qp says by timeout, retry_cnt and
// rnr_retry. An adapter sends again and counts; here TCP sends again, and the time counts that an adapter's tries would
// take.
//
// It decides, and ends nothing. Not thread-safe.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "rdmap/work.h"

namespace uiw::provider {

class RetryTimer {
 public:
  using Clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;

  // 0 where it may wait for ever.
  struct Limits {
    milliseconds retry{0};  // without an answer
    milliseconds rnr{0};    // for a receive of the peer's
  };
  static Limits limits_of(const ibv_qp_attr& attributes, bool reliable);

  enum class Peer : std::uint8_t {
    none,  // there is no connection yet
    answers,
    silent,  // it does not answer
    has_no_receive,
    gone,  // it has closed the connection
  };

  // Has the oldest work changed since work_at() was called last? `head` is its number in the send queue.
  bool has_moved(std::uint64_t head) const { return head != head_; }
  void work_at(std::uint64_t head, Clock::time_point now) {
    head_ = head;
    since_ = now;
  }
  // Has it waited for so long that it matters whether the peer answers?
  bool asks_for_answers(const Limits& limits, Clock::time_point now) const {
    return limits.retry.count() > 0 && now - since_ > limits.retry;
  }
  // What the oldest work fails with; empty where it has time left.
  std::optional<rdmap::Status> verdict(const Limits& limits, Peer peer, Clock::time_point now) const;

 private:
  std::uint64_t head_ = ~std::uint64_t{0};
  Clock::time_point since_;
};

}  // namespace uiw::provider
