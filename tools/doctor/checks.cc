// SPDX-License-Identifier: MIT
#include "tools/doctor/checks.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/processors.h"
#include "kernel-abi/interposer/plugin_abis.h"
#include "provider/process/settings.h"
#include "provider/version.h"
#include "tools/address.h"
#include "tools/child.h"
#include "tools/files.h"
#include "tools/installation.h"
#include "tools/packages.h"

namespace uiw::tools {
namespace {

constexpr std::chrono::seconds kSelftestLimit{20};

Finding good(std::string subject, std::string text) { return {Verdict::ok, std::move(subject), std::move(text), ""}; }

// The file of a loaded library, with links resolved.
std::string path_of(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::canonical(map->l_name, ignored);
  return whole.empty() ? std::string(map->l_name) : whole.string();
}

Finding from(Verdict verdict, const char* subject, const Problem& problem) {
  return {verdict, subject, problem.text, problem.advice};
}

// "34, 57 and 59": the provider ABIs that uiw has a plugin for.
std::string known_abis() {
  std::string text;
  for (const int& known : kernel_abi::kPluginAbis) {
    if (&known != std::begin(kernel_abi::kPluginAbis))
      text += &known == std::end(kernel_abi::kPluginAbis) - 1 ? " and " : ", ";
    text += std::to_string(known);
  }
  return text;
}

// Stores the provider ABI of the installed libibverbs in `abi`; 0 if uiw has no plugin for it.
Finding check_libibverbs(unsigned& abi) {
  abi = 0;
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {Verdict::fail, "libibverbs", std::string("cannot be loaded: ") + dlerror(),
            "install it: " + how_to_install({kLibibverbs})};
  const int found = kernel_abi::private_abi(library);
  const bool known = std::find(std::begin(kernel_abi::kPluginAbis), std::end(kernel_abi::kPluginAbis), found) !=
                     std::end(kernel_abi::kPluginAbis);
  const std::string path = path_of(library);
  const std::string text = path + ", rdma-core " + release_of(path) + ", " +
                           (found == 0 ? "no provider ABI" : "provider ABI " + std::to_string(found));
  if (!known)
    return {
        Verdict::fail, "libibverbs", text + ", and uiw has plugins for " + known_abis(),
        found == 0 ? "use rdma-core 39 or later" : "install a uiw that knows it, or add it (docs/new-rdma-core.md)"};
  abi = static_cast<unsigned>(found);
  return good("libibverbs", text);
}

Finding check_library() {
  if (const std::optional<Problem> problem = second_library_problem(loader_directories()))
    return from(Verdict::warn, "library", *problem);
  return good("library", own_library() + ", uiw " + kVersion);
}

Finding check_plugin(unsigned abi) {
  if (abi == 0)
    return {Verdict::fail, "plugin", "not looked for: no provider ABI that is known", "see libibverbs above"};
  if (const std::optional<Problem> problem = plugin_problem(abi)) return from(Verdict::fail, "plugin", *problem);
  const std::string path = plugin_library(abi);
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    return {Verdict::fail, "plugin", path + " cannot be loaded: " + dlerror(), "install uiw again or finish the build"};
  return good("plugin", path);
}

Finding check_preload() {
  if (const std::optional<Problem> problem = preload_problem()) return from(Verdict::fail, "preload library", *problem);
  if (const std::optional<Problem> problem = second_preload_problem())
    return from(Verdict::warn, "preload library", *problem);
  return good("preload library", preload_library());
}

// libibverbs reads driver files to find plugins by itself. Without a driver file a program gets uiw's devices through
// the preload library.
Finding check_driver_file(unsigned abi) {
  const std::vector<std::string> files = driver_files();
  if (const std::optional<Problem> problem = driver_problem(files, abi, true))
    return from(Verdict::warn, "driver file", *problem);
  return good("driver file", files.empty() ? "none, and none is needed under `uiw run`" : listed(files));
}

Finding check_librdmacm() {
  void* library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {Verdict::warn, "librdmacm", std::string("cannot be loaded: ") + dlerror(),
            "most RDMA programs need it: " + how_to_install({kLibrdmacm})};
  return good("librdmacm", path_of(library));
}

Finding check_settings() {
  if (const std::string& error = provider::settings().error; !error.empty())
    return {Verdict::fail, "settings", error, "no device is offered until this is corrected"};
  std::string given;
  for (const provider::SettingInfo& setting : provider::setting_table())
    if (const char* value = getenv(setting.variable); value != nullptr)
      given += std::string(given.empty() ? "" : ", ") + setting.variable + "=" + value;
  return good("settings", given.empty() ? "all as they come" : given);
}

Finding check_devices(const std::vector<provider::DeviceInfo>& devices) {
  if (devices.empty())
    return {Verdict::fail, "devices", "none: no interface that is up has an IP address, or UIW_DEVICES excludes it",
            "bring one up (`ip link set lo up`), or change UIW_DEVICES"};
  std::string text;
  for (const provider::DeviceInfo& device : devices)
    text += (text.empty() ? "" : ", ") + device.name + " (" + address_text(device.gids.front()) + ")";
  return good("devices", text);
}

// 0 if this process can create something in the directory, else an errno. Creates a directory there, since SELinux and
// AppArmor may refuse what the file modes allow.
int try_directory(const std::string& path) {
  std::string name = path + "/uiw-doctor-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return errno;
  rmdir(name.c_str());
  return 0;
}

Finding check_runtime_directory() {
  constexpr const char* kSubject = "runtime directory";
  constexpr const char* kFirst = "/dev/shm";
  if (const std::string& chosen = provider::settings().values.runtime_dir; !chosen.empty()) {
    if (const int error = try_directory(chosen); error != 0)
      return {Verdict::fail, kSubject, chosen + " (UIW_RUNTIME_DIR) cannot be written: " + std::strerror(error),
              "make it a directory of yours, or choose another"};
    return good(kSubject, chosen + " (UIW_RUNTIME_DIR)");
  }
  const char* session = getenv("XDG_RUNTIME_DIR");
  std::vector<std::string> places{kFirst, "/tmp"};
  if (session != nullptr && *session == '/') places.insert(places.begin(), session);
  std::vector<std::string> refused;
  std::string refused_first;
  for (const std::string& place : places) {
    const int error = try_directory(place);
    if (error != 0) {
      refused.push_back(place + " (" + std::strerror(error) + ")");
      if (place == kFirst) refused_first = refused.back();
      continue;
    }
    if (refused_first.empty()) return good(kSubject, place + " can be written");
    return {Verdict::warn, kSubject, refused_first + " cannot be written, so uiw puts its files into " + place,
            "allow it (mount options, SELinux, AppArmor), or set UIW_RUNTIME_DIR to a directory of yours"};
  }
  return {Verdict::fail, kSubject, "uiw cannot put its files into " + listed(refused),
          "set UIW_RUNTIME_DIR to a directory of yours that can be written"};
}

// Looks for programs with which a user can try uiw; uiw works without them.
Finding check_programs() {
  constexpr std::pair<const char*, Package> kPrograms[] = {
      {"ibv_devinfo", kIbverbsUtils}, {"rping", kRdmacmUtils}, {"ib_write_bw", kPerftest}};
  std::string there, missing;
  std::vector<Package> packages;
  for (const auto& [program, package] : kPrograms) {
    int error = 0;
    find_program(program, error);
    std::string& list = error == 0 ? there : missing;
    list += (list.empty() ? "" : ", ") + std::string(program);
    if (error != 0) packages.push_back(package);
  }
  if (packages.empty()) return good("programs", there);
  return good("programs",
              (there.empty() ? "none" : there) + "; to try uiw with " + missing + " too: " + how_to_install(packages));
}

Finding check_limits() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur == RLIM_INFINITY) return good("open files", "no limit");
  const std::string text = "at most " + std::to_string(files.rlim_cur) + " in a process";
  if (files.rlim_cur < 1024)
    return {Verdict::warn, "open files", text + "; each connected queue pair takes one", "raise it: ulimit -n 1024"};
  return good("open files", text + "; each connected queue pair takes one");
}

