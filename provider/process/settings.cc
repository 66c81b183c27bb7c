// SPDX-License-Identifier: MIT
#include "provider/process/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "mpa/mpa_format.h"

namespace uiw::provider {

namespace {

struct Setting {
  SettingInfo info;
  bool (*apply)(const std::string& value, Settings& settings);  // false: the value is invalid
  std::string (*why)(const std::string& value) = nullptr;       // null, or says what is wrong with an invalid value
};

bool number(const std::string& text, unsigned least, unsigned most, unsigned& value) {
  unsigned parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc{} || end != text.data() + text.size() || parsed < least || parsed > most) return false;
  value = parsed;
  return true;
}

template <typename Choice>
bool choose(const std::string& value, std::initializer_list<std::pair<std::string_view, Choice>> from, Choice& into) {
  const auto found = std::find_if(from.begin(), from.end(), [&](const auto& one) { return one.first == value; });
  if (found == from.end()) return false;
  into = found->second;
  return true;
}

bool apply_crc(const std::string& value, Settings& settings) {
  return choose(value, {{"auto", CrcMode::automatic}, {"on", CrcMode::on}, {"off", CrcMode::off}}, settings.crc);
}

bool apply_markers(const std::string& value, Settings& settings) {
  return choose(value, {{"off", false}, {"on", true}}, settings.markers);
}

bool apply_completion(const std::string& value, Settings& settings) {
  using enum CompletionMode;
  return choose(value, {{"auto", automatic}, {"local", local}, {"remote", remote}}, settings.completion);
}

// Whether a device may have this name, which becomes a file name below /sys/class/infiniband. libibverbs would give a
// device whose name begins with "rxe" to the rxe provider, which recognizes its devices by name.
bool is_device_name(const std::string& name) {
  constexpr std::size_t kMost = 63;  // IBV_SYSFS_NAME_MAX with its null octet is 64
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !name.empty() && name.size() <= kMost && name.front() != '.' &&
         name.find_first_not_of(kLetters) == name.npos && !name.starts_with("rxe");
}

// True if the names of all devices are different.
bool names_differ(const std::vector<OfferedInterface>& offered) {
  std::vector<std::string> names;
  names.reserve(offered.size());
  for (const OfferedInterface& one : offered) names.push_back(device_name(one));
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

bool apply_devices(const std::string& value, Settings& settings) {
  settings.devices.clear();
  std::size_t start = 0;
  while (start <= value.size() && !value.empty()) {
    const std::size_t comma = std::min(value.find(',', start), value.size());
    const std::string one = value.substr(start, comma - start);
    const std::size_t equals = std::min(one.find('='), one.size());
    if (equals == 0) return false;
    OfferedInterface offered{one.substr(0, equals), equals < one.size() ? one.substr(equals + 1) : ""};
    if (equals < one.size() && !is_device_name(offered.device)) return false;
    settings.devices.push_back(std::move(offered));
    start = comma + 1;
  }
  return names_differ(settings.devices);
}

bool apply_mulpdu(const std::string& value, Settings& settings) {
  return value == "0" ? (settings.mulpdu = 0, true) : number(value, mpa::kMinMulpdu, mpa::kMaxMulpdu, settings.mulpdu);
}

bool apply_timeout(const std::string& value, Settings& settings) {
  return number(value, 100, 600'000, settings.startup_timeout_ms);
}

bool apply_revision(const std::string& value, Settings& settings) { return number(value, 1, 2, settings.mpa_revision); }

bool apply_first_message(const std::string& value, Settings& settings) {
  return choose(value, {{"any", FirstMessage::any}, {"initiator", FirstMessage::initiator}}, settings.first_message);
}

bool apply_port_range(const std::string& value, Settings& settings) {
  if (value.empty()) return settings.port_range = {}, true;
  const std::size_t dash = value.find('-');
  unsigned first = 0, last = 0;
  if (dash == std::string::npos || !number(value.substr(0, dash), 1024, 65534, first) ||
      !number(value.substr(dash + 1), first, 65535, last)) {
    return false;
  }
  settings.port_range = {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(last)};
  return true;
}

bool apply_multicast_port(const std::string& value, Settings& settings) {
  unsigned port = 0;
  if (!number(value, 1024, 65535, port)) return false;
  settings.multicast_port = static_cast<std::uint16_t>(port);
  return true;
}

bool apply_same_host(const std::string& value, Settings& settings) {
  return choose(value, {{"auto", SameHost::automatic}, {"tcp", SameHost::tcp}}, settings.same_host);
}

bool apply_progress_threads(const std::string& value, Settings& settings) {
  return value == "auto" ? (settings.progress_threads = 0, true) : number(value, 1, 64, settings.progress_threads);
}

bool apply_mtu(const std::string& value, Settings& settings) {
  return choose(value, {{"0", 0U}, {"256", 256U}, {"512", 512U}, {"1024", 1024U}, {"2048", 2048U}, {"4096", 4096U}},
                settings.mtu);
}

bool apply_transport(const std::string& value, Settings& settings) {
  return choose(value, {{"iwarp", Transport::iwarp}, {"roce", Transport::roce}}, settings.transport);
}

bool apply_runtime_dir(const std::string& value, Settings& settings) {
  if (!value.empty() && value.front() != '/') return false;
  settings.runtime_dir = value;
  return true;
}

// Makes a relative path absolute, since the program may change its directory later. Returns false if the current
// directory cannot be determined.
bool make_absolute(std::string& path) {
  if (path.empty() || path.front() == '/') return true;
  std::error_code error;
  path = (std::filesystem::current_path(error) / path).string();
  return !error;
}

bool apply_log(const std::string& value, Settings& settings) {
  settings.log = value;
  return value == kLogToStandardError || make_absolute(settings.log);
}

bool apply_capture(const std::string& value, Settings& settings) {
  settings.capture = value;
  return make_absolute(settings.capture);
}

bool apply_check(const std::string& value, Settings& settings) {
  return choose(value, {{"off", Check::off}, {"on", Check::on}, {"all", Check::all}, {"order", Check::order}},
                settings.check);
}

bool apply_check_exit(const std::string& value, Settings& settings) {
  return number(value, 0, 255, settings.check_exit);
}

bool apply_check_seed(const std::string& value, Settings& settings) {
  return number(value, 1, 1'000'000'000, settings.check_seed);
}

bool apply_check_report(const std::string& value, Settings& settings) {
  settings.check_report = value;
  return make_absolute(settings.check_report);
}

bool apply_check_suppress(const std::string& value, Settings& settings) {
  settings.check_suppress = value;
  return make_absolute(settings.check_suppress);
}

bool apply_fault(const std::string& value, Settings& settings) { return parse_faults(value, settings.faults).empty(); }

std::string why_no_fault(const std::string& value) {
  FaultPlan scratch;
  return parse_faults(value, scratch);
}

bool apply_log_level(const std::string& value, Settings& settings) {
  return choose(value, {{"error", LogLevel::error}, {"info", LogLevel::info}}, settings.log_level);
}

bool apply_messages(const std::string& value, Settings& settings) {
  return choose(value, {{"", false}, {"off", false}, {"on", true}}, settings.messages);
}

constexpr std::array kSettings = {
    Setting{{"UIW_CRC", "--crc", "auto|on|off", "auto",
             "MPA CRC32c: auto is off where both ends are this host, on elsewhere"},
            apply_crc},
    Setting{{"UIW_MARKERS", "--markers", "off|on", "off",
             "whether this end asks its peers for MPA markers (RFC 5044 section 4.3), which keeps connections on TCP"},
            apply_markers},
    Setting{{"UIW_COMPLETION", "--completion", "auto|local|remote", "auto",
             "Sends and Writes complete once TCP has them (local) or the peer has placed them (remote); auto is remote "
             "for connections without rdma_cm and with --transport roce, else local"},
            apply_completion},
    Setting{
        {"UIW_DEVICES", "--devices", "IFACE[=NAME][,...]", "",
         "network interfaces to offer as devices, by a name of your own where one is given; empty offers all that have "
         "an address"},
        apply_devices},
    Setting{{"UIW_MULPDU", "--mulpdu", "0|128..64768", "0",
             "largest ULPDU sent, in octets; 0 follows the TCP segment size and what the peer takes"},
            apply_mulpdu},
    Setting{{"UIW_STARTUP_TIMEOUT", "--startup-timeout", "100..600000", "10000",
             "deadline of a connection set-up, in milliseconds"},
            apply_timeout},
    Setting{{"UIW_MPA_REVISION", "--mpa-revision", "1|2", "2", "revision of the first MPA request"}, apply_revision},
    Setting{
        {"UIW_FIRST_MESSAGE", "--first-message", "any|initiator", "any",
         "the side that may send first where the initiator asks for no peer-to-peer mode: any, soon after the reply "
         "has arrived, or the initiator alone (RFC 5044 section 7.1.2)"},
        apply_first_message},
    Setting{
        {"UIW_PORT_RANGE", "--port-range", "FIRST-LAST, from 1024 to 65535, FIRST below 65535", "",
         "TCP ports for connections made without rdma_cm, one for each 256 QPs of a process; empty takes any free one"},
        apply_port_range},
    Setting{{"UIW_MULTICAST_PORT", "--multicast-port", "1024..65535", "14791",
             "UDP port of datagrams to multicast groups, the same on all hosts"},
            apply_multicast_port},
    Setting{{"UIW_SAME_HOST", "--same-host", "auto|tcp", "auto",
             "connections between two processes of one user on this host go through shared memory (auto) or TCP"},
            apply_same_host},
    Setting{{"UIW_PROGRESS_THREADS", "--progress-threads", "auto|1..64", "auto",
             "largest number of progress threads for each opened device; auto: 1, with 4 processors or more half their "
             "number, up to 8"},
            apply_progress_threads},
    Setting{{"UIW_MTU", "--mtu", "0|256|512|1024|2048|4096", "0",
             "active MTU of the devices, in octets, which longer datagrams exceed; 0 follows the interface's MTU"},
            apply_mtu},
    Setting{{"UIW_TRANSPORT", "--transport", "iwarp|roce", "iwarp",
             "the kind of adapter that programs see: an RNIC, or one for RoCE v2; connections are iWARP in both"},
            apply_transport},
    Setting{{"UIW_RUNTIME_DIR", "--runtime-dir", "an absolute path", "",
             "where the small sysfs tree is put; empty takes XDG_RUNTIME_DIR, /dev/shm or /tmp"},
            apply_runtime_dir},
    Setting{{"UIW_LOG", "--log", "FILE or -", "",
             "a line for each event of devices, connections and queue pairs, appended to this file, or - for standard "
             "error"},
            apply_log},
    Setting{{"UIW_LOG_LEVEL", "--log-level", "error|info", "info",
             "what is logged: failures alone, or each call, connection and refusal too"},
            apply_log_level},
    Setting{
        {"UIW_CAPTURE", "--capture", "FILE", "",
         "what connections carry is appended to this file, in the form of Wireshark (pcapng), shared memory included"},
        apply_capture},
    Setting{{"UIW_FAULT", "--fault", "RULE[,RULE...], as uiw(7) has them", "",
             "what the program meets, to test it: send=REM_ACCESS_ERR@100, disconnect@USR1, reg_mr=ENOMEM@random:10"},
            apply_fault,
            why_no_fault},
    Setting{{"UIW_CHECK", "--check", "off|on|all|order", "off",
             "what the program does wrong with verbs is reported on standard error, as uiw(1) has it"},
            apply_check},
    Setting{{"UIW_CHECK_EXIT", "--check-exit", "0..255", "0",
             "exit status of a checked program in which a fault was found; 0 leaves it that of the program"},
            apply_check_exit},
    Setting{{"UIW_CHECK_REPORT", "--check-report", "FILE", "",
             "what the check has found is appended to this file when the program ends, a JSON object for each fault"},
            apply_check_report},
    Setting{{"UIW_CHECK_SEED", "--check-seed", "1..1000000000", "1",
             "what the order depends on in which RDMA Writes are placed with --check=order"},
            apply_check_seed},
    Setting{{"UIW_CHECK_SUPPRESS", "--check-suppress", "FILE", "", "faults that are known, and not to be reported"},
            apply_check_suppress},
    Setting{{kMessages, "--messages", "on|off", "",
             "a line on standard error, once, where something could not be had; on under uiw run, else off"},
            apply_messages},
};

const auto& infos() {
  static const auto table = [] {
    std::array<SettingInfo, kSettings.size()> rows{};
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = kSettings[i].info;
    return rows;
  }();
  return table;
}

std::string complain(const Setting& setting, const std::string& value) {
  std::string text = std::string(setting.info.variable) + " is '" + value + "'; it may be " + setting.info.values;
  if (setting.why != nullptr) text += ": " + setting.why(value);
  return text;
}

LoadedSettings load() {
  LoadedSettings loaded;
  loaded.values.log_level = LogLevel::info;
  constexpr std::string_view kPrefix = "UIW_";
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.substr(0, kPrefix.size()) != kPrefix) continue;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string variable(text.substr(0, equals)), value(text.substr(equals + 1));
    const Setting* found = nullptr;
    for (const Setting& setting : kSettings) {
      if (variable == setting.info.variable) found = &setting;
    }
    if (found == nullptr) {
      loaded.error = variable + " is not a setting of uiw ('uiw run --help' lists them)";
    } else if (!found->apply(value, loaded.values)) {
      loaded.error = complain(*found, value);
    }
    if (!loaded.error.empty()) break;
  }
  if (loaded.values.log.empty()) loaded.values.log_level = LogLevel::none;
  return loaded;
}

}  // namespace

std::span<const SettingInfo> setting_table() { return infos(); }

std::string check_setting(const std::string& variable, const std::string& value) {
  Settings scratch;
  for (const Setting& setting : kSettings) {
    if (variable != setting.info.variable) continue;
    return setting.apply(value, scratch) ? std::string() : complain(setting, value);
  }
  return variable + " is not a setting of uiw";
}

const LoadedSettings& settings() {
  // If two threads make the first call at the same time, both read the settings, and one result is dropped.
  static std::atomic<const LoadedSettings*> known{nullptr};
  const LoadedSettings* loaded = known.load();
  if (loaded == nullptr) {
    auto mine = std::make_unique<const LoadedSettings>(load());
    if (known.compare_exchange_strong(loaded, mine.get())) loaded = mine.release();
  }
  return *loaded;
}

std::string device_name(const OfferedInterface& offered) {
  return offered.device.empty() ? kDevicePrefix + offered.interface : offered.device;
}

bool is_own_device(std::string_view name) {
  if (name.starts_with(kDevicePrefix)) return true;
  const std::vector<OfferedInterface>& offered = settings().values.devices;
  return std::any_of(offered.begin(), offered.end(), [&](const auto& one) { return one.device == name; });
}

bool remote_completion(bool manual) {
  const CompletionMode mode = settings().values.completion;
  const bool infiniband = manual || settings().values.transport == Transport::roce;
  return mode == CompletionMode::remote || (mode == CompletionMode::automatic && infiniband);
}

}  // namespace uiw::provider
