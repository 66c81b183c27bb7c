// SPDX-License-Identifier: MIT
// All settings of uiw. Each is an environment variable, for which `uiw run` has an option. The environment is read and
// checked once, when a setting is first needed. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "provider/export.h"
#include "provider/process/faults/fault_spec.h"

namespace uiw::provider {

enum class CrcMode { automatic, on, off };
enum class CompletionMode { automatic, local, remote };

// Which side may send first on an rdma_cm connection whose initiator asks for no peer-to-peer mode (RFC 6581 section
// 9.2). RFC 5044 section 7.1.2 allows only the initiator, but responders of other implementations also send first. With
// `initiator`, programs in which the server sends first would wait for ever.
enum class FirstMessage { any, initiator };

// What `uiw run --check` looks for: faults; also what not every adapter has; or faults, in a program whose messages are
// placed in an order that it may not count on.
enum class Check { off, on, all, order };

// How much is logged (provider/process/log.h). Each level includes those before it.
enum class LogLevel { none, error, info };

// Whether two processes of one host may share memory for their connections.
enum class SameHost { automatic, tcp };

// The kind of adapter that programs see. Connections are iWARP on the wire in both cases.
enum class Transport { iwarp, roce };

// An interface that is offered as a device. An interface may be offered several times, with different device names.
struct OfferedInterface {
  std::string interface;  // "eth0"
  std::string device;     // "mlx5_0"; empty: kDevicePrefix and the name of the interface
};

struct Settings {
  CrcMode crc = CrcMode::automatic;  // UIW_CRC: MPA CRC32c; automatic: off if both ends are on this host
  bool markers = false;              // UIW_MARKERS: this side asks for markers in what it receives
  // UIW_COMPLETION: when Sends and Writes complete; automatic: remote for connections without rdma_cm and in the RoCE
  // view, else local
  CompletionMode completion = CompletionMode::automatic;
  std::vector<OfferedInterface> devices;  // UIW_DEVICES: interfaces that get a device, comma separated; empty: all
  unsigned mulpdu = 0;  // UIW_MULPDU: the largest ULPDU sent, in octets; 0: derived from the TCP segment size
  unsigned startup_timeout_ms = 10000;             // UIW_STARTUP_TIMEOUT: the deadline of a connection set-up
  unsigned mpa_revision = 2;                       // UIW_MPA_REVISION: revision of the first MPA request
  FirstMessage first_message = FirstMessage::any;  // UIW_FIRST_MESSAGE
  struct PortRange {
    std::uint16_t first = 0, last = 0;       // 0: any port
  } port_range;                              // UIW_PORT_RANGE: TCP ports that listen for connections without rdma_cm
  std::uint16_t multicast_port = 14791;      // UIW_MULTICAST_PORT: the UDP port of multicast datagrams
  SameHost same_host = SameHost::automatic;  // UIW_SAME_HOST: what connections within a host use
  unsigned progress_threads = 0;  // UIW_PROGRESS_THREADS: the most for each context; 0: by the number of processors
  unsigned mtu = 0;               // UIW_MTU: the active MTU, in octets; 0: the largest that fits the interface
  Transport transport = Transport::iwarp;  // UIW_TRANSPORT: the kind of adapter that programs see
  std::string runtime_dir;  // UIW_RUNTIME_DIR: the directory of the sysfs tree; empty: chosen automatically
  std::string log;          // UIW_LOG: an absolute path, kLogToStandardError, or empty: nothing is logged
  // UIW_LOG_LEVEL; LogLevel::none if `log` is empty
  LogLevel log_level = LogLevel::none;
  FaultPlan faults;            // UIW_FAULT: injected faults
  Check check = Check::off;    // UIW_CHECK: what is reported, and done, to find misuse of verbs (provider/check/)
  unsigned check_exit = 0;     // UIW_CHECK_EXIT: the exit status of a process with faults; 0: that of the program
  unsigned check_seed = 1;     // UIW_CHECK_SEED: what the order of Check::order depends on
  std::string check_report;    // UIW_CHECK_REPORT: an absolute path, or empty
  std::string check_suppress;  // UIW_CHECK_SUPPRESS: an absolute path, or empty
  std::string capture;         // UIW_CAPTURE: an absolute path, or empty: nothing is captured
  bool messages = false;       // UIW_MESSAGES: messages about what was not available (process/notice.h)
};

inline constexpr char kLogToStandardError[] = "-";

// The variable that `uiw run` sets to "on" unless the user has set it.
inline constexpr char kMessages[] = "UIW_MESSAGES";

// One row for each setting, as `uiw run --help` and uiw(7) have it.
struct SettingInfo {
  const char* variable;  // "UIW_CRC"
  const char* option;    // "--crc"
  const char* values;    // "auto|on|off"
  const char* initial;   // "auto"
  const char* help;      // one line
};
UIW_API std::span<const SettingInfo> setting_table();

// Checks a value without applying it. Returns an empty string if it is valid, otherwise a message for people with the
// variable, the value and what would be accepted, or that there is no such setting.
UIW_API std::string check_setting(const std::string& variable, const std::string& value);

// The settings of this process, read from the environment once. `error` is empty, or a message about the first invalid
// value or unknown UIW_* variable. If there is an error, the process has no devices. Thread-safe.
struct LoadedSettings {
  Settings values;
  std::string error;
};
UIW_API const LoadedSettings& settings();

// The prefix of device names, for example uiw_eth0 for eth0, unless UIW_DEVICES gives another name.
inline constexpr char kDevicePrefix[] = "uiw_";
std::string device_name(const OfferedInterface& offered);
// Whether the name is one that uiw gives to its devices: it has the prefix, or UIW_DEVICES lists it.
bool is_own_device(std::string_view name);

// Whether Sends and Writes of a connection complete once the peer has placed them (the remote rule). `manual`: the
// connection is made without rdma_cm.
bool remote_completion(bool manual);

}  // namespace uiw::provider
