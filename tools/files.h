// SPDX-License-Identifier: MIT
// Where the parts of this uiw lie. They are looked for beside the libuiw.so.1 that this process has loaded,
// so a build tree and an installation never mix.
#pragma once

#include <string>
#include <vector>

namespace uiw::tools {

// Full path of libuiw-preload.so; empty where it is missing.
std::string preload_library();
// The places where preload_library() looks, for messages.
std::vector<std::string> preload_places();

// Full path of libuiw-rdmav<pabi>.so; empty where it is missing.
std::string plugin_library(unsigned pabi);
// The directories where plugin_library() looks, for messages.
std::vector<std::string> plugin_directories();

// Full path of a small program of uiw's own, "uiw-selftest"; empty where it is missing.
std::string helper_program(const std::string& name);

// Full path of a program found as a shell would: through PATH where `name` has no slash. `error` becomes 0,
// ENOENT, or EACCES (there is such a file, but it cannot be executed; its path is returned).
std::string find_program(const std::string& name, int& error);

// What LD_PRELOAD has to be so that `library` comes first and what is there stays.
std::string preload_value(const std::string& library, const char* present);

// "a, b or c", for messages.
std::string listed(const std::vector<std::string>& places);

}  // namespace uiw::tools
