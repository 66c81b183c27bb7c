// SPDX-License-Identifier: MIT
// Measures what the picture of `uiw bench --plot` shows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/plot.h"
#include "tools/bench/programs/programs.h"

namespace uiw::tools {

struct CurveOptions {
  unsigned runs = 1;
  unsigned processors = 0;
  bool with_ucx = false;
};

struct Curves {
  Picture picture;
  std::vector<std::string> errors;  // of the points that are missing in it
};

// Measures each point `runs` times, all subjects of a point in turns, and one that fails once more. `tell` gets a line
// for each. nullopt if this process was interrupted.
std::optional<Curves> measure_curves(const BenchSetup& setup, const CurveOptions& options,
                                     const std::function<void(const std::string& line)>& tell);

}  // namespace uiw::tools