Finding check_processors() {
  const unsigned count = usable_processors();
  if (count < 2)
    return {Verdict::warn, "processors", "only one may be used",
            "programs that spin on memory are slow on one; allow two"};
  return good("processors", std::to_string(count) + " may be used");
}

Finding check_selftest(const std::vector<provider::DeviceInfo>& devices) {
  constexpr const char* kSubject = "self-test";
  const std::string program = helper_program("uiw-selftest");
  const std::string preload = preload_library();
  const std::string address = selftest_address(devices);
  if (program.empty())
    return {Verdict::warn, kSubject, "not run: uiw-selftest is missing", "install uiw again or finish the build"};
  if (preload.empty() || address.empty())
    return {Verdict::fail, kSubject, "not run: there is no preload library or no address", "see above"};
  const Environment environment{
      {"LD_PRELOAD", preload_value(preload, getenv("LD_PRELOAD"))}, {"UIW_LOG", "-"}, {"UIW_LOG_LEVEL", "info"}};
  const std::optional<Child> child = run_child({program, address}, environment, kSelftestLimit);
  if (!child)
    return {Verdict::fail, kSubject, std::string("cannot be started: ") + std::strerror(errno), "free some memory"};
  const auto [said, way] = selftest_output(child->output);
  if (child->succeeded()) return good(kSubject, said + ", through " + way);
  if (interrupted() != 0) return {Verdict::fail, kSubject, "interrupted", "run `uiw doctor` again"};
  std::string text = child->in_time ? "it " + ending_of(child->status) : "no end within 20 s over " + address;
  if (!said.empty()) text += ": " + said;
  return {Verdict::fail, kSubject, text,
          "fix the failures above; if there are none, report a bug with the output of `uiw doctor`"};
}

}  // namespace

