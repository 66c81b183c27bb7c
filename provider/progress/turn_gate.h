// SPDX-License-Identifier: MIT
// Several progress threads may get events of one queue pair at about the same time. One of them drives the queue pair;
// the others leave their event to it, and go on with other queue pairs instead of waiting for its locks.
#pragma once

#include <atomic>
#include <cstdint>

namespace uiw::provider {

class TurnGate {
 public:
  // True: the caller drives, and calls leave() afterwards. False: another thread drives, and drives once more.
  bool enter() {
    State state = state_.load(std::memory_order_relaxed);
    for (;;) {
      // This writes even if another turn is asked for already: the thread that drives may be taking that request now,
      // and has to see what this thread saw before.
      if (state_.compare_exchange_weak(state, state == State::free ? State::driven : State::again)) {
        return state == State::free;
      }
    }
  }
  // False: the turn is over. True: events have come meanwhile, so the caller drives once more, and calls leave() again.
  bool leave() {
    State state = State::driven;
    if (state_.compare_exchange_strong(state, State::free)) return false;
    state_.exchange(State::driven);  // and not a store: see enter()
    return true;
  }

 private:
  enum class State : std::uint8_t { free, driven, again };
  std::atomic<State> state_{State::free};
};

}  // namespace uiw::provider
