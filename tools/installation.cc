// SPDX-License-Identifier: MIT
#include "tools/installation.h"

#include <link.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "kernel-abi/interposer/file_version.h"
#include "kernel-abi/interposer/plugin_abis.h"
#include "provider/version.h"
#include "tools/files.h"

namespace uiw::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreloadName = "libuiw-preload.so";
constexpr const char* kInstallAgain = "install uiw again, so that all its files are of one version";

bool same_file(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return fs::equivalent(one, other, ignored);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The version of uiw that a file belongs to, "0.1.0" for example; empty if the file contains none.
std::string version_of(const std::string& path) {
  char version[kernel_abi::kLongestVersion];
  return kernel_abi::file_version(path.c_str(), version) ? version : "";
}

bool is_other_version(const std::string& version) { return !version.empty() && version != kVersion; }

std::string with_version(const std::string& path, const std::string& version) {
  return path + " (uiw " + version + ")";
}

// Returns a problem if one of these paths is a symbolic link whose target does not exist.
std::optional<Problem> broken_link(const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    std::error_code error;
    const fs::path target = fs::read_symlink(place, error);
    if (!error && !exists(place))
      return Problem{place + " is a link to " + target.string() + ", which does not exist", "install uiw again"};
  }
  return {};
}

std::optional<Problem> version_problem(const std::string& path) {
  const std::string version = version_of(path);
  if (!is_other_version(version)) return {};
  return Problem{with_version(path, version) + " is of another version than " + with_version(own_library(), kVersion),
                 kInstallAgain};
}

// Returns the path of the older of two installations; the advice is to remove that one. `version` is the version of
// `other`.
std::string older_of(const std::string& other, const std::string& version, const std::string& own) {
  return strverscmp(version.c_str(), kVersion) < 0 ? other : own;
}

bool is_build_tree() { return !exists(library_directory() + "/" + kPreloadName); }

bool is_own_plugin(const std::string& plugin) {
  if (!fs::path(plugin).filename().string().starts_with("libuiw-rdmav")) return false;
  for (const std::string& directory : plugin_directories())
    if (same_file(fs::path(plugin).parent_path(), directory)) return true;
  return false;
}

// The names of the drivers in a file of libibverbs.d.
std::vector<std::string> drivers_in(const std::string& file) {
  std::vector<std::string> names;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, name;
    if (words >> word >> name && word == "driver") names.push_back(name);
  }
  return names;
}

// Returns the path at which libibverbs looks for the plugin of a driver ("/x/libuiw"), for the private ABI `abi`. If
// `abi` is 0, returns the first path at which a plugin exists, of those for the ABIs that uiw knows. There may be no
// file at the path.
std::string plugin_of_driver(const std::string& driver, unsigned abi) {
  const std::string stem = driver.front() == '/' ? driver : std::string(UIW_STOCK_PROVIDER_DIR) + "/lib" + driver;
  std::vector<int> abis(std::begin(kernel_abi::kPluginAbis), std::end(kernel_abi::kPluginAbis));
  if (abi != 0) abis = {static_cast<int>(abi)};
  const auto path = [&](int one) { return stem + "-rdmav" + std::to_string(one) + ".so"; };
  for (const int one : abis)
    if (exists(path(one))) return path(one);
  return path(abis.front());
}

}  // namespace

std::optional<Problem> preload_problem() {
  const std::string path = preload_library();
  if (path.empty()) {
    if (std::optional<Problem> broken = broken_link(preload_places())) return broken;
    return Problem{std::string(kPreloadName) + " is not at " + listed(preload_places()),
                   "install the package uiw again or finish the build"};
  }
  if (path.find_first_of(": ") != std::string::npos)
    return Problem{path + " has a space or colon in its path, which LD_PRELOAD cannot hold",
                   "move uiw to a path without them"};
  return version_problem(path);
}

