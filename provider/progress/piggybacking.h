// SPDX-License-Identifier: MIT
// Acknowledgement piggybacking: where the peer waits for no more than to hear that its work is placed, and the program
// answers each message by a post of its own (a ping-pong), the acknowledgement goes in one send with that post.
//
// It decides, and sends nothing. posted() is for the thread that posts; the others are called with the receiver's lock.
#pragma once

#include <atomic>
#include <utility>

namespace uiw::provider {

class Piggybacking {
 public:
  // So many times in a row the program has to have posted before it polled again.
  static constexpr unsigned kInARow = 4;

  // The receiver looks at what has come. True if the turn before had an acknowledgement to offer, which may have gone
  // out since.
  bool begin_turn() {
    const bool offered = std::exchange(offered_, false);
    if (offered) in_a_row_ = nothing_posted_ ? 0 : in_a_row_ + 1;
    if (!nothing_posted_.load(std::memory_order_relaxed)) nothing_posted_ = true;
    return offered;
  }
  // An acknowledgement is due that may wait. True if the program is expected to post before it polls again.
  bool offer() {
    offered_ = true;
    return in_a_row_ >= kInARow;
  }
  // A post writes once a turn.
  void posted() {
    if (nothing_posted_.load(std::memory_order_relaxed)) nothing_posted_.store(false, std::memory_order_relaxed);
  }

 private:
  unsigned in_a_row_ = 0;
  bool offered_ = false;
  std::atomic<bool> nothing_posted_{false};  // since the last turn began
};

}  // namespace uiw::provider