std::string release_of(const std::string& path) {
  const std::size_t last = path.rfind('.');
  const std::size_t before = last == std::string::npos || last == 0 ? last : path.rfind('.', last - 1);
  if (before == std::string::npos || path.find(".so.1.") == std::string::npos) return "of unknown release";
  return path.substr(before + 1);
}

SelftestOutput selftest_output(const std::string& output) {
  constexpr std::string_view kOfLog = " uiw: ", kWay = ": its octets go through ";
  SelftestOutput result;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(kOfLog) == std::string::npos) {
      if (!line.empty()) result.said = line;
    } else if (const std::size_t at = line.find(kWay); at != std::string::npos) {
      result.way = line.substr(at + kWay.size());
    }
  }
  return result;
}

std::string selftest_address(const std::vector<provider::DeviceInfo>& devices) {
  std::string first;
  for (const provider::DeviceInfo& device : devices) {
    for (const provider::Gid& gid : device.gids) {
      std::string text = address_text(gid);
      if (text == "127.0.0.1") return text;
      const bool link_local = gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80;
      if (first.empty() && !link_local) first = text;
    }
  }
  return first;
}

std::vector<Finding> examine() {
  unsigned abi = 0;
  std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  std::erase_if(devices, [](const provider::DeviceInfo& device) { return !device.active; });
  std::vector<Finding> findings;
  findings.push_back(check_libibverbs(abi));
  findings.push_back(check_library());
  findings.push_back(check_plugin(abi));
  findings.push_back(check_preload());
  findings.push_back(check_driver_file(abi));
  findings.push_back(check_librdmacm());
  findings.push_back(check_programs());
  findings.push_back(check_settings());
  findings.push_back(check_devices(devices));
  findings.push_back(check_runtime_directory());
  findings.push_back(check_limits());
  findings.push_back(check_processors());
  findings.push_back(check_selftest(devices));
  return findings;
}

}  // namespace uiw::tools
