// SPDX-License-Identifier: MIT
// `uiw completion SHELL`: prints the file of this folder that makes the shell complete uiw's command line.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_completion(CLI::App& command);

}  // namespace uiw::tools
