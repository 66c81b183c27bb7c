// SPDX-License-Identifier: MIT
// `uiw bench`: chooses a device, and has bench.py run stock RDMA benchmarks over uiw, alternating with what they are
// compared with on this machine: plain TCP, UCX and libfabric.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/action.h"

namespace uiw::tools {

Action add_bench(CLI::App& command);

}  // namespace uiw::tools
