// SPDX-License-Identifier: MIT
// Decides whether posts are sent at once, or wait a moment to be sent together with the next posts: a sendmsg() costs
// as much as tens of small messages, and large messages are sent faster together.
//
// A burst is what a program posts while it takes few completions: at least kBurst requests between two times that it
// takes completions. Only posts of a burst without pauses wait, for about kLongestNs, or until the timer of the thread
// "uiw-progress" next expires. If a program posts and then does something else (it may spin on memory for the reply),
// its posts wait in vain. After that no post waits for some time (kPenaltyNs).
//
// Each stream has one Coalescing, in its SendScheduler. All functions are called with the sender's lock held. Times are
// monotonic nanoseconds. This class only decides; it sends nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace uiw::provider {

class Coalescing {
 public:
  static constexpr unsigned kMost = 48;  // the most requests in one send
  // This many requests make a burst if the program takes no completions in between. In a burst, posts begin to wait
  // once the same number of posts in a row came without a pause.
  static constexpr unsigned kBurst = 8;
  static constexpr std::uint64_t kPauseNs = 2'000;     // a longer time between two posts is a pause
  static constexpr std::uint64_t kPollNs = 100'000;    // as kPauseNs, if the program has taken completions in between
  static constexpr std::uint64_t kLongestNs = 25'000;  // after this time a waiting post is overdue
  // After posts have waited in vain, no post waits for this time. The time doubles each time that posts wait in vain
  // again.
  static constexpr std::uint64_t kPenaltyNs = 100'000, kMostPenaltyNs = 1'000'000'000;
  static constexpr unsigned kForgiven = 16;    // after this many successes in a row (successes_) the penalty is halved
  static constexpr unsigned kClockStride = 4;  // while posts wait, the clock is read for one post in this many

  // The program has posted `requests`. `polled` is a number that changes when the program takes completions. True in a
  // burst: then the caller calls add_octets(), and the posts wait if waits_too() or may_wait() says so.
  bool posted(unsigned requests, std::uint64_t polled);
  void add_octets(std::size_t octets) { octets_ += octets; }  // of these requests
  // Decides without the clock, since reading the clock takes a good part of the time of a small post. True: the posts
  // wait, as those before them do. False: may_wait() has to decide. Returns true at most kClockStride - 1 times in a
  // row.
  bool waits_too(std::size_t most_octets);
  // Decides by the clock; true: the posts wait. Once waiting posts have `most_octets`, no further post waits. `active`:
  // when the thread last posted to any queue pair, or polled in vain, before this post.
  bool may_wait(std::uint64_t now, std::size_t most_octets, std::uint64_t active = 0);
  // The call that posted returns to the program now: the time that sending took does not count as a pause.
  void resume(std::uint64_t now) {
    last_post_ = now;
    untimed_ = 0;
  }
  std::uint64_t last_post() const { return last_post_; }
  // To be called before all that was posted is sent, or given up: from then on no post waits.
  void sent();

  bool in_burst() const { return std::max(run_, run_before_) >= kBurst; }
  // Whether the program posts in a burst, with no pauses between the last posts; then the program does nothing else.
  bool without_pause() const { return in_burst() && quick_ >= kBurst; }
  bool waiting() const { return since_ != 0; }
  std::uint64_t since() const { return since_; }  // when the oldest waiting post began to wait; 0: none waits
  bool overdue(std::uint64_t now) const { return waiting() && now - since_ >= kLongestNs; }
  // Whether posts have waited for too long; if so, the caller sends them. Unless the program is `busy` with other queue
  // pairs, the posts count as having waited in vain (kPenaltyNs): the program does something else, or has lost its
  // processor.
  bool take_overdue(std::uint64_t now, bool busy);

 private:
  std::uint64_t polled_ = 0;
  std::uint64_t last_post_ = 0, since_ = 0;
  std::size_t octets_ = 0;
  unsigned requests_ = 0;
  unsigned untimed_ = 0;               // posts since the clock was read last
  unsigned run_ = 0, run_before_ = 0;  // requests since completions were last taken, and in the interval before
  std::uint64_t not_before_ = 0, penalty_ = kPenaltyNs;
  unsigned successes_ = 0;  // sends in a row of posts that had waited, but not for too long
  unsigned quick_ = 0;      // posts in a row without a pause before them
  bool polled_since_ = false;
};

}  // namespace uiw::provider
