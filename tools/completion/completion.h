// SPDX-License-Identifier: MIT
// `uiw completion SHELL`: prints the script of this folder by which that shell completes uiw's command line.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_completion(CLI::App& command);

}  // namespace uiw::tools
