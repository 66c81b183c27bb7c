// SPDX-License-Identifier: MIT
#include "kernel-abi/interposer/own_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-abi/interposer/file_version.h"
#include "kernel-abi/interposer/plugin_abis.h"
#include "provider/version.h"

namespace uiw::kernel_abi {
namespace {

// Writes "<folder of this preload library>/<name>" to `path`. False if `path` is too small.
bool beside_us(const char* name, char* path, size_t size) {
  const char* const own = own_path();
  const char* slash = strrchr(own, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - own) + 1;
  const int length = snprintf(path, size, "%.*s%s", folder, own, name);
  return length > 0 && static_cast<size_t>(length) < size;
}

bool exists(const char* path) { return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0; }

const char* file_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// If `path`, which does not exist, is a symbolic link, says so in `why`. False if it is no link.
bool broken_link(const char* path, char* why, size_t why_size) {
  char target[256];
  const long length = syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof target - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  snprintf(why, why_size, "%s is a link to %s, which does not exist; install uiw again", path, target);
  return true;
}

// If the file is of another version than this library, says so in `why` and returns true.
bool other_version(const char* path, char* why, size_t why_size) {
  char version[kLongestVersion];
  if (!file_version(path, version) || strcmp(version, kVersion) == 0) return false;
  snprintf(why, why_size, "%s is of uiw %s and %s of uiw %s; install uiw again, so that all is of one version", path,
           version, own_path(), kVersion);
  return true;
}

// Writes the folder of the plugins to `path`: that of the build tree if there is one, else that of an installation.
void plugin_folder(char* path, size_t size) {
  if (!beside_us("../provider/plugin", path, size) || !exists(path)) beside_us("libibverbs", path, size);
}

// Says in `why` that the file `name` does not exist. A name that contains a folder is the name of a plugin.
void missing(const char* name, char* why, size_t why_size) {
  const char* const file = file_name(name);
  if (file == name) {
    snprintf(why, why_size, "%s is neither beside %s nor where the loader looks; install uiw again", file, own_path());
    return;
  }
  int length =
      snprintf(why, why_size, "there is no %s, which this libibverbs needs (private ABI %.*s): ", file,
               static_cast<int>(strspn(file + strlen("libuiw-rdmav"), "0123456789")), file + strlen("libuiw-rdmav"));
  if (length < 0 || static_cast<size_t>(length) >= why_size) return;
  plugins_there(why + length, why_size - static_cast<size_t>(length));
  length = static_cast<int>(strlen(why));
  snprintf(why + length, why_size - static_cast<size_t>(length), "; install uiw again, or a uiw that knows this ABI");
}

}  // namespace

const char* own_path() {
  static constexpr char kHere = 0;
  Dl_info info = {};
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return "libuiw-preload.so";
  return info.dli_fname;
}

const char* path_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "?";
}

void* load_own(const char* const* names, char* why, size_t why_size) {
  why[0] = '\0';
  const char* const first = names[0];
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  for (; *names != nullptr; ++names) {
    char path[PATH_MAX];
    if (!beside_us(*names, path, sizeof path)) continue;
    if (!exists(path)) {
      if (why[0] == '\0') broken_link(path, why, why_size);
      continue;
    }
    if (other_version(path, why, why_size)) return nullptr;
    if (void* library = dlopen(path, kFlags)) return library;
    const char* message = dlerror();
    snprintf(why, why_size, "%s cannot be loaded: %s; install uiw again", file_name(path),
             message != nullptr ? message : path);
  }
  const char* const file = file_name(first);
  if (void* library = dlopen(file, kFlags)) return library;
  const char* message = dlerror();
  if (why[0] != '\0') return nullptr;
  // If the dynamic loader has not found the file, its message begins with the name that was given to dlopen(); in all
  // other cases it begins with a path.
  const size_t length = strlen(file);
  if (message == nullptr || (strncmp(message, file, length) == 0 && message[length] == ':'))
    missing(first, why, why_size);
  else
    snprintf(why, why_size, "%s cannot be loaded: %s; install uiw again", file, message);
  return nullptr;
}

PluginNames::PluginNames(int abi) {
  snprintf(installed, sizeof installed, "libibverbs/libuiw-rdmav%d.so", abi);
  snprintf(beside, sizeof beside, "libuiw-rdmav%d.so", abi);
  snprintf(built, sizeof built, "../provider/plugin/libuiw-rdmav%d.so", abi);
}

bool is_known_abi(int abi) {
  for (const int known : kPluginAbis)
    if (known == abi) return true;
  return false;
}

void plugins_there(char* text, size_t size) {
  char folder[PATH_MAX];
  plugin_folder(folder, sizeof folder);
  int there[sizeof kPluginAbis / sizeof *kPluginAbis];
  int count = 0;
  for (const int abi : kPluginAbis) {
    const PluginNames names(abi);
    bool found = false;
    for (const char* const* name = names.list; *name != nullptr; ++name) {
      char path[PATH_MAX];
      if (beside_us(*name, path, sizeof path) && exists(path)) found = true;
    }
    if (found) there[count++] = abi;
  }
  int length = snprintf(text, size, count == 0 ? "no plugin is in %s" : "the plugins in %s are for", folder);
  for (int i = 0; i < count && length >= 0 && static_cast<size_t>(length) < size; ++i)
    length += snprintf(text + length, size - static_cast<size_t>(length), "%s %d",
                       i == 0 ? "" : (i + 1 == count ? " and" : ","), there[i]);
}

}  // namespace uiw::kernel_abi
