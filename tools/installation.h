// SPDX-License-Identifier: MIT
// Checks that the files of this installation of uiw belong together, and that no other installation interferes: for
// `uiw run`, before the program starts, and for `uiw doctor`. The comment of each check describes the problem that it
// returns; it returns nothing if there is no such problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace uiw::tools {

struct Problem {
  std::string text;    // what is wrong
  std::string advice;  // what to do about it
};

// libuiw-preload.so is missing, is a broken link, is of another version, or has a path that LD_PRELOAD cannot hold: uiw
// cannot work.
std::optional<Problem> preload_problem();

// The plugin for a private ABI is missing, a broken link or of another version, as far as that can be told without
// loading it.
std::optional<Problem> plugin_problem(unsigned abi);

// The preload library of another uiw is loaded in this process, too. It is a problem if /etc/ld.so.preload names that
// library. If LD_PRELOAD names it, it is a problem only if it is of another version. `uiw run` removes it from
// LD_PRELOAD (preload_value()).
std::optional<Problem> second_preload_problem();

// One of these directories has a libuiw.so.1 that is of another version or is a broken link.
std::optional<Problem> second_library_problem(const std::vector<std::string>& directories);
// The directories in which the dynamic loader looks by default; none if this uiw runs from its build tree.
std::vector<std::string> loader_directories();

// A uiw.driver file, by which libibverbs finds plugins itself, names a plugin that does not exist, is of another
// version, or (only if `other_prefix`) belongs to another installation of the same version. `abi`: the private ABI
// whose plugin is looked for; 0 if a plugin of any ABI will do. Programs under `uiw run` get the plugin of this uiw all
// the same, but on hosts with other devices libibverbs complains.
std::optional<Problem> driver_problem(const std::vector<std::string>& files, unsigned abi, bool other_prefix);
// The driver files of uiw that exist: in /etc/libibverbs.d, below the prefix of this installation, and in the directory
// that the build has set. None if this uiw runs from its build tree.
std::vector<std::string> driver_files();

}  // namespace uiw::tools
