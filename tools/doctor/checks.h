// SPDX-License-Identifier: MIT
// The single checks of `uiw doctor`. None prints; none takes longer than the self-test's 20 seconds.
#pragma once

#include <string>
#include <vector>

namespace uiw::tools {

enum class Verdict { ok, warn, fail };

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string subject;  // "libibverbs"
  std::string text;     // what was found
  std::string advice;   // what to do about it; empty where nothing is to be done
};

// All checks, in the order in which a reader wants to mend what is wrong.
std::vector<Finding> examine();

}  // namespace uiw::tools
