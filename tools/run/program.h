// SPDX-License-Identifier: MIT
// Finds out whether LD_PRELOAD works for a program file.
#pragma once

#include <string>

namespace uiw::tools {

enum class Reach {
  reachable,         // dynamically linked, or unknown
  is_static,         // an ELF program without an interpreter
  set_user_id,       // with another user's rights: the loader ignores LD_PRELOAD
  set_group_id,      // with another group's rights: the loader ignores LD_PRELOAD
  has_capabilities,  // with file capabilities: the loader ignores LD_PRELOAD
  other_machine,     // an ELF program of another class, machine or byte order than uiw itself
};

struct Reached {
  Reach reach = Reach::reachable;
  std::string path;  // the program, or the interpreter of a script
  std::string name;  // the name of the user, the group or the machine; else empty
};

// `path` is a file that can be executed. For a script the answer is that for its interpreter.
Reached reach_of(const std::string& path);

// The name of the machine that uiw is built for, "x86-64" for example.
std::string own_machine_name();

// One line for people: what is wrong and what to do; empty where the program is reachable.
std::string advice_for(const Reached& reached);

}  // namespace uiw::tools
