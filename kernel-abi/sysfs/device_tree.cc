// SPDX-License-Identifier: MIT
// Makes the sysfs tree for the devices that provider/process/device.h lists. A device keeps its uverbs number as long
// as the process lives.
#include "kernel-abi/sysfs/device_tree.h"

#include <dirent.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/file_limit.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/system_calls.h"
#include "base/text_file.h"
#include "kernel-abi/sysfs/port_files.h"
#include "kernel-abi/sysfs/sysfs_tree.h"
#include "kernel-abi/sysfs/tree_content.h"
#include "provider/inventory/processes.h"
#include "provider/process/device.h"
#include "provider/process/notice.h"
#include "provider/process/settings.h"

namespace uiw::kernel_abi {
namespace {

struct State {
  TableMutex mutex;
  bool scanned UIW_GUARDED_BY(mutex) = false;
  uid_t scanned_as UIW_GUARDED_BY(mutex) = 0;
  const char* root UIW_GUARDED_BY(mutex) = nullptr;
  // Every root that device_tree_root() has returned, since its callers keep the pointers.
  std::set<std::string> roots UIW_GUARDED_BY(mutex);
  std::map<std::string, unsigned> numbers UIW_GUARDED_BY(mutex);
  std::vector<NumberedDevice> devices UIW_GUARDED_BY(mutex);  // the devices in the tree at `root`
  std::set<std::string> complaints UIW_GUARDED_BY(mutex);
};

State& state() {
  static Immortal<State> instance;
  return *instance;
}

std::vector<std::string> list_folder(const char* path, const char* prefix) {
  std::vector<std::string> names;
  const DescriptorChange change;  // covers the descriptor from opendir() to closedir()
  if (DIR* stream = ::opendir(path)) {
    while (const dirent* entry = ::readdir(stream)) {
      const std::string name = entry->d_name;
      if (name.front() != '.' && name.starts_with(prefix)) names.push_back(name);
    }
    ::closedir(stream);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The interposer does not rewrite paths inside this library, so these are the directories of the host.
HostDevices look_at_host() {
  return {list_folder("/sys/class/infiniband", ""), list_folder("/sys/class/infiniband_verbs", "uverbs"),
          list_folder("/dev/infiniband", "")};
}

InterfaceFiles files_of(const provider::DeviceInfo& device) {
  const std::string folder = "/sys/class/net/" + device.interface;
  InterfaceFiles files;
  unsigned index = 0;
  const TextFile file = open_text_file((folder + "/ifindex").c_str());
  files.present = file != nullptr && std::fscanf(file.get(), "%u", &index) == 1 && index == device.ifindex;
  if (!files.present) return files;
  std::error_code error;
  const std::string adapter = std::filesystem::canonical(folder + "/device", error).string();
  constexpr std::string_view kDevices = "/sys/devices/";
  if (!error && adapter.starts_with(kDevices)) files.parent = adapter.substr(kDevices.size());
  for (const char* name : kParentAttributes) {
    if (::access((folder + "/device/" + name).c_str(), R_OK) == 0) files.attributes.emplace_back(name);
  }
  return files;
}

std::vector<NumberedDevice> number_devices(const std::vector<provider::DeviceInfo>& devices, const HostDevices& host,
                                           std::map<std::string, unsigned>& numbers) {
  std::set<std::string> taken(host.verbs.begin(), host.verbs.end());
  taken.insert(host.nodes.begin(), host.nodes.end());
  for (const auto& [name, number] : numbers) taken.insert(node_name(number));
  std::vector<NumberedDevice> result;
  for (const provider::DeviceInfo& device : devices) {
    auto known = numbers.find(device.name);
    if (known == numbers.end()) {
      unsigned number = 0;
      while (taken.contains(node_name(number))) ++number;
      taken.insert(node_name(number));
      known = numbers.emplace(device.name, number).first;
    }
    result.push_back({device, known->second, files_of(device)});
  }
  return result;
}

void complain(State& s, const std::string& message) UIW_REQUIRES(s.mutex) {
  if (!s.complaints.insert(message).second) return;
  const std::string line = "uiw: " + message + "\n";
  provider::write_to_standard_error(line.data(), line.size());
}

}  // namespace

const char* device_tree_root(bool rescan) {
  State& s = state();
  const uid_t user = ::geteuid();
  if (!rescan) {
    const LockGuard lock(s.mutex);
    if (s.scanned && s.scanned_as == user) return s.root;
  }

  // These calls ask the kernel for the interfaces, which may take long, so the lock is not held yet.
  const provider::LoadedSettings& settings = provider::settings();
  std::vector<provider::DeviceInfo> devices;
  if (settings.error.empty()) devices = provider::enumerate_devices();
  const HostDevices host = devices.empty() ? HostDevices() : look_at_host();

  const LockGuard lock(s.mutex);
  // If one of the next steps throws std::bad_alloc, the former devices and root stay.
  const char* root = nullptr;
  std::vector<NumberedDevice> numbered;
  if (!settings.error.empty()) complain(s, settings.error);
  if (!devices.empty()) {
    numbered = number_devices(devices, host, s.numbers);
    const PlacedTree placed = place_tree(make_tree(numbered, host), tree_bases(settings.values.runtime_dir));
    if (placed.root.empty()) {
      complain(s, placed.error);
      numbered.clear();
    } else {
      root = s.roots.insert(placed.root).first->c_str();
    }
  }
  s.scanned = true;
  s.scanned_as = user;
  s.devices = std::move(numbered);
  s.root = root;
  return root;
}

std::vector<NumberedDevice> numbered_devices(bool rescan) {
  device_tree_root(rescan);
  State& s = state();
  const LockGuard lock(s.mutex);
  return s.devices;
}

std::optional<unsigned> own_verbs_node(const char* name) {
  State& s = state();
  const LockGuard lock(s.mutex);
  for (const auto& [device, number] : s.numbers)
    if (node_name(number) == name) return number;
  return std::nullopt;
}

namespace {

std::string line_of(const PortFile& file, const provider::PortCounts& counts) {
  return std::to_string(file.value(counts)) + "\n";
}

// The counter files of a device, with their current values.
std::vector<TreeEntry> counters_of(const std::string& device, const provider::PortCounts& counts) {
  const std::string port = "class/infiniband/" + device + "/ports/1/";
  std::vector<TreeEntry> entries;
  for (const PortFile& file : port_counter_files())
    entries.push_back({TreeEntry::Kind::counter, port + "counters/" + file.name, line_of(file, counts)});
  for (const PortFile& file : hw_counter_files())
    entries.push_back({TreeEntry::Kind::counter, port + "hw_counters/" + file.name, line_of(file, counts)});
  return entries;
}

// Returns a descriptor from which this text can be read as from a file, or a negative errno.
int memory_with(const std::string& text) {
  if (!file_may_have(text.size())) return -EFBIG;
  const int made = ::memfd_create("uiw-counter", MFD_CLOEXEC);
  if (made < 0) return -errno;
  if (::write(made, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    ::close(made);
    return -EIO;
  }
  ::lseek(made, 0, SEEK_SET);
  return made;
}

}  // namespace

void refresh_counters() {
  const char* const root = device_tree_root(false);
  if (root == nullptr) return;
  const std::vector<NumberedDevice> devices = numbered_devices(false);
  const std::vector<provider::ProcessInventory> processes = provider::ask_processes();
  std::vector<TreeEntry> entries;
  for (const NumberedDevice& device : devices) {
    for (TreeEntry& entry : counters_of(device.info.name, counts_of(processes, device.info.name)))
      entries.push_back(std::move(entry));
  }
  rewrite_counters(root, entries);
}

namespace {

// Returns an epoll descriptor, whose read fails with EINVAL, like a read of the kernel's file for an empty GID index;
// or a negative errno.
int unreadable() {
  const int made = sys::epoll_create1(EPOLL_CLOEXEC);
  return made < 0 ? -errno : made;
}

// Opens the current content of a file of the port that is not a counter.
int open_live(const PortPath& path, const provider::DeviceInfo& now) {
  using Kind = PortPath::Kind;
  if (path.kind == Kind::state) return memory_with(port_state(now).line);
  if (path.kind == Kind::physical_state) return memory_with(physical_state(now).line);
  if (path.index >= now.gids.size()) return -ENXIO;
  const provider::Gid& gid = now.gids[path.index];
  if (path.kind == Kind::gid) return memory_with(gid_line(gid));
  if (gid == provider::kNoGid) return unreadable();
  return memory_with(path.kind == Kind::gid_type ? gid_type_line(now) : now.interface + "\n");
}

}  // namespace

int open_port_file(const char* path) {
  const auto found = parse_port_path(path);
  if (!found) return -ENXIO;
  const std::vector<NumberedDevice> devices = numbered_devices(false);
  const auto device = std::find_if(devices.begin(), devices.end(),
                                   [&](const NumberedDevice& one) { return one.info.name == found->device; });
  if (device == devices.end()) return -ENXIO;
  if (found->kind == PortPath::Kind::folder) {
    refresh_counters();
    return -ENXIO;
  }
  if (found->kind == PortPath::Kind::counter)
    return memory_with(line_of(*found->file, counts_of(provider::ask_processes(), found->device)));
  provider::DeviceInfo now = device->info;
  return provider::look_again(now) ? open_live(*found, now) : -ENXIO;
}

void lock_device_tree() UIW_ACQUIRE(state().mutex) { state().mutex.lock(); }
void unlock_device_tree() UIW_RELEASE(state().mutex) { state().mutex.unlock(); }

}  // namespace uiw::kernel_abi
