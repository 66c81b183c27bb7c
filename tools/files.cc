// SPDX-License-Identifier: MIT
#include "tools/files.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "provider/process/settings.h"

namespace uiw::tools {
namespace {

namespace fs = std::filesystem;

std::string parent_of(const fs::path& path) {
  std::error_code ignored;
  fs::path whole = fs::canonical(path, ignored);
  return whole.empty() ? std::string() : whole.parent_path().string();
}

std::string first_existing(const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    std::error_code ignored;
    fs::path whole = fs::canonical(place, ignored);
    if (!whole.empty() && fs::is_regular_file(whole, ignored)) return whole.string();
  }
  return {};
}

bool is_file(const std::string& path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

}  // namespace

std::string own_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&provider::setting_table), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const fs::path loaded = info.dli_fname;
  std::error_code ignored;
  return (fs::canonical(loaded.parent_path(), ignored) / loaded.filename()).string();
}

std::string library_directory() { return parent_of(own_library()); }

std::vector<std::string> preload_places() {
  const std::string base = library_directory();
  std::error_code ignored;
  const fs::path build = fs::weakly_canonical(fs::path(base) / ".." / "kernel-abi", ignored);
  return {base + "/libuiw-preload.so", build.string() + "/libuiw-preload.so"};
}

std::string preload_library() { return first_existing(preload_places()); }

std::vector<std::string> plugin_directories() {
  const std::string base = library_directory();
  std::vector<std::string> places{base + "/plugin", base + "/libibverbs"};
  if (places.back() != UIW_FULL_PROVIDER_DIR) places.emplace_back(UIW_FULL_PROVIDER_DIR);
  return places;
}

std::vector<std::string> plugin_places(unsigned pabi) {
  std::vector<std::string> places = plugin_directories();
  for (std::string& place : places) place += "/libuiw-rdmav" + std::to_string(pabi) + ".so";
  return places;
}

std::string plugin_library(unsigned pabi) { return first_existing(plugin_places(pabi)); }

std::string helper_program(const std::string& name) {
  const std::string base = parent_of("/proc/self/exe");
  return first_existing({base + "/" + name, base + "/" UIW_BIN_TO_HELPER "/" + name});
}

std::string data_file(const std::string& name) {
  const std::string base = parent_of("/proc/self/exe");
  return first_existing({base + "/" + name, base + "/" UIW_BIN_TO_DATA "/" + name});
}

std::string find_program(const std::string& name, int& error) {
  error = ENOENT;
  if (name.empty()) return {};
  std::string denied;
  auto usable = [&](const std::string& path) {
    if (!is_file(path)) return false;
    if (access(path.c_str(), X_OK) == 0) return true;
    if (denied.empty()) denied = path;
    return false;
  };
  if (name.find('/') != std::string::npos) {
    if (usable(name)) {
      error = 0;
      return name;
    }
    struct stat st {};
    if (stat(name.c_str(), &st) == 0) {
      error = EACCES;
      return name;
    }
    return {};
  }
  const char* path = getenv("PATH");
  std::stringstream directories(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string directory; std::getline(directories, directory, ':');) {
    std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (usable(candidate)) {
      error = 0;
      return candidate;
    }
  }
  if (!denied.empty()) error = EACCES;
  return denied;
}

std::string preload_value(const std::string& library, const char* present) {
  if (present == nullptr || *present == '\0') return library;
  // The entries of LD_PRELOAD are separated by colons or spaces. An entry with the file name of `library` is the
  // preload library of this or another uiw, which would hook the same calls, so it is left out.
  const fs::path name = fs::path(library).filename();
  std::string rest;
  std::string entry;
  for (const char* at = present;; ++at) {
    if (*at != '\0' && *at != ':' && *at != ' ') {
      entry += *at;
      continue;
    }
    if (!entry.empty() && fs::path(entry).filename() != name) rest += ":" + entry;
    entry.clear();
    if (*at == '\0') break;
  }
  return library + rest;
}

std::string listed(const std::vector<std::string>& places) {
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i > 0) text += i + 1 == places.size() ? " or " : ", ";
    text += places[i];
  }
  return text;
}

}  // namespace uiw::tools
