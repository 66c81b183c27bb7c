// SPDX-License-Identifier: MIT
// Atomic operations on the program's memory (RFC 7306 section 5.1), with the processor's own: exact against every
// other stream, every thread that uses C11 or C++ atomics, and every process that maps the memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// Adds the fields of both numbers, each for itself. A bit of `mask` marks the highest bit of a field, whose carry is
// dropped; 0 makes one field of all (section 5.1.1).
constexpr std::uint64_t add_fields(std::uint64_t original, std::uint64_t add, std::uint64_t mask) {
  // Without the highest bits no carry leaves a field; they are put in by an addition that has no carry.
  return ((original & ~mask) + (add & ~mask)) ^ ((original ^ add) & mask);
}

constexpr bool compares_equal(std::uint64_t original, const AtomicOperands& operands) {
  return ((operands.compare ^ original) & operands.compare_mask) == 0;
}

constexpr std::uint64_t swap_bits(std::uint64_t original, const AtomicOperands& operands) {
  return (original & ~operands.mask) | (operands.data & operands.mask);
}

// Carries it out on the 8 octets at `memory`, which is aligned to 8, and tells what stood there. False if the memory
// is not there; nothing has happened then.
bool execute(AtomicOpcode opcode, const AtomicOperands& operands, std::byte* memory, std::uint64_t& original);

}  // namespace uiw::rdmap
