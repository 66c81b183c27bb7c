// SPDX-License-Identifier: MIT
// The content of sysfs and /dev for RDMA devices. The functions have no side effects: they make paths and contents from
// a list of devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "provider/process/device.h"

namespace uiw::kernel_abi {

// A file with its content, a symbolic link with its target, or a counter file with its initial content. Paths are
// relative to the root of the tree.
struct TreeEntry {
  enum class Kind { file, link, counter };
  Kind kind;
  std::string path;
  std::string content;
  bool operator==(const TreeEntry&) const = default;
};

// A directory with a fixed modification time. libibverbs uses the time to recognise a device, so the time stays the
// same as long as the device does.
struct TreeTime {
  std::string path;
  std::int64_t seconds;
};

struct Tree {
  std::vector<TreeEntry> entries;
  std::vector<TreeTime> times;

  // A name for the content of the tree; equal trees have equal hashes.
  std::string hash() const;
};

// What the sysfs of this process says of a device's interface: nothing if sysfs was mounted in another network
// namespace.
struct InterfaceFiles {
  std::string parent;                   // path of the interface's adapter below /sys/devices; empty if there is none
  bool present = false;                 // /sys/class/net/<interface> exists and has the ifindex of the interface
  std::vector<std::string> attributes;  // the files of kParentAttributes in .../<interface>/device
};
// The sysfs attributes that a device takes from the adapter of its interface: those that say where the adapter is in
// the machine. With attributes that identify the adapter (`modalias`), other providers of libibverbs would claim the
// device.
constexpr const char* kParentAttributes[] = {"local_cpulist", "local_cpus", "numa_node", "resource"};

// A device of uiw and the number N of its uverbsN.
struct NumberedDevice {
  provider::DeviceInfo info;
  unsigned number;
  InterfaceFiles files = {};
};

// The name and the device number of a device's node in /dev/infiniband.
std::string node_name(unsigned number);
dev_t node_device(unsigned number);
constexpr int kUverbsDeviceAbi = 1;  // abi_version of uverbsN, for which the plugin registers

// The host's own RDMA devices: the entries of the real directories.
struct HostDevices {
  std::vector<std::string> devices;  // /sys/class/infiniband
  std::vector<std::string> verbs;    // /sys/class/infiniband_verbs, the uverbsN only
  std::vector<std::string> nodes;    // /dev/infiniband
};

// The devices of uiw come first; an entry of the host with the same name is hidden.
Tree make_tree(const std::vector<NumberedDevice>& devices, const HostDevices& host);

// The contents of a port's `state` and `phys_state`, as numbers (enum ib_port_state, ib_port_phys_state) and as lines.
struct PortState {
  std::uint8_t number;
  const char* line;
};
PortState port_state(const provider::DeviceInfo& info);
PortState physical_state(const provider::DeviceInfo& info);

// The line of a GID's file; all zero for an empty index.
std::string gid_line(const provider::Gid& gid);
// The line of the file with the type of a GID.
const char* gid_type_line(const provider::DeviceInfo& info);

// The line of the `rate` file for a link of this speed, in the kernel's format.
std::string rate_line(unsigned speed_mbps);

}  // namespace uiw::kernel_abi
