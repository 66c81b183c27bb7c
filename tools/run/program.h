// SPDX-License-Identifier: MIT
// What the loader will do with a program file: whether LD_PRELOAD reaches it.
#pragma once

#include <string>

namespace uiw::tools {

enum class Reach {
  reachable,      // dynamically linked, or not something this can tell
  is_static,      // an ELF program without an interpreter
  privileged,     // set-user-ID, set-group-ID or with file capabilities: the loader ignores LD_PRELOAD
  other_machine,  // an ELF program of another class or machine than uiw itself
};

// A script counts as its interpreter. `path` is a file that can be executed.
Reach reach_of(const std::string& path);

}  // namespace uiw::tools
