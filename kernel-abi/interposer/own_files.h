// SPDX-License-Identifier: MIT
// Finds and loads the files of uiw that belong to this preload library. An installation has them in the folder of the
// preload library or below it, a build tree in neighbour folders. If they are in none of these places, the dynamic
// loader searches for them. Part of the interposer.
//
// No file of another version is loaded by its path: such a file might fail with a message that does not say why, or
// work for a while. A file that the dynamic loader's search finds is checked only after it is loaded (loader.cc).
#pragma once

#include <limits.h>
#include <stddef.h>

namespace uiw::kernel_abi {

inline constexpr size_t kReasonSize = PATH_MAX + 512;  // for a reason that has two paths of the usual length

// The path of this preload library.
const char* own_path();

// The path of a library that is loaded.
const char* path_of(void* library);

// Loads the first of these files that exists and can be loaded; if there is none, the file that the dynamic loader's
// search finds. The names are relative to the folder of this preload library; the first name is that of an
// installation. Returns null if no file can be loaded, or as soon as a file is of another version; `why` then says
// which file failed, why, and what to do.
void* load_own(const char* const* names, char* why, size_t why_size);

// The names of the plugin for a private ABI, for load_own().
struct PluginNames {
  explicit PluginNames(int abi);
  PluginNames(const PluginNames&) = delete;
  PluginNames& operator=(const PluginNames&) = delete;

  char installed[64];
  char beside[64];
  char built[64];
  const char* const list[4] = {installed, beside, built, nullptr};
};

bool is_known_abi(int abi);

// Writes which plugins there are: "the plugins in /usr/lib/libibverbs are for 34 and 57".
void plugins_there(char* text, size_t size);

}  // namespace uiw::kernel_abi
