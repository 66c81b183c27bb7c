// SPDX-License-Identifier: MIT
#include "rdmap/atomic.h"

#include <endian.h>

#include "base/guarded_copy.h"

namespace uiw::rdmap {

namespace {

constexpr std::uint64_t kAllBits = ~std::uint64_t{0};
static_assert(__atomic_always_lock_free(sizeof(std::uint64_t), nullptr));

// UIW_AS_BY_DMA excludes a function from ThreadSanitizer. The member functions of std::atomic_ref lack this attribute,
// so the functions below use compiler builtins.
UIW_AS_BY_DMA bool exchange(std::uint64_t* target, std::uint64_t& expected, std::uint64_t desired) {
  return __atomic_compare_exchange_n(target, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

UIW_AS_BY_DMA std::uint64_t fetch_add(std::uint64_t* target, const AtomicOperands& operands) {
  if (operands.mask == 0) return __atomic_fetch_add(target, operands.data, __ATOMIC_SEQ_CST);
  std::uint64_t original = __atomic_load_n(target, __ATOMIC_SEQ_CST);
  while (!exchange(target, original, add_fields(original, operands.data, operands.mask))) {
  }
  return original;
}

UIW_AS_BY_DMA std::uint64_t write(std::uint64_t* target, const AtomicOperands& operands) {
  __atomic_store_n(target, be64toh(operands.data), __ATOMIC_SEQ_CST);
  return 0;
}

UIW_AS_BY_DMA std::uint64_t compare_swap(std::uint64_t* target, const AtomicOperands& operands) {
  if (operands.compare_mask == kAllBits && operands.mask == kAllBits) {
    std::uint64_t original = operands.compare;
    exchange(target, original, operands.data);
    return original;
  }
  std::uint64_t original = __atomic_load_n(target, __ATOMIC_SEQ_CST);
  while (compares_equal(original, operands) && !exchange(target, original, swap_bits(original, operands))) {
  }
  return original;
}

}  // namespace

AtomicTarget target_of_own(const AtomicRequest& request, const ddp::Accessor& memory) {
  if (request.opcode == AtomicOpcode::write) return {request.offset, kAtomicSize, ddp::kRemoteWrite, true};
  const Flush flush = flush_of(request.operands);
  const std::uint32_t rights =
      (flush.global || !flush.persistent ? ddp::kFlushGlobal : 0U) | (flush.persistent ? ddp::kFlushPersistent : 0U);
  const auto region = flush.whole_region ? memory.region(request.stag) : std::nullopt;
  if (region) return {region->base, region->length, rights, false};
  return {request.offset, flush.length, rights, false};
}

bool execute(AtomicOpcode opcode, const AtomicOperands& operands, std::byte* memory, std::uint64_t& original) {
  struct Call {
    AtomicOpcode opcode;
    const AtomicOperands& operands;
    std::uint64_t* target;
    std::uint64_t original;
  } call{opcode, operands, reinterpret_cast<std::uint64_t*>(memory), 0};
  const bool there = guarded_call(
      [](void* argument) {
        auto& it = *static_cast<Call*>(argument);
        const auto carry_out = it.opcode == AtomicOpcode::fetch_add ? fetch_add
                               : it.opcode == AtomicOpcode::write   ? write
                                                                    : compare_swap;
        it.original = carry_out(it.target, it.operands);
      },
      &call, memory, sizeof(std::uint64_t));
  original = call.original;
  return there;
}

}  // namespace uiw::rdmap
