// SPDX-License-Identifier: MIT
// `uiw run`: sets the environment and becomes the program, so that signals and the exit status are the program's.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/action.h"

namespace uiw::tools {

// `program` is PROGRAM and its arguments: they never pass through CLI11, so that they arrive as they were given.
Action add_run(CLI::App& command, const std::vector<std::string>& program);

// Splits the arguments after `uiw run` in two: how many of them are options of uiw (with their values),
// before PROGRAM. A "--" between the two belongs to neither and is counted by `separator`.
struct RunSplit {
  std::size_t options = 0;
  std::size_t separator = 0;
};
RunSplit split_run_arguments(const std::vector<std::string>& arguments);

}  // namespace uiw::tools
