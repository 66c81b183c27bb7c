// SPDX-License-Identifier: MIT
// Makes the files that the kernel has for an adapter with one port, in the kernel's formats (drivers/infiniband/core:
// sysfs.c, uverbs_main.c, ucma.c).
#include "kernel-abi/sysfs/tree_content.h"

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <set>

#include "kernel-abi/interposer/uverbs_node.h"
#include "kernel-abi/sysfs/port_files.h"
#include "provider/version.h"

namespace uiw::kernel_abi {
namespace {

constexpr int kVerbsClassAbi = 6;  // IB_USER_VERBS_ABI_VERSION of the kernel
constexpr const char* kNullDevice = "1:3\n";
constexpr const char* kNullNode = "/dev/null";

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, pattern);
  const int length = std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return std::string(text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text) - 1)));
}

// 64-bit FNV-1a. The hash only makes names and times. It need not resist attacks: only the owner can write to the tree,
// and the content of a tree that is found is compared with the content that it should have.
class Hash {
 public:
  void add(const std::string& text) {
    for (const char octet : text) add_octet(static_cast<unsigned char>(octet));
    add_octet(0);
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_octet(unsigned char octet) { value_ = (value_ ^ octet) * 0x100000001b3U; }
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

std::string guid_line(std::uint64_t guid) {
  return format("%04x:%04x:%04x:%04x\n", static_cast<unsigned>(guid >> 48 & 0xffff),
                static_cast<unsigned>(guid >> 32 & 0xffff), static_cast<unsigned>(guid >> 16 & 0xffff),
                static_cast<unsigned>(guid & 0xffff));
}

bool is_roce(const provider::DeviceInfo& info) { return info.transport == provider::Transport::roce; }

class Builder {
 public:
  void file(const std::string& path, const std::string& content) {
    tree_.entries.push_back({TreeEntry::Kind::file, path, content});
  }
  void link(const std::string& path, const std::string& target) {
    tree_.entries.push_back({TreeEntry::Kind::link, path, target});
  }

  void counters(const std::string& folder, std::span<const PortFile> files) {
    for (const PortFile& file : files)
      tree_.entries.push_back({TreeEntry::Kind::counter, folder + "/" + file.name, "0\n"});
  }

  void port(const std::string& folder, const provider::DeviceInfo& info) {
    file(folder + "/state", port_state(info).line);
    file(folder + "/phys_state", physical_state(info).line);
    file(folder + "/link_layer", "Ethernet\n");
    file(folder + "/lid", "0x0\n");
    file(folder + "/lid_mask_count", "0\n");
    file(folder + "/sm_lid", "0x0\n");
    file(folder + "/sm_sl", "0\n");
    // IBV_PORT_* of verbs.h: CM_SUP, and DEVICE_MGMT_SUP (iWARP) or IP_BASED_GIDS (RoCE).
    file(folder + "/cap_mask", is_roce(info) ? "0x04010000\n" : "0x00090000\n");
    file(folder + "/rate", rate_line(info.speed_mbps));
    file(folder + "/pkeys/0", "0xffff\n");
    for (std::size_t i = 0; i < info.gids.size(); ++i) {
      const std::string index = std::to_string(i);
      file(folder + "/gids/" + index, gid_line(info.gids[i]));
      if (info.gids[i] == provider::kNoGid) continue;  // the kernel's files for an empty index cannot be read either
      file(folder + "/gid_attrs/types/" + index, gid_type_line(info));
      file(folder + "/gid_attrs/ndevs/" + index, info.interface + "\n");
    }
    counters(folder + "/counters", port_counter_files());
    counters(folder + "/hw_counters", hw_counter_files());
    file(folder + "/hw_counters/lifespan", kLifespanLine);
  }

  // The folder `device` stands for the adapter that the port belongs to; net/<interface> in it names the port's
  // interface.
  void parent(const std::string& folder, const NumberedDevice& device) {
    const std::string interface = "/sys/class/net/" + device.info.interface;
    const std::string port = folder + "/net/" + device.info.interface;
    if (device.files.present) {
      link(port, interface);
    } else {
      file(port + "/ifindex", format("%u\n", device.info.ifindex));
      file(port + "/dev_id", "0x0\n");
      file(port + "/dev_port", "0\n");
    }
    for (const std::string& name : device.files.attributes) link(folder + "/" + name, interface + "/device/" + name);
  }

  void device(const NumberedDevice& device) {
    const provider::DeviceInfo& info = device.info;
    const std::size_t first = tree_.entries.size();
    // As in the kernel, class/infiniband only has links to the devices. The path of a device says where the adapter is
    // in the machine, which hwloc reads.
    const std::string& parent_path = device.files.parent;
    const std::string folder =
        "devices/" + (parent_path.empty() ? "virtual" : parent_path) + "/infiniband/" + info.name;
    link("class/infiniband/" + info.name, "../../" + folder);
    file(folder + "/node_type", is_roce(info) ? "1: CA\n" : "4: RNIC\n");
    file(folder + "/node_guid", guid_line(info.guid));
    file(folder + "/sys_image_guid", guid_line(info.guid));
    file(folder + "/node_desc", "uiw on " + info.interface + "\n");
    file(folder + "/fw_ver", format("%s\n", kVersion));
    file(folder + "/hw_rev", "0\n");
    file(folder + "/board_id", "uiw\n");
    file(folder + "/hca_type", "uiw\n");
    file(folder + "/device/modalias", "uiw:" + info.interface + "\n");  // the plugin takes devices with such a modalias
    port(folder + "/ports/1", info);
    parent(folder + "/device", device);

    const std::string verbs = node_name(device.number);
    file("class/infiniband_verbs/" + verbs + "/ibdev", info.name + "\n");
    const dev_t node = node_device(device.number);
    file("class/infiniband_verbs/" + verbs + "/dev", format("%u:%u\n", major(node), minor(node)));
    file("class/infiniband_verbs/" + verbs + "/abi_version", format("%d\n", kUverbsDeviceAbi));
    link("dev/infiniband/" + verbs, kNullNode);

    Hash hash;
    for (std::size_t i = first; i < tree_.entries.size(); ++i) {
      // The files of the port do not count, since the device stays the same when its link or its addresses change.
      if (tree_.entries[i].path.starts_with(folder + "/ports/")) continue;
      hash.add(tree_.entries[i].path);
      hash.add(tree_.entries[i].content);
    }
    // libibverbs only compares the time; the range from 2001 to 2035 has room for 30 bits of the hash.
    tree_.times.push_back({folder, 1'000'000'000 + static_cast<std::int64_t>(hash.value() & 0x3fffffff)});
  }

  Tree take() { return std::move(tree_); }

 private:
  Tree tree_;
};

}  // namespace

std::string node_name(unsigned number) { return "uverbs" + std::to_string(number); }
dev_t node_device(unsigned number) { return uverbs_device(number); }

std::string gid_line(const provider::Gid& gid) {
  std::string line;
  for (std::size_t i = 0; i < gid.size(); i += 2) line += format("%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  return line + "\n";
}

// The kernel has no GID type for iWARP; it shows type 0 for iWARP devices.
const char* gid_type_line(const provider::DeviceInfo& info) { return is_roce(info) ? "RoCE v2\n" : "IB/RoCE v1\n"; }

PortState port_state(const provider::DeviceInfo& info) {
  return info.active ? PortState{4, "4: ACTIVE\n"} : PortState{1, "1: DOWN\n"};
}

// The physical state of the port, as the kernel's software devices report it (rxe_query_port()).
PortState physical_state(const provider::DeviceInfo& info) {
  if (info.active) return {5, "5: LinkUp\n"};
  return info.enabled ? PortState{2, "2: Polling\n"} : PortState{3, "3: Disabled\n"};
}

std::string rate_line(unsigned speed_mbps) {
  struct Rate {
    unsigned up_to_mbps;
    const char* line;
  };
  static constexpr Rate kRates[] = {
      {2500, "2.5 Gb/sec (1X)\n"},       {5000, "5 Gb/sec (1X DDR)\n"},     {10000, "10 Gb/sec (4X)\n"},
      {25000, "25 Gb/sec (1X EDR)\n"},   {40000, "40 Gb/sec (4X QDR)\n"},   {50000, "50 Gb/sec (1X HDR)\n"},
      {100000, "100 Gb/sec (4X EDR)\n"}, {200000, "200 Gb/sec (4X HDR)\n"},
  };
  if (speed_mbps == 0) return "10 Gb/sec (4X)\n";
  for (const Rate& rate : kRates)
    if (speed_mbps <= rate.up_to_mbps) return rate.line;
  return "400 Gb/sec (4X NDR)\n";
}

std::string Tree::hash() const {
  Hash hash;
  for (const TreeEntry& entry : entries) {
    hash.add(entry.kind == TreeEntry::Kind::link ? "l" : "f");
    hash.add(entry.path);
    hash.add(entry.content);
  }
  return format("%016llx", static_cast<unsigned long long>(hash.value()));
}

Tree make_tree(const std::vector<NumberedDevice>& devices, const HostDevices& host) {
  Builder builder;
  builder.file("class/infiniband_verbs/abi_version", format("%d\n", kVerbsClassAbi));
  builder.file("class/misc/rdma_cm/abi_version", format("%d\n", RDMA_USER_CM_ABI_VERSION));
  builder.file("class/misc/rdma_cm/dev", kNullDevice);
  builder.link("dev/infiniband/rdma_cm", kNullNode);

  std::set<std::string> names;
  std::set<std::string> nodes{"rdma_cm"};
  for (const NumberedDevice& device : devices) {
    builder.device(device);
    names.insert(device.info.name);
    nodes.insert(node_name(device.number));
  }
  for (const std::string& name : host.devices)
    if (!names.contains(name)) builder.link("class/infiniband/" + name, "/sys/class/infiniband/" + name);
  for (const std::string& name : host.verbs)
    if (!nodes.contains(name)) builder.link("class/infiniband_verbs/" + name, "/sys/class/infiniband_verbs/" + name);
  for (const std::string& name : host.nodes)
    if (!nodes.contains(name)) builder.link("dev/infiniband/" + name, "/dev/infiniband/" + name);
  return builder.take();
}

}  // namespace uiw::kernel_abi
