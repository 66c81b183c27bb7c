// SPDX-License-Identifier: MIT
// Finds the files of this installation of uiw: libraries by their place relative to the libuiw.so.1 that this process
// has loaded, programs and data files by their place relative to the running program. So a build tree uses its own
// files first.
#pragma once

#include <string>
#include <vector>

namespace uiw::tools {

// own_library() returns the path of the libuiw.so.1 that this process has loaded. Links in the directory are resolved;
// the file name is the one under which the library was loaded, also if that is a link. library_directory() returns the
// directory of the library's file, with all links resolved.
std::string own_library();
std::string library_directory();

// The full path of libuiw-preload.so; empty if it is missing.
std::string preload_library();
// The places where preload_library() looks, for messages.
std::vector<std::string> preload_places();

// The full path of libuiw-rdmav<pabi>.so; empty if it is missing.
std::string plugin_library(unsigned pabi);
// The directories, and the paths, where plugin_library() looks, for messages.
std::vector<std::string> plugin_directories();
std::vector<std::string> plugin_places(unsigned pabi);

// The full path of a program that belongs to uiw, "uiw-selftest" for example; empty if it is missing.
std::string helper_program(const std::string& name);
// The full path of a file of uiw that is not executed itself, "bench/bench.py" for example; empty if it is missing.
std::string data_file(const std::string& name);

// The full path of a program, found as a shell finds it: through PATH if `name` has no slash. `error` becomes 0,
// ENOENT, or EACCES (the file exists but cannot be executed; its path is returned).
std::string find_program(const std::string& name, int& error);

// The value of LD_PRELOAD with `library` first, followed by the present entries except libraries of the same name.
std::string preload_value(const std::string& library, const char* present);

// "a, b or c", for messages.
std::string listed(const std::vector<std::string>& places);

}  // namespace uiw::tools
