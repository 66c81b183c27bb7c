// SPDX-License-Identifier: MIT
// `uiw doctor`: checks whether uiw works here, and says what to do if not.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_doctor(CLI::App& command);

}  // namespace uiw::tools
