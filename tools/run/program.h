// SPDX-License-Identifier: MIT
// Finds out whether LD_PRELOAD works for a program file.
#pragma once

#include <string>

namespace uiw::tools {

enum class Reach {
  reachable,      // dynamically linked, or unknown
  is_static,      // an ELF program without an interpreter
  privileged,     // set-user-ID, set-group-ID or with file capabilities: the loader ignores LD_PRELOAD
  other_machine,  // an ELF program of another class or machine than uiw itself
};

// For a script the answer is that for its interpreter. `path` is a file that can be executed.
Reach reach_of(const std::string& path);

}  // namespace uiw::tools
