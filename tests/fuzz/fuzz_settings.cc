// SPDX-License-Identifier: MIT
// What a user or a program says in words: the value of a setting, and paths below /sys/class and /dev. The first octet
// chooses the setting; the rest is the text.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernel-abi/interposer/path_rewrite.h"
#include "kernel-abi/sysfs/port_files.h"
#include "provider/process/settings.h"

using namespace uiw;

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

void rewrite(const std::string& text) {
  const kernel_abi::RdmaPath path = kernel_abi::parse_rdma_path(text.c_str());
  if (path.area == kernel_abi::RdmaArea::none) return;
  const char* const end = text.c_str() + std::strlen(text.c_str());
  check(path.rest >= text.c_str() && path.rest <= end);
  std::string joined(300, '\x7f');
  if (kernel_abi::join_rdma_path("/root", path, joined.data(), 256)) {
    check(std::strlen(joined.c_str()) < 256 && std::strncmp(joined.c_str(), "/root/", 6) == 0);
  }
  check(joined.find_first_not_of('\x7f', 256) == std::string::npos);
  std::string name(100, '\x7f');
  if (kernel_abi::device_node_name(path, name.data(), 64)) check(std::strlen(name.c_str()) < 64);
  check(name.find_first_not_of('\x7f', 64) == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto table = provider::setting_table();
  const std::string variable = table[data[0] % table.size()].variable;
  const std::string complaint = provider::check_setting(variable, text);
  check(complaint.empty() || complaint.find(variable) != std::string::npos);
  rewrite(text);
  if (const auto path = kernel_abi::parse_port_path(text)) check(path->device.size() < text.size());
  return 0;
}
