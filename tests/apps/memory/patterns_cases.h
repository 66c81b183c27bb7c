// SPDX-License-Identifier: MIT
// The cases of uiw_patterns, which both ends compute: an operation, its length, and where its octets lie.
#pragma once

#include <cstdint>
#include <vector>

namespace apps::patterns {

inline constexpr std::size_t kLargest = std::size_t{8} << 20;

enum class Kind : std::uint8_t { write, read, send, order };
inline constexpr const char* kKindName[] = {"RDMA Write", "RDMA Read", "Send", "order"};

struct Case {
  Kind kind;
  std::size_t length;
  unsigned near_align;  // of the active end's memory
  unsigned far_align;   // of the verifying end's memory
  unsigned sges;        // at the active end, and of a receive
  bool inlined;
  bool signaled;
};

struct Options {
  bool brief = false, few = false, reverse = false, events = false;
};

std::vector<Case> make_cases(const Options& options);

}  // namespace apps::patterns
