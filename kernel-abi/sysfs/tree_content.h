// SPDX-License-Identifier: MIT
// What do sysfs and /dev show of RDMA devices? Pure: devices in, names and contents out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "provider/process/device.h"

namespace uiw::kernel_abi {

// A file with its content, or a symbolic link with its target. Paths are relative to the tree.
struct TreeEntry {
  enum class Kind { file, link };
  Kind kind;
  std::string path;
  std::string content;
  bool operator==(const TreeEntry&) const = default;
};

// A directory whose time of change is fixed, because libibverbs tells devices apart by it: as long as a
// device stays the same, so does the time.
struct TreeTime {
  std::string path;
  std::int64_t seconds;
};

struct Tree {
  std::vector<TreeEntry> entries;
  std::vector<TreeTime> times;

  // Names the content; equal trees have equal hashes.
  std::string hash() const;
};

// One of our devices and the number N of its uverbsN.
struct NumberedDevice {
  provider::DeviceInfo info;
  unsigned number;
};

// What the host has of its own: the entries of the real directories.
struct HostDevices {
  std::vector<std::string> devices;  // /sys/class/infiniband
  std::vector<std::string> verbs;    // /sys/class/infiniband_verbs, the uverbsN only
  std::vector<std::string> nodes;    // /dev/infiniband
};

// Ours first; an entry of the host with the same name is hidden.
Tree make_tree(const std::vector<NumberedDevice>& devices, const HostDevices& host);

// The `rate` file's line for a link of this speed, in the kernel's words.
std::string rate_line(unsigned speed_mbps);

}  // namespace uiw::kernel_abi
