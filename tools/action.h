// SPDX-License-Identifier: MIT
// What a subcommand of `uiw` does once its options are known. Each subcommand has a function that adds its options to
// its CLI11 subcommand and returns the action; the action returns the exit status of uiw.
#pragma once

#include <functional>

namespace uiw::tools {

using Action = std::function<int()>;

}  // namespace uiw::tools
