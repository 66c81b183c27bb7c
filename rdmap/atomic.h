// SPDX-License-Identifier: MIT
// Atomic operations on the program's memory (RFC 7306 section 5.1). They use atomic instructions of the processor, so
// they are also atomic against other streams, threads that use C11 or C++ atomics, and other processes that map the
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ddp/stag_table.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// Adds two numbers field by field. Each bit of `mask` marks the highest bit of a field, whose carry is dropped; mask 0
// makes one field of 64 bits (RFC 7306 section 5.1.1).
constexpr std::uint64_t add_fields(std::uint64_t original, std::uint64_t add, std::uint64_t mask) {
  // With the highest bit of each field cleared, the sum cannot carry from one field into the next. XOR then adds the
  // highest bits, and drops their carry.
  return ((original & ~mask) + (add & ~mask)) ^ ((original ^ add) & mask);
}

constexpr bool compares_equal(std::uint64_t original, const AtomicOperands& operands) {
  return ((operands.compare ^ original) & operands.compare_mask) == 0;
}

constexpr std::uint64_t swap_bits(std::uint64_t original, const AtomicOperands& operands) {
  return (original & ~operands.mask) | (operands.data & operands.mask);
}

// What a fetch-and-add or compare-and-swap leaves of this value.
constexpr std::uint64_t result_of(AtomicOpcode opcode, const AtomicOperands& operands, std::uint64_t original) {
  if (opcode == AtomicOpcode::fetch_add) return add_fields(original, operands.data, operands.mask);
  return compares_equal(original, operands) ? swap_bits(original, operands) : original;
}

// The memory that a request is about, and the rights that the peer needs for it.
struct AtomicTarget {
  std::uint64_t offset, length;
  std::uint32_t rights;
  bool aligned;  // the address of the memory has to be a multiple of kAtomicSize
};
AtomicTarget target_of_own(const AtomicRequest& request, const ddp::Accessor& memory);
inline AtomicTarget target_of(const AtomicRequest& request, const ddp::Accessor& memory) {
  if (is_uiws_own(request.opcode)) [[unlikely]]
    return target_of_own(request, memory);
  return {request.offset, kAtomicSize, ddp::kRemoteAtomic, true};
}

// Executes the operation on the 8 octets at `memory`, which is aligned to 8, and stores the value before the operation
// in `original`. False, with no effect, if the memory is not accessible.
bool execute(AtomicOpcode opcode, const AtomicOperands& operands, std::byte* memory, std::uint64_t& original);

}  // namespace uiw::rdmap
