// SPDX-License-Identifier: MIT
// `uiw bench`: stock RDMA benchmarks over uiw and plain TCP, taking turns, in one run on this machine.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_bench(CLI::App& command);

}  // namespace uiw::tools
