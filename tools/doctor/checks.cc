// SPDX-License-Identifier: MIT
#include "tools/doctor/checks.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "kernel-abi/interposer/plugin_abis.h"
#include "provider/process/settings.h"
#include "tools/address.h"
#include "tools/child.h"
#include "tools/files.h"
#include "tools/processors.h"

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

// Stores the provider ABI in `abi`, 0 if it is unknown.
Finding check_libibverbs(unsigned& abi) {
  abi = 0;
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {Verdict::fail, "libibverbs", std::string("cannot be loaded: ") + dlerror(),
            "install it: apt-get install libibverbs1"};
  for (const int known : kernel_abi::kPluginAbis) {
    const std::string number = std::to_string(known);
    if (dlvsym(library, ("verbs_register_driver_" + number).c_str(), ("IBVERBS_PRIVATE_" + number).c_str()) != nullptr)
      abi = static_cast<unsigned>(known);
  }
  const std::string path = path_of(library);
  const std::string text = path + ", rdma-core " + release_of(path);
  if (abi == 0)
    return {Verdict::fail, "libibverbs", text + ", provider ABI none of " + known_abis(),
            "use rdma-core 39 or later, or a uiw that knows this release"};
  return good("libibverbs", text + ", provider ABI " + std::to_string(abi));
}

Finding check_plugin(unsigned abi) {
  const std::string name = "libuiw-rdmav" + std::to_string(abi) + ".so";
  if (abi == 0) return {Verdict::fail, "plugin", "not looked for: the provider ABI is unknown", "see libibverbs above"};
  const std::string path = plugin_library(abi);
  if (path.empty())
    return {Verdict::fail, "plugin", name + " is not in " + listed(plugin_directories()),
            "install uiw again or finish the build"};
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    return {Verdict::fail, "plugin", path + " cannot be loaded: " + dlerror(), "install uiw again or finish the build"};
  return good("plugin", path);
}

Finding check_preload() {
  const std::string path = preload_library();
  if (path.empty())
    return {Verdict::fail, "preload library", "not at " + listed(preload_places()),
            "install uiw again or finish the build"};
  if (path.find_first_of(": ") != std::string::npos)
    return {Verdict::fail, "preload library", path + " has a space or colon in its path, which LD_PRELOAD cannot hold",
            "move uiw elsewhere"};
  return good("preload library", path);
}

Finding check_librdmacm() {
  void* library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {Verdict::warn, "librdmacm", std::string("cannot be loaded: ") + dlerror(),
            "most RDMA programs need it: apt-get install librdmacm1"};
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

std::string usable_directory(const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    struct stat st {};
    if (!place.empty() && stat(place.c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
        access(place.c_str(), W_OK | X_OK) == 0)
      return place;
  }
  return {};
}

Finding check_runtime_directory() {
  const std::string& chosen = provider::settings().values.runtime_dir;
  if (!chosen.empty()) {
    if (usable_directory({chosen}).empty())
      return {Verdict::fail, "runtime directory", chosen + " (UIW_RUNTIME_DIR) is no directory that can be written",
              "create it, or choose another"};
    return good("runtime directory", chosen + " (UIW_RUNTIME_DIR)");
  }
  const char* given = getenv("XDG_RUNTIME_DIR");
  const std::string found = usable_directory({given != nullptr ? given : "", "/dev/shm", "/tmp"});
  if (found.empty())
    return {Verdict::fail, "runtime directory", "neither XDG_RUNTIME_DIR, /dev/shm nor /tmp can be written",
            "set UIW_RUNTIME_DIR to a directory that can"};
  return good("runtime directory", found + " can be written");
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
  Child child;
  if (!child.start({program, address}, {{"LD_PRELOAD", preload_value(preload, getenv("LD_PRELOAD"))}}))
    return {Verdict::fail, kSubject, std::string("cannot be started: ") + std::strerror(errno), "free some memory"};
  const bool ended = child.wait(kSelftestLimit);
  const bool worked = ended && child.succeeded();
  child.stop();
  const std::string said = child.complaint();
  if (worked) return good(kSubject, said);
  if (interrupted() != 0) return {Verdict::fail, kSubject, "interrupted", "run `uiw doctor` again"};
  std::string text = ended ? "it " + ending_of(child.status()) : "no end within 20 s over " + address;
  if (!said.empty()) text += ": " + said;
  return {Verdict::fail, kSubject, text,
          "mend what is wrong above; where nothing is, report this with the output of `uiw doctor`"};
}

}  // namespace

std::string release_of(const std::string& path) {
  const std::size_t last = path.rfind('.');
  const std::size_t before = last == std::string::npos || last == 0 ? last : path.rfind('.', last - 1);
  if (before == std::string::npos || path.find(".so.1.") == std::string::npos) return "of unknown release";
  return path.substr(before + 1);
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
  const std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  std::vector<Finding> findings;
  findings.push_back(check_libibverbs(abi));
  findings.push_back(check_plugin(abi));
  findings.push_back(check_preload());
  findings.push_back(check_librdmacm());
  findings.push_back(check_settings());
  findings.push_back(check_devices(devices));
  findings.push_back(check_runtime_directory());
  findings.push_back(check_limits());
  findings.push_back(check_processors());
  findings.push_back(check_selftest(devices));
  return findings;
}

}  // namespace uiw::tools
