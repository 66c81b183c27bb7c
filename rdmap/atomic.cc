// SPDX-License-Identifier: MIT
#include "rdmap/atomic.h"

#include <atomic>

#include "mpa/guarded_copy.h"

namespace uiw::rdmap {

namespace {

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};

std::uint64_t fetch_add(std::atomic_ref<std::uint64_t> target, const AtomicOperands& operands) {
  if (operands.mask == 0) return target.fetch_add(operands.data);
  std::uint64_t original = target.load();
  while (!target.compare_exchange_weak(original, add_fields(original, operands.data, operands.mask))) {
  }
  return original;
}

std::uint64_t compare_swap(std::atomic_ref<std::uint64_t> target, const AtomicOperands& operands) {
  if (operands.compare_mask == kAllBits && operands.mask == kAllBits) {
    std::uint64_t original = operands.compare;
    target.compare_exchange_strong(original, operands.data);
    return original;
  }
  std::uint64_t original = target.load();
  while (compares_equal(original, operands) && !target.compare_exchange_weak(original, swap_bits(original, operands))) {
  }
  return original;
}

}  // namespace

bool execute(AtomicOpcode opcode, const AtomicOperands& operands, std::byte* memory, std::uint64_t& original) {
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
  struct Call {
    AtomicOpcode opcode;
    const AtomicOperands& operands;
    std::uint64_t* target;
    std::uint64_t original;
  } call{opcode, operands, reinterpret_cast<std::uint64_t*>(memory), 0};
  const bool there = mpa::guarded_call(
      [](void* argument) {
        auto& it = *static_cast<Call*>(argument);
        const std::atomic_ref<std::uint64_t> target(*it.target);
        it.original = it.opcode == AtomicOpcode::fetch_add ? fetch_add(target, it.operands)
                                                           : compare_swap(target, it.operands);
      },
      &call);
  original = call.original;
  return there;
}

}  // namespace uiw::rdmap
