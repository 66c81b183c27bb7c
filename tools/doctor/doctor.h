// SPDX-License-Identifier: MIT
// `uiw doctor`: does uiw work here, and if not, what to do.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_doctor(CLI::App& command);

}  // namespace uiw::tools
