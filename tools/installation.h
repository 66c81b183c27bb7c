// SPDX-License-Identifier: MIT
// Checks that the files of this installation of uiw belong together, and that no other installation interferes: for
// `uiw run`, before the program starts, and for `uiw doctor`. Each check returns nullopt if it finds no problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace uiw::tools {

struct Problem {
  std::string text;    // what is wrong
  std::string advice;  // what to do about it
};

// Returns a problem if libuiw-preload.so is missing, is a broken link, is of another version, or has a path that
// LD_PRELOAD cannot hold. In these cases uiw cannot work.
std::optional<Problem> preload_problem();

// Returns a problem if the plugin for a private ABI is missing, is a broken link, or is of another version. Reads the
// version from the file, without loading the plugin.
std::optional<Problem> plugin_problem(unsigned abi);

// Returns a problem if the preload library of another installation of uiw is loaded in this process, too, and either
// /etc/ld.so.preload names that library, or LD_PRELOAD names it and its version is another one. A library of the same
// version in LD_PRELOAD is no problem, since `uiw run` removes it from LD_PRELOAD (preload_value()).
std::optional<Problem> second_preload_problem();

// Returns a problem if one of these directories has a libuiw.so.1 that is of another version or is a broken link.
std::optional<Problem> second_library_problem(const std::vector<std::string>& directories);
// The directories in which the dynamic loader looks by default; none if this uiw runs from its build tree.
std::vector<std::string> loader_directories();

// Returns a problem if one of `files`, which are driver files by which libibverbs finds plugins itself, names a plugin
// that does not exist, is of another version, or (only if `other_prefix`) belongs to another installation of the same
// version. `abi` is the private ABI for which plugins are looked for; 0: any ABI. Despite such a problem, programs
// under `uiw run` get the plugin of this uiw, but libibverbs prints a warning on hosts with other RDMA devices.
std::optional<Problem> driver_problem(const std::vector<std::string>& files, unsigned abi, bool other_prefix);
// The driver files of uiw that exist: in /etc/libibverbs.d, below the prefix of this installation, and in the directory
// that the build has set. None if this uiw runs from its build tree.
std::vector<std::string> driver_files();

}  // namespace uiw::tools
