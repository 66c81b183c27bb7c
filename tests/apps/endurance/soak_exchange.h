// SPDX-License-Identifier: MIT
// One thread of the soak at one of the two ends: it carries out the rounds of a plan.
#pragma once

#include "tests/apps/endurance/soak_end.h"

namespace apps::soak {

// What has been done, and was found to be right.
struct Tally {
  std::array<std::uint64_t, kOps> requests{};  // posted by this end
  std::uint64_t octets = 0, connections = 0;

  Tally& operator+=(const Tally& other) {
    for (unsigned i = 0; i < kOps; ++i) requests[i] += other.requests[i];
    octets += other.octets;
    connections += other.connections;
    return *this;
  }
};

class Exchange {
 public:
  // `sleeps`: for completions, instead of polling.
  Exchange(const std::string& host, bool calls, manual::Line& line, bool sleeps);

  void round(const std::vector<Step>& steps, Tally& tally);

 private:
  void prepare(const Step& step);
  void offer(Connection& connection, const Step& step);
  void expect_window(const Connection& connection, const char* what, ibv_wc_opcode opcode);
  void take_back(const Step& step);
  void post_receives(const Step& step);
  void post_sends(const Step& step);
  void collect(const std::vector<Step>& steps);
  void sent(const Step& step, const ibv_wc& wc);
  void received(const Step& step, const ibv_wc& wc);
  void verify(const Step& step, Tally& tally);
  void verify_words(const Step& step) const;

  const unsigned own_;  // this end in a plan
  manual::Line& line_;
  Memory memory_;
  Connections connections_;
  std::uint64_t shared_posted_ = 0;  // receives of shared queues in this round
};

}  // namespace apps::soak
