// SPDX-License-Identifier: MIT
// Whether what a program posts goes to TCP at once, or waits a moment for the posts behind it: a sendmsg costs as much
// as tens of small messages. Only a program that posts without a pause, several requests for each time it polls, is
// made to wait, and not for long; one that posts and then does something else (it may spin on memory for the reply) is
// found out, and left alone for a while.
//
// One for a queue pair, under the sender's lock. Times are monotonic nanoseconds. It decides; it does not send.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace uiw::provider {

class Coalescing {
 public:
  static constexpr unsigned kMost = 48;                  // requests to send at a time
  static constexpr std::size_t kMostOctets = 16 * 1024;  // and what they come to
  static constexpr unsigned kRun = 8;                    // requests posted without a poll make a stream, and as many
                                                         // posts of it without a pause one that may wait
  static constexpr std::uint64_t kPauseNs = 2'000;       // between two posts: the end of it
  static constexpr std::uint64_t kPollNs = 100'000;      // likewise, if it has polled in between
  static constexpr std::uint64_t kLongestNs = 25'000;    // after the first that waits
  // So long nothing waits after that was wrong; the next time twice as long, and so on.
  static constexpr std::uint64_t kPenaltyNs = 100'000, kMostPenaltyNs = 1'000'000'000;
  static constexpr unsigned kForgiven = 16;  // times it was right, until that is halved again

  // So many requests have been posted, of so many octets in all; `polled` is a number that changes when the program
  // takes completions. True if they are part of a stream: then may_wait() says whether they wait, or are to be sent
  // now. (A pause in which the program has polled is the time that it had to wait, if it is no longer than that takes.)
  bool posted(unsigned requests, std::size_t octets, std::uint64_t polled);
  // `active`: when the program posted to any queue pair, or polled in vain, before that.
  bool may_wait(std::uint64_t now, std::uint64_t active = 0);
  // The program goes on: what we did since it has posted is not its time.
  void resume(std::uint64_t now) { last_post_ = now; }
  std::uint64_t last_post() const { return last_post_; }
  // All there is is being sent.
  void sent();

  bool in_stream() const { return std::max(run_, run_before_) >= kRun; }
  // The program posts and does nothing else.
  bool without_pause() const { return in_stream() && quick_ >= kRun; }
  bool waiting() const { return since_ != 0; }
  std::uint64_t since() const { return since_; }  // the first of them has waited; 0 where none does
  bool overdue(std::uint64_t now) const { return waiting() && now - since_ >= kLongestNs; }
  // Somebody else comes for what has waited too long; false if nothing has. Unless the program is `busy` with other
  // queue pairs it does something else, or has lost its processor.
  bool take_overdue(std::uint64_t now, bool busy);

 private:
  std::uint64_t polled_ = 0;
  std::uint64_t last_post_ = 0, since_ = 0;
  std::size_t octets_ = 0;
  unsigned requests_ = 0;
  unsigned run_ = 0, run_before_ = 0;  // posts since the last poll, and between that and the one before
  std::uint64_t not_before_ = 0, penalty_ = kPenaltyNs;
  unsigned good_ = 0;   // in a row
  unsigned quick_ = 0;  // posts of a stream without a pause before them, in a row
  bool polled_since_ = false;
};

}  // namespace uiw::provider
