// SPDX-License-Identifier: MIT
// The counters of a device's port: the names of the files in ports/1/counters and ports/1/hw_counters, and their
// values; and which paths of the tree have content that changes. Functions without side effects.
//
// The folder `counters` has the files of every adapter (drivers/infiniband/core/sysfs.c). A file of hw_counters has the
// name that the kernel's software devices or irdma give to the same count; the other counts of uiw have names of their
// own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "provider/inventory/inventory.h"

namespace uiw::kernel_abi {

struct PortFile {
  const char* name;
  std::uint64_t (*value)(const provider::PortCounts& counts);
};
std::span<const PortFile> port_counter_files();
std::span<const PortFile> hw_counter_files();
// The content of the file `lifespan`: how old values of hw_counters may be, in milliseconds. It is 0, since the values
// are read when a file is opened.
constexpr const char* kLifespanLine = "0\n";

// The counts of the port of this device, added up over these processes.
provider::PortCounts counts_of(const std::vector<provider::ProcessInventory>& processes, std::string_view device);

// A path in the tree whose content changes: a file of a port, or a folder that has counters in it or below.
struct PortPath {
  enum class Kind { folder, counter, state, physical_state, gid, gid_type, gid_interface };
  std::string device;
  Kind kind = Kind::folder;
  const PortFile* file = nullptr;  // for Kind::counter
  unsigned index = 0;              // for the three kinds that begin with `gid`
};
// Recognises class/infiniband/DEVICE/ports and the paths below it, also with doubled slashes and "." components.
// Nullopt for other paths, and for files that do not change.
std::optional<PortPath> parse_port_path(std::string_view path);

}  // namespace uiw::kernel_abi