std::optional<Problem> plugin_problem(unsigned abi) {
  const std::string path = plugin_library(abi);
  if (!path.empty()) return version_problem(path);
  if (std::optional<Problem> broken = broken_link(plugin_places(abi))) return broken;
  return Problem{
      "libuiw-rdmav" + std::to_string(abi) + ".so is not in " + listed(plugin_directories()),
      "install the package that has it (Debian: ibverbs-provider-uiw, Fedora: libibverbs-provider-uiw), or finish "
      "the build"};
}

std::optional<Problem> second_preload_problem() {
  std::vector<std::string> loaded;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (fs::path(info->dlpi_name).filename() == kPreloadName)
          static_cast<std::vector<std::string>*>(found)->emplace_back(info->dlpi_name);
        return 0;
      },
      &loaded);
  const std::string own = preload_library();
  const char* variable = getenv("LD_PRELOAD");
  const bool by_variable = variable != nullptr && std::strstr(variable, kPreloadName) != nullptr;
  for (const std::string& path : loaded) {
    if (same_file(path, own)) continue;
    const std::string version = version_of(path);
    if (by_variable && version == kVersion) continue;
    const std::string text = with_version(path, version.empty() ? "of unknown version" : version) + " is in " +
                             (by_variable ? "LD_PRELOAD" : "/etc/ld.so.preload") + ", and this is the uiw of " +
                             with_version(own, kVersion);
    return Problem{text, std::string("use one of the two: remove ") + older_of(path, version, own)};
  }
  return {};
}

std::optional<Problem> second_library_problem(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    const std::string path = directory + "/libuiw.so.1";
    if (std::optional<Problem> broken = broken_link({path})) return broken;
    const std::string version = version_of(path);
    if (!is_other_version(version) || same_file(path, own_library())) continue;
    return Problem{"there are two: " + with_version(path, version) + " and " + with_version(own_library(), kVersion),
                   "remove the uiw of " + fs::path(older_of(path, version, own_library())).parent_path().string() +
                       ", the older one"};
  }
  return {};
}

std::vector<std::string> loader_directories() {
  std::vector<std::string> directories;
  if (is_build_tree()) return directories;
  for (const char* prefix : {"/usr/local", "/usr"})
    for (const char* folder : {"lib", "lib64", "lib/" UIW_LIBRARY_ARCHITECTURE})
      directories.push_back(std::string(prefix) + "/" + folder);
  return directories;
}

std::optional<Problem> driver_problem(const std::vector<std::string>& files, unsigned abi, bool other_prefix) {
  for (const std::string& file : files) {
    for (const std::string& driver : drivers_in(file)) {
      const std::string plugin = plugin_of_driver(driver, abi);
      if (is_own_plugin(plugin)) continue;  // plugin_problem() checks the plugin of this uiw
      const std::string named = file + " names " + plugin;
      const std::string remove = "remove " + file + ", or install again the uiw that it belongs to";
      if (!exists(plugin)) return Problem{named + ", which does not exist", remove};
      if (const std::string version = version_of(plugin); is_other_version(version))
        return Problem{named + " (uiw " + version + "), and this is uiw " + kVersion + " of " + library_directory(),
                       "remove one of the two, " + (strverscmp(version.c_str(), kVersion) < 0 ? file : "this one")};
      if (const std::string own = plugin_library(abi); other_prefix && !own.empty())
        return Problem{named + ", and not the plugin of this uiw, " + own, "remove one of the two installations"};
    }
  }
  return {};
}

std::vector<std::string> driver_files() {
  std::vector<std::string> files;
  if (is_build_tree()) return files;
  const fs::path libraries = library_directory();
  const std::vector<fs::path> places{"/etc/libibverbs.d", libraries.parent_path() / "etc/libibverbs.d",
                                     libraries.parent_path().parent_path() / "etc/libibverbs.d", UIW_DRIVER_CONF_DIR};
  for (const fs::path& place : places) {
    if (!place.is_absolute()) continue;
    const std::string file = (place / "uiw.driver").string();
    bool known = !exists(file);
    for (const std::string& other : files) known = known || same_file(file, other);
    if (!known) files.push_back(file);
  }
  return files;
}

}  // namespace uiw::tools
