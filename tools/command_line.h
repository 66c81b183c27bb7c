// SPDX-License-Identifier: MIT
// The command line of `uiw` as CLI11 knows it: all subcommands with their options.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/action.h"

namespace uiw::tools {

struct CommandLine {
  CLI::App app;
  Action action;  // the action of the parsed subcommand
};

// `version` is what --version prints. `program` is PROGRAM of `uiw run` and its arguments (tools/run/run.h). The
// callbacks of the subcommands refer to the CommandLine, so it must not move.
std::unique_ptr<CommandLine> command_line(const std::string& version, const std::vector<std::string>& program);

}  // namespace uiw::tools
