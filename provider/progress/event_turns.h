// SPDX-License-Identifier: MIT
// The turns that one progress thread gives to the queue pairs for which it has events; a turn is a call of progress().
// If several threads take events from one epoll set, TurnGate lets only one of them at a time serve a queue pair. A
// queue pair whose next event arrives during its turn gets its next turn after the queue pairs that have waited.
//
// Each progress thread has its own EventTurns. Allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/grace_period.h"
#include "provider/progress/driven.h"

namespace uiw::provider {

class EventTurns {
 public:
  static constexpr std::size_t kMost = 64;

  explicit EventTurns(FindDriven find) : find_(find) {}

  // How many queue pairs wait for their next turn. repeat() gives each of them this turn; until then no other progress
  // thread calls progress() for them.
  std::size_t repeated() const { return repeated_.count; }
  void repeat() {
    const Numbers now = std::exchange(repeated_, Numbers());
    for (std::size_t i = 0; i < now.count; ++i) turn(now.numbers[i], 0, true);
  }
  // A queue pair has an event with these bits of epoll(7). True: this thread has called progress(); false: another
  // thread does, or there is no such queue pair.
  bool event(std::uint32_t number, std::uint32_t bits) { return turn(number, bits, false); }

 private:
  struct Numbers {
    std::array<std::uint32_t, kMost> numbers;
    std::size_t count = 0;
  };

  bool turn(std::uint32_t number, std::uint32_t bits, bool entered) {
    const ReadSection section;
    Driven* const qp = find_(number);
    if (qp == nullptr) return false;
    qp->note_event(bits);
    if (!entered && !qp->gate.enter()) return false;
    do {
      qp->progress(qp->event_driver());
    } while (qp->gate.leave() && !keep(number));
    return true;
  }
  // Notes that the queue pair needs another turn. False if there is no room.
  bool keep(std::uint32_t number) {
    if (repeated_.count == kMost) return false;
    repeated_.numbers[repeated_.count++] = number;
    return true;
  }

  const FindDriven find_;
  Numbers repeated_;
};

}  // namespace uiw::provider
