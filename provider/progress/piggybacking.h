// SPDX-License-Identifier: MIT
// Acknowledgement piggybacking: if the peer only waits to hear that its work is placed, and the program answers each
// message by a post (a ping-pong), the acknowledgement is sent together with that post.
//
// This class only decides; it sends nothing. posted() is called by the thread that posts, the other functions with the
// receiver's lock held.
#pragma once

#include <atomic>
#include <utility>

namespace uiw::provider {

class Piggybacking {
 public:
  // An acknowledgement waits for a post after this many acknowledgements in a row that were followed by a post before
  // the next turn.
  static constexpr unsigned kInARow = 4;

  // The receiver is about to look at what has arrived. True if the previous turn offered an acknowledgement, which may
  // have been sent since.
  bool begin_turn() {
    const bool offered = std::exchange(offered_, false);
    if (offered) in_a_row_ = nothing_posted_ ? 0 : in_a_row_ + 1;
    if (!nothing_posted_.load(std::memory_order_relaxed)) nothing_posted_ = true;
    return offered;
  }
  // An acknowledgement is due, and may wait. True if the program is expected to post before it polls again.
  bool offer() {
    offered_ = true;
    return in_a_row_ >= kInARow;
  }
  // Every post calls this, so it writes at most once a turn.
  void posted() {
    if (nothing_posted_.load(std::memory_order_relaxed)) nothing_posted_.store(false, std::memory_order_relaxed);
  }

 private:
  unsigned in_a_row_ = 0;
  bool offered_ = false;
  std::atomic<bool> nothing_posted_{false};  // since the last turn began
};

}  // namespace uiw::provider
