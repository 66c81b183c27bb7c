// SPDX-License-Identifier: MIT
// How the fuzzers say that something is wrong: they say where and end, and libFuzzer keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace uiw::fuzz {

inline void check(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "%s:%d: this check failed\n", file, line);
  std::abort();
}

}  // namespace uiw::fuzz
