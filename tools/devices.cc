// SPDX-License-Identifier: MIT
#include "tools/devices.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernel-abi/interposer/entry.h"
#include "provider/process/device.h"
#include "provider/process/settings.h"
#include "tools/address.h"
#include "tools/table.h"

// Defined in libuiw.so.1.
extern "C" const UiwKernelAbi* uiw_kernel_abi_v8(const UiwHost* host);

namespace uiw::tools {
namespace {

std::string guid_text(std::uint64_t guid) {
  char text[24];
  std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48 & 0xFFFF),
                static_cast<unsigned>(guid >> 32 & 0xFFFF), static_cast<unsigned>(guid >> 16 & 0xFFFF),
                static_cast<unsigned>(guid & 0xFFFF));
  return text;
}

std::string speed_text(unsigned mbps) {
  if (mbps == 0) return "unknown";
  char text[32];
  if (mbps % 1000 == 0)
    std::snprintf(text, sizeof text, "%u Gb/s", mbps / 1000);
  else
    std::snprintf(text, sizeof text, "%u Mb/s", mbps);
  return text;
}

void print_json(const std::vector<provider::DeviceInfo>& devices) {
  std::vector<std::string> rows;
  for (const provider::DeviceInfo& device : devices) {
    std::vector<std::string> gids;
    for (std::size_t i = 0; i < device.gids.size(); ++i)
      gids.push_back(json_object({{"index", json_number(static_cast<double>(i))},
                                  {"gid", json_string(gid_text(device.gids[i]))},
                                  {"address", json_string(address_text(device.gids[i]))}}));
    rows.push_back(json_object({{"name", json_string(device.name)},
                                {"interface", json_string(device.interface)},
                                {"ifindex", json_number(device.ifindex)},
                                {"guid", json_string(guid_text(device.guid))},
                                {"mtu", json_number(device.mtu)},
                                {"speed_mbps", device.speed_mbps == 0 ? "null" : json_number(device.speed_mbps)},
                                {"loopback", json_bool(device.loopback)},
                                {"gids", json_array(gids)}}));
  }
  std::printf("%s\n", json_array(rows).c_str());
}

void print_table(const std::vector<provider::DeviceInfo>& devices) {
  using Row = std::vector<std::string>;
  std::vector<Row> rows{{"DEVICE", "INTERFACE", "GUID", "MTU", "SPEED", "INDEX", "ADDRESS", "GID"}};
  for (const provider::DeviceInfo& device : devices) {
    for (std::size_t i = 0; i < device.gids.size(); ++i) {
      Row row(8);
      if (i == 0)
        row = {device.name,
               device.interface,
               guid_text(device.guid),
               std::to_string(device.mtu),
               speed_text(device.speed_mbps),
               "",
               "",
               ""};
      row[5] = std::to_string(i);
      row[6] = address_text(device.gids[i]);
      row[7] = gid_text(device.gids[i]);
      rows.push_back(row);
    }
  }
  std::fputs(aligned(rows).c_str(), stdout);
}

// Prints the directory that programs under `uiw run` see as /sys, as far as it concerns RDMA, or the reason why there
// is none.
int print_sysfs(const std::string& device) {
  static const UiwHost host = {[](int) { return std::uint64_t{0}; },
                               [](int, std::uint64_t) { return ENOTSUP; },
                               [](int) {},
                               [](int) {},
                               [] {},
                               [] {},
                               nullptr,
                               nullptr,
                               nullptr,
                               nullptr};
  const UiwKernelAbi* const library = uiw_kernel_abi_v8(&host);
  const char* root = library->root(1);
  if (root == nullptr) return 1;
  // To open this folder updates the counters in the files, for a program that reads them without the interposer.
  std::uint64_t object = 0;
  library->open(("class/infiniband/" + device + "/ports").c_str(), O_RDONLY | O_DIRECTORY, &object);
  std::printf("%s\n", root);
  return 0;
}

int list_devices(bool json, bool sysfs) {
  const std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  if (json) print_json(devices);
  if (const std::string& error = provider::settings().error; !error.empty()) {
    std::fprintf(stderr, "uiw devices: %s\n", error.c_str());
    return 1;
  }
  if (devices.empty()) {
    std::fputs(
        "uiw devices: no device: uiw offers one for each network interface that has an IP address; "
        "check `ip address` and the variable UIW_DEVICES\n",
        stderr);
    return 1;
  }
  if (sysfs) return print_sysfs(devices.front().name);
  if (!json) print_table(devices);
  return 0;
}

}  // namespace

Action add_devices(CLI::App& command) {
  auto json = std::make_shared<bool>(false);
  auto sysfs = std::make_shared<bool>(false);
  CLI::Option* option = command.add_flag("--json", *json, "Print JSON");
  command.add_flag("--sysfs", *sysfs, "Print the directory that stands for /sys")->excludes(option);
  return [json, sysfs] { return list_devices(*json, *sysfs); };
}

}  // namespace uiw::tools
