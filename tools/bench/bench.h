// SPDX-License-Identifier: MIT
// `uiw bench`: chooses a device, and runs bench.py, which measures stock RDMA benchmarks over uiw in turns with plain
// TCP, UCX and libfabric on the same machine.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_bench(CLI::App& command);

}  // namespace uiw::tools
