// SPDX-License-Identifier: MIT
// `uiw devices`: the RDMA devices that programs see under uiw.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_devices(CLI::App& command);

}  // namespace uiw::tools
