// SPDX-License-Identifier: MIT
// Acknowledgement piggybacking: if the peer only waits to hear that its work is placed, and the program answers each
// message by a post (a ping-pong), the acknowledgement is sent together with that post.
//
// These classes only decide; they send nothing. posted() is called by the thread that posts, the other functions with
// the receiver's lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace uiw::provider {

class Piggybacking {
 public:
  // An acknowledgement waits for a post once this many acknowledgements in a row have each been followed by a post
  // before the receiver's next turn (begin_turn()).
  static constexpr unsigned kInARow = 4;

  // To be called when the receiver is about to look at what has arrived. True if offer() was called since the previous
  // call: then a post may have sent the offered acknowledgement, and the caller checks whether it is still due.
  bool begin_turn() {
    const bool offered = std::exchange(offered_, false);
    if (offered) in_a_row_ = nothing_posted_ ? 0 : in_a_row_ + 1;
    if (!nothing_posted_.load(std::memory_order_relaxed)) nothing_posted_.store(true, std::memory_order_relaxed);
    return offered;
  }
  // An acknowledgement is due, and may wait. Returns true if it is to wait, since the program is expected to post
  // before it polls again.
  bool offer() {
    offered_ = true;
    return in_a_row_ >= kInARow;
  }
  // Called when the program posts send requests. Writes to memory at most once between two calls of begin_turn().
  void posted() {
    if (nothing_posted_.load(std::memory_order_relaxed)) nothing_posted_.store(false, std::memory_order_relaxed);
  }

 private:
  unsigned in_a_row_ = 0;
  bool offered_ = false;
  std::atomic<bool> nothing_posted_{false};  // no post since the last call of begin_turn()
};

// For the end that waits for the acknowledgement, which usually arrives together with a message. Some programs poll
// only until they have the completion, and then wait for the message by reading the memory into which the peer writes
// it. Then a thread of the library would have to wake up and place the message. So if the acknowledgement arrives
// first, the polling thread looks for the message as well before it reports the completion.
class ExpectedMessage {
 public:
  // A message is expected once this many completions in a row have each been preceded by a message.
  static constexpr unsigned kInARow = Piggybacking::kInARow;
  // A completion waits this long for the message at most. The peer's program may have lost its processor for a moment.
  static constexpr std::uint64_t kLongestNs = 100'000;

  void came() { came_ = true, since_ = 0; }
  // The peer has acknowledged work, and no message has been found together with the acknowledgement. True if the
  // completion is to wait; then the caller looks for the message and calls this again.
  template <typename Clock>
  bool is_awaited(Clock clock) {
    if (in_a_row_ < kInARow) return false;
    const std::uint64_t now = clock();
    if (since_ == 0) since_ = now;
    if (now - since_ < kLongestNs) return true;
    in_a_row_ = 0;
    came_ = false;
    return false;
  }
  // To be called when work is reported as complete.
  void reported() {
    in_a_row_ = came_ ? in_a_row_ + 1 : 0;
    came_ = false;
    since_ = 0;
  }

 private:
  unsigned in_a_row_ = 0;
  bool came_ = false;  // a message has come since the last call of reported()
  std::uint64_t since_ = 0;
};

}  // namespace uiw::provider
