// SPDX-License-Identifier: MIT
// The action of a subcommand of `uiw`. For each subcommand a function adds its options to the CLI11 subcommand and
// returns the action; the action returns the exit status of uiw.
#pragma once

#include <functional>

namespace uiw::tools {

using Action = std::function<int()>;

}  // namespace uiw::tools
