// SPDX-License-Identifier: MIT
// Whether an end that waits for its peer still moves on, asked once a second. Both locks of the queue pair are held.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>

#include "provider/stream/stream_state.h"

namespace uiw::provider {

class Movement {
 public:
  static constexpr std::chrono::seconds kLook{1};  // between two questions

  void begin(const StreamState& state) {
    seen_ = look(state);
    idle_looks_ = 0;
  }
  // The peer takes what is sent, or work completes, or one of them did less than `patience` ago.
  bool goes_on(const StreamState& state, std::chrono::seconds patience) {
    const Seen now = look(state);
    idle_looks_ = now == std::exchange(seen_, now) ? idle_looks_ + 1 : 0;
    return idle_looks_ < patience / kLook;
  }

 private:
  using Seen = std::pair<std::uint64_t, std::uint64_t>;  // the head of the send queue, and the octets taken

  static Seen look(const StreamState& state) {
    const auto signs = state.octets().peer_signs();
    return {state.sends.head(), signs ? signs->taken : 0};
  }

  Seen seen_{};
  unsigned idle_looks_ = 0;
};

}  // namespace uiw::provider
