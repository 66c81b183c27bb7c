// SPDX-License-Identifier: MIT
// `uiw run`: sets the environment and executes the program in this process, so that signals and the exit status are the
// program's.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/action.h"

namespace uiw::tools {

// `program` is PROGRAM and its arguments. CLI11 does not see them, so they are passed on unchanged.
Action add_run(CLI::App& command, const std::vector<std::string>& program);

// The arguments after `uiw run`, before PROGRAM: `options` counts the options of uiw and their values, `separator` the
// "--" that may follow them.
struct RunSplit {
  std::size_t options = 0;
  std::size_t separator = 0;
};
RunSplit split_run_arguments(const std::vector<std::string>& arguments);

}  // namespace uiw::tools
