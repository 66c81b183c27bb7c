// SPDX-License-Identifier: MIT
// Do the files of this installation of uiw belong together, and does another one come between? Asked by `uiw run`,
// before the program starts, and by `uiw doctor`.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace uiw::tools {

struct Fault {
  std::string text;    // what is wrong
  std::string advice;  // what to do about it
};

// libuiw-preload.so is missing, a broken link, of another version, or where LD_PRELOAD cannot name it: uiw cannot work.
std::optional<Fault> preload_fault();

// The same for the plugin for a private ABI, as far as it can be told without loading it.
std::optional<Fault> plugin_fault(unsigned abi);

// The preload library of another uiw is loaded in this process too: by LD_PRELOAD, of another version, or by
// /etc/ld.so.preload. `uiw run` takes it out of LD_PRELOAD (preload_value()).
std::optional<Fault> second_preload_fault();

// A libuiw.so.1 of another version is in one of these directories.
std::optional<Fault> second_library_fault(const std::vector<std::string>& directories);
// Those where the loader looks by itself; none if this uiw is not installed.
std::vector<std::string> loader_directories();

// A uiw.driver, by which libibverbs looks for plugins itself, names one that does not exist, is of another version, or
// (only if `other_prefix`) of another installation of the same version. `abi`: the one whose plugin is looked for; 0 if
// any will do. Programs under `uiw run` have the plugin of this uiw nevertheless; libibverbs complains, on hosts with
// other devices.
std::optional<Fault> driver_fault(const std::vector<std::string>& files, unsigned abi, bool other_prefix);
// The driver files that there are: in /etc/libibverbs.d, and below the prefix of this installation.
std::vector<std::string> driver_files();

}  // namespace uiw::tools
