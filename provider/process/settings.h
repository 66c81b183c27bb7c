// SPDX-License-Identifier: MIT
// Every setting of uiw, in one place: `uiw run` offers each as an option, a program run without it reads the
// environment variable. Values are checked once, when the first RDMA path is touched.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "provider/export.h"

namespace uiw::provider {

enum class CrcMode { automatic, on, off };
enum class CompletionMode { automatic, local, remote };

// How devices present themselves to programs; the wire is iWARP's in either view.
enum class Transport { iwarp, roce };

struct Settings {
  CrcMode crc = CrcMode::automatic;  // UIW_CRC: MPA CRC32c; automatic is off where both ends are this host
  // UIW_COMPLETION: when Sends and Writes complete; automatic is local for rdma_cm, remote for manual connections
  CompletionMode completion = CompletionMode::automatic;
  std::vector<std::string> devices;     // UIW_DEVICES: interfaces to offer, comma separated; empty is all
  unsigned mulpdu = 0;                  // UIW_MULPDU: largest ULPDU sent, octets; 0 follows the TCP segment size
  unsigned startup_timeout_ms = 10000;  // UIW_STARTUP_TIMEOUT: deadline of a connection set-up
  unsigned mpa_revision = 2;            // UIW_MPA_REVISION: revision of the first MPA request
  struct PortRange {
    std::uint16_t first = 0, last = 0;     // 0: any
  } port_range;                            // UIW_PORT_RANGE: where manual connections are listened for
  Transport transport = Transport::iwarp;  // UIW_TRANSPORT: the kind of adapter that programs see
  std::string runtime_dir;                 // UIW_RUNTIME_DIR: where the sysfs tree is put; empty chooses
  bool messages = false;                   // UIW_MESSAGES: say what could not be had (process/notice.h)
};

// What `uiw run` turns on, where nobody has set it.
inline constexpr char kMessages[] = "UIW_MESSAGES";

// One row a setting: what `uiw run --help` and the README print.
struct SettingInfo {
  const char* variable;  // "UIW_CRC"
  const char* option;    // "--crc"
  const char* values;    // "auto|on|off"
  const char* initial;   // "auto"
  const char* help;      // one line
};
UIW_API std::span<const SettingInfo> setting_table();

// Checks one value without applying it: empty when it is good, else a message for people that names the
// variable, the value and what would be accepted.
UIW_API std::string check_setting(const std::string& variable, const std::string& value);

// The settings of this process, read from the environment once. `error` is empty, or the message for people
// about the first bad value or unknown UIW_* variable; then no device is offered. Thread-safe.
struct LoadedSettings {
  Settings values;
  std::string error;
};
UIW_API const LoadedSettings& settings();

// Do Sends and Writes of a connection complete by the remote rule? `manual`: it is none of rdma_cm's.
bool remote_completion(bool manual);

}  // namespace uiw::provider
