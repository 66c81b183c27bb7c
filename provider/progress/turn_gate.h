// SPDX-License-Identifier: MIT
// TurnGate lets one thread at a time send and receive for a queue pair if several progress threads get events of it at
// about the same time. The other threads leave their events to that thread, and go on with other queue pairs instead of
// waiting for the locks of this one.
#pragma once

#include <atomic>
#include <cstdint>

namespace uiw::provider {

class TurnGate {
 public:
  // True: the caller calls progress(), and leave() afterwards. False: another thread does, and will call progress()
  // once more.
  bool enter() {
    State state = state_.load(std::memory_order_relaxed);
    for (;;) {
      // Writes even if the state is `again` already: the driving thread may be taking that request now, and must see
      // what this thread has written before, such as Driven::end_reported.
      if (state_.compare_exchange_weak(state, state == State::free ? State::driven : State::again)) {
        return state == State::free;
      }
    }
  }
  // False: the turn is over. True: events have come meanwhile, so the caller calls progress() once more, and leave()
  // again.
  bool leave() {
    State state = State::driven;
    if (state_.compare_exchange_strong(state, State::free)) return false;
    // An exchange also reads what enter() wrote to `state_`, and so makes visible what that thread wrote before. A
    // plain store would not.
    state_.exchange(State::driven);
    return true;
  }

 private:
  enum class State : std::uint8_t { free, driven, again };
  std::atomic<State> state_{State::free};
};

}  // namespace uiw::provider
