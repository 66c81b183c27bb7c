// SPDX-License-Identifier: MIT
// Numbers that look random and are the same for the same input (splitmix64).
#pragma once

#include <cstdint>

namespace uiw {

// Neighbouring inputs give unrelated results. mixed(0), mixed(kMixedStep), mixed(2 * kMixedStep), ... are a generator
// of random numbers.
constexpr std::uint64_t kMixedStep = 0x9E37'79B9'7F4A'7C15;
constexpr std::uint64_t mixed(std::uint64_t value) {
  value += kMixedStep;
  value = (value ^ value >> 30) * 0xBF58'476D'1CE4'E5B9;
  value = (value ^ value >> 27) * 0x94D0'49BB'1331'11EB;
  return value ^ value >> 31;
}

}  // namespace uiw
