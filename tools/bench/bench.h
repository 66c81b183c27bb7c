// SPDX-License-Identifier: MIT
// `uiw bench`: finds the device, and has bench.py run stock RDMA benchmarks over uiw, and in turns with them what they
// are compared with: plain TCP, UCX and libfabric, in one run on this machine.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_bench(CLI::App& command);

}  // namespace uiw::tools
