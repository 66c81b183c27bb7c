// SPDX-License-Identifier: MIT
// The subcommands of `uiw`. Each adds its options to its CLI11 subcommand and returns what runs it; that
// returns the exit status of uiw.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace uiw::tools {

using Action = std::function<int()>;

// `program` is PROGRAM and its arguments: they never pass through CLI11, so that they arrive as they were
// given.
Action add_run(CLI::App& command, const std::vector<std::string>& program);
Action add_devices(CLI::App& command);
Action add_doctor(CLI::App& command);
Action add_bench(CLI::App& command);

// Splits the arguments after `uiw run` in two: how many of them are options of uiw (with their values),
// before PROGRAM. A "--" between the two belongs to neither and is counted by `separator`.
struct RunSplit {
  std::size_t options = 0;
  std::size_t separator = 0;
};
RunSplit split_run_arguments(const std::vector<std::string>& arguments);

}  // namespace uiw::tools
