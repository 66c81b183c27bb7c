// SPDX-License-Identifier: MIT
// A few threads of a few atomic operations each, executed in every order that a weakly ordered processor and the memory
// orders of C++ allow: what tests on x86, ThreadSanitizer and emulators cannot show.
//
// An operation may take effect before earlier ones of its thread, unless one of these rules keeps it behind (they are
// those of multi-copy atomic processors such as ARMv8 with the usual mapping of C++'s orders; POWER and RISC-V are
// mapped to no less for what is used here):
//   - both are about one variable;
//   - the earlier one is an acquire load, or the later one a release store (a read-modify-write is both);
//   - the earlier one is a sequentially consistent store, and the later one a sequentially consistent load;
//   - the later one is a store, or a read-modify-write, that is made only if the earlier load has found a certain
//   value.
// A load behind a condition may take effect before the condition is known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace uiw::test::model {

enum class Order { relaxed, acquire, release, seq_cst };

constexpr std::size_t kVariables = 6, kRegisters = 8;
using Values = std::array<int, kVariables>;
using Registers = std::array<int, kRegisters>;  // of all threads together

struct Operation {
  enum class Kind { load, store, rmw } kind;
  std::size_t variable;
  Order order;
  int operand = 0;                // of a store: the value; of a rmw: what is added
  std::size_t into = kRegisters;  // of a load or rmw: where the value found goes
  // A rmw that compares: it stores `operand` if it finds this.
  bool compares = false;
  int expected = 0;
  // Only if the register is (`is`) or is not this value.
  std::size_t guard = kRegisters;
  int guard_value = 0;
  bool guard_is = true;

  Operation when(std::size_t a_register, int value) const {
    Operation copy = *this;
    copy.guard = a_register, copy.guard_value = value, copy.guard_is = true;
    return copy;
  }
  Operation unless(std::size_t a_register, int value) const {
    Operation copy = when(a_register, value);
    copy.guard_is = false;
    return copy;
  }
};

inline Operation load(std::size_t variable, std::size_t into, Order order = Order::seq_cst) {
  return {Operation::Kind::load, variable, order, 0, into};
}
inline Operation store(std::size_t variable, int value, Order order = Order::seq_cst) {
  return {Operation::Kind::store, variable, order, value};
}
inline Operation add(std::size_t variable, int what, std::size_t into = kRegisters) {
  return {Operation::Kind::rmw, variable, Order::seq_cst, what, into};
}
inline Operation compare_exchange(std::size_t variable, int expected, int desired, std::size_t found) {
  return {Operation::Kind::rmw, variable, Order::seq_cst, desired, found, true, expected};
}

using Thread = std::vector<Operation>;

class Explorer {
 public:
  // True if the threads can end with values and registers for which `outcome` is true. Registers are -1 at first.
  bool can_end(const std::vector<Thread>& threads, const Values& start,
               const std::function<bool(const Registers&, const Values&)>& outcome) {
    threads_ = &threads;
    outcome_ = &outcome;
    seen_.clear();
    State state;
    state.values = start;
    state.registers.fill(-1);
    state.done.assign(threads.size(), 0);
    return explore(state);
  }

 private:
  struct State {
    Values values;
    Registers registers;
    std::vector<std::uint32_t> done;  // a bit for each operation of each thread
    auto operator<=>(const State&) const = default;
  };

  static bool reads(const Operation& op) { return op.kind != Operation::Kind::store; }
  static bool writes(const Operation& op) { return op.kind != Operation::Kind::load; }
  static bool acquires(const Operation& op) {
    return reads(op) && (op.order == Order::acquire || op.order == Order::seq_cst);
  }
  static bool releases(const Operation& op) {
    return writes(op) && (op.order == Order::release || op.order == Order::seq_cst);
  }
  static bool ordered(const Operation& earlier, const Operation& later) {
    if (earlier.variable == later.variable || acquires(earlier) || releases(later)) return true;
    if (earlier.kind == Operation::Kind::store && earlier.order == Order::seq_cst &&
        later.kind == Operation::Kind::load && later.order == Order::seq_cst) {
      return true;
    }
    return writes(later) && later.guard != kRegisters && earlier.into == later.guard;
  }

  bool explore(const State& state) {
    if (!seen_.insert(state).second) return false;
    bool all = true;
    for (std::size_t t = 0; t < threads_->size(); ++t) {
      const Thread& thread = (*threads_)[t];
      for (std::size_t i = 0; i < thread.size(); ++i) {
        if ((state.done[t] >> i & 1) != 0) continue;
        all = false;
        bool ready = true;
        for (std::size_t j = 0; j < i && ready; ++j) {
          ready = (state.done[t] >> j & 1) != 0 || !ordered(thread[j], thread[i]);
        }
        if (ready && explore(after(state, t, i))) return true;
      }
    }
    return all && (*outcome_)(state.registers, state.values);
  }

  State after(State state, std::size_t t, std::size_t i) const {
    const Operation& op = (*threads_)[t][i];
    state.done[t] |= 1U << i;
    const bool guarded = op.guard != kRegisters;
    const bool made = !guarded || !writes(op) || ((state.registers[op.guard] == op.guard_value) == op.guard_is);
    if (!made) return state;
    int& value = state.values[op.variable];
    const int found = value;
    if (op.into != kRegisters) state.registers[op.into] = found;
    if (op.kind == Operation::Kind::store) value = op.operand;
    if (op.kind == Operation::Kind::rmw) {
      if (!op.compares) value += op.operand;
      if (op.compares && found == op.expected) value = op.operand;
    }
    return state;
  }

  const std::vector<Thread>* threads_ = nullptr;
  const std::function<bool(const Registers&, const Values&)>* outcome_ = nullptr;
  std::set<State> seen_;
};

inline bool can_end(const std::vector<Thread>& threads, const Values& start,
                    const std::function<bool(const Registers&, const Values&)>& outcome) {
  return Explorer().can_end(threads, start, outcome);
}

}  // namespace uiw::test::model
