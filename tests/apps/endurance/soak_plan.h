// SPDX-License-Identifier: MIT
// What does the soak do next? The work of one pair of threads, chosen by a seed alone: both ends make the same plan, so
// that each knows what the other does and which octets must arrive, and a seed repeats the choice.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

namespace apps::soak {

inline constexpr unsigned kSlots = 20;               // connections that a pair of threads may have at a time
inline constexpr std::uint32_t kArena = 12U << 20;   // octets that leave an end in a round, and as many that arrive
inline constexpr std::uint32_t kLargest = 4U << 20;  // of one request
inline constexpr std::uint32_t kShared = 16U << 10;  // of a message for a shared receive queue
inline constexpr std::uint32_t kInline = 256, kMost = 8;  // requests of a batch
inline constexpr std::uint32_t kGuard = 8;                // octets behind each target, which nobody may write

enum class Op : std::uint8_t { send, send_immediate, send_invalidate, write, write_immediate, read, swap, add };
inline constexpr unsigned kOps = 8;

inline std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

inline bool takes_receive(Op op) {
  return op == Op::send || op == Op::send_immediate || op == Op::send_invalidate || op == Op::write_immediate;
}
// Whether its octets arrive in the receive.
inline bool fills_receive(Op op) { return takes_receive(op) && op != Op::write_immediate; }
inline bool is_atomic(Op op) { return op == Op::swap || op == Op::add; }
// Whether the octets go from the requester to the responder.
inline bool outwards(Op op) { return op != Op::read; }

struct Request {
  Op op = Op::send;
  std::uint32_t length = 0;
  std::uint64_t seed = 0;    // of its octets, its immediate data and its operands
  std::uint64_t from = 0;    // where its octets are, in what leaves the one end
  std::uint64_t to = 0;      // where they arrive, in what comes in at the other; an atomic's word
  std::uint64_t result = 0;  // of an atomic, in what comes in at the requester
  bool signaled = true, inlined = false;

  std::uint32_t immediate() const { return static_cast<std::uint32_t>(mixed(seed + 1)); }
  std::uint64_t word() const { return mixed(seed + 2); }  // an atomic finds it
  std::uint64_t operand() const { return mixed(seed + 3); }
  bool matches() const { return (seed & 1) != 0; }  // the compare of a compare-and-swap
  std::uint64_t compare() const { return matches() ? word() : word() + 1; }
  std::uint64_t outcome() const {
    if (op == Op::add) return word() + operand();
    return matches() ? operand() : word();
  }
};

// By what the peer reaches memory in an exchange.
enum class Access : std::uint8_t { standing, fresh, window };

// Both ends end it in order; the called end destroys its queue pair, or the calling one; or nothing ends it now.
enum class Ending : std::uint8_t { none, ordered, by_listener, by_caller };

struct Step {
  unsigned slot = 0;
  bool connects = false, manual = false, shared = false;  // shared: receives of a shared queue
  bool late = false;                                      // receives are posted behind the sends
  Ending ending = Ending::none;
  std::array<Access, 2> access{};                // to the memory of end 0, the caller, and end 1, the listener
  std::array<std::vector<Request>, 2> requests;  // of end 0 and end 1; the last one takes a receive
};

class Planner {
 public:
  explicit Planner(std::uint64_t seed) : random_(seed) {}

  std::vector<Step> next() {
    out_ = in_ = {0, 0};
    std::array<unsigned, kSlots> order;
    for (unsigned i = 0; i < kSlots; ++i) order[i] = i;
    for (unsigned i = kSlots - 1; i > 0; --i) std::swap(order[i], order[below(i + 1)]);
    std::vector<Step> steps(1 + below(kSlots));
    for (std::size_t i = 0; i < steps.size(); ++i) plan(steps[i], order[i]);
    return steps;
  }
  // All connections, each with its end: nothing is connected afterwards.
  std::vector<Step> last() {
    std::vector<Step> steps;
    for (unsigned i = 0; i < kSlots; ++i)
      if (slots_[i].connected) {
        Step& step = steps.emplace_back();
        describe(step, i);
        step.ending = ending();
        slots_[i].connected = false;
      }
    return steps;
  }

 private:
  struct Slot {
    bool connected = false, manual = false, shared = false;
  };

  // Unlike std::uniform_int_distribution, the same with each standard library.
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool one_in(std::uint64_t chances) { return below(chances) == 0; }
  Ending ending() { return static_cast<Ending>(1 + below(3)); }

  void describe(Step& step, unsigned slot) const {
    step.slot = slot;
    step.manual = slots_[slot].manual;
    step.shared = slots_[slot].shared;
  }

  void plan(Step& step, unsigned number) {
    Slot& slot = slots_[number];
    step.connects = !slot.connected;
    if (step.connects) slot = {true, one_in(2), one_in(3)};
    describe(step, number);
    step.late = one_in(4);
    for (unsigned end = 0; end < 2; ++end) {
      step.access[1 - end] = static_cast<Access>(below(3));
      batch(step, end);
    }
    if (one_in(10)) step.ending = ending(), slot.connected = false;
  }

  void batch(Step& step, unsigned end) {
    const std::size_t count = 1 + below(kMost);
    std::vector<Request>& list = step.requests[end];
    for (std::size_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      Request& request = list.emplace_back();
      do request.op = static_cast<Op>(below(kOps));
      while (last ? !takes_receive(request.op) : request.op == Op::send_invalidate);
      // An invalidation needs a window, and ends what the peer may do through it.
      if (request.op == Op::send_invalidate && step.access[1 - end] != Access::window) request.op = Op::send;
      request.seed = random_();
      request.signaled = last || !one_in(3);
      place(step, request, end);
    }
  }

  void place(const Step& step, Request& request, unsigned end) {
    const unsigned source = outwards(request.op) ? end : 1 - end, target = 1 - source;
    if (is_atomic(request.op)) {
      request.to = take(in_[1 - end], 8, 8);
      request.result = take(in_[end], 8, 8);
      return;
    }
    std::uint64_t most = std::min<std::uint64_t>(room(out_[source]), room(in_[target]));
    if (step.shared && fills_receive(request.op)) most = std::min<std::uint64_t>(most, kShared);
    request.length = static_cast<std::uint32_t>(std::min(most, length()));
    request.from = take(out_[source], request.length, 1 + below(64));
    request.to = take(in_[target], request.length, 1 + below(64));
    request.inlined = request.length <= kInline && outwards(request.op) && one_in(2);
  }

  std::uint64_t length() {
    switch (below(10)) {
      case 0: return 0;
      case 1: return below(kLargest + 1);
      case 2:
      case 3:
      case 4: return below(128U << 10);
      case 5: return 4096 * (1 + below(16));
      default: return 1 + below(2 * kInline);
    }
  }
  static std::uint64_t room(std::uint64_t used) {
    constexpr std::uint64_t kKept = std::uint64_t{kSlots} * 2 * kMost * 80;  // for requests of no octets, and atomics
    return used + kKept < kArena ? kArena - used - kKept : 0;
  }
  static std::uint64_t take(std::uint64_t& used, std::uint64_t length, std::uint64_t step) {
    const std::uint64_t at = (used + step - 1) / step * step;
    used = at + length + kGuard;
    return at;
  }

  std::mt19937_64 random_;
  std::array<Slot, kSlots> slots_{};
  std::array<std::uint64_t, 2> out_{}, in_{};
};

}  // namespace apps::soak
