// SPDX-License-Identifier: MIT
// With which errors may a function of libc fail, and what may a program see of that?
#pragma once

#include <string>
#include <vector>

#include "tests/faults/faults.h"

namespace faults {

const char* name_of(Function function);

// By the manual pages; errors that only a wrong call gets are left out.
const std::vector<int>& errors_of(Function function);

// What a program saw in whose life a call of uiw's failed.
struct Outcome {
  Function function;
  int error;
  bool worked;
  std::string what;  // the call that failed, "completion: ..." or "event ..."
  int seen;          // its errno
};
// Empty, or what is wrong with it.
std::string objection(const Outcome& outcome);

}  // namespace faults
