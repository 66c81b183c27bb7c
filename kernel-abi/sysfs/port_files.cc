// SPDX-License-Identifier: MIT
#include "kernel-abi/sysfs/port_files.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace uiw::kernel_abi {
namespace {

using provider::PortCounter;
using provider::PortCounts;

constexpr std::uint64_t kOctetsOfUnit = 4;  // port_xmit_data and port_rcv_data count units of 4 octets

template <PortCounter... kCounters>
std::uint64_t sum(const PortCounts& counts) {
  return (counts[index_of(kCounters)] + ...);
}
// The value of counters whose events happen on a link or in a switch. It is always 0, since uiw has sockets instead of
// a link.
std::uint64_t none(const PortCounts&) { return 0; }

constexpr auto sent_packets = sum<PortCounter::packets_sent, PortCounter::datagrams_sent>;
constexpr auto received_packets = sum<PortCounter::packets_received, PortCounter::datagrams_received>;

constexpr PortFile kCounterFiles[] = {
    {"VL15_dropped", none},
    {"excessive_buffer_overrun_errors", none},
    {"link_downed", none},
    {"link_error_recovery", none},
    {"local_link_integrity_errors", none},
    {"port_rcv_constraint_errors", none},
    {"port_rcv_data",
     [](const PortCounts& counts) { return sum<PortCounter::octets_received>(counts) / kOctetsOfUnit; }},
    {"port_rcv_errors", sum<PortCounter::dropped_malformed>},
    {"port_rcv_packets", received_packets},
    {"port_rcv_remote_physical_errors", none},
    {"port_rcv_switch_relay_errors", none},
    {"port_xmit_constraint_errors", none},
    {"port_xmit_data", [](const PortCounts& counts) { return sum<PortCounter::octets_sent>(counts) / kOctetsOfUnit; }},
    {"port_xmit_discards", none},
    {"port_xmit_packets", sent_packets},
    {"port_xmit_wait", none},
    {"symbol_error", none},
};

constexpr PortFile kHwCounterFiles[] = {
    {"answer_octets_dropped", sum<PortCounter::answers_dropped>},
    {"connections_established", sum<PortCounter::connections>},
    {"connections_refused", sum<PortCounter::refused>},
    {"datagrams_malformed", sum<PortCounter::dropped_malformed>},
    {"datagrams_no_qp", sum<PortCounter::dropped_destination>},
    {"datagrams_no_receive", sum<PortCounter::dropped_no_receive>},
    {"datagrams_received", sum<PortCounter::datagrams_received>},
    {"datagrams_sent", sum<PortCounter::datagrams_sent>},
    {"datagrams_wrong_qkey", sum<PortCounter::dropped_qkey>},
    {"datagrams_wrong_source", sum<PortCounter::dropped_source>},
    {"rcvd_pkts", received_packets},
    {"retry_exceeded_err", sum<PortCounter::retries_exceeded>},
    {"retry_rnr_exceeded_err", sum<PortCounter::rnr_exceeded>},
    {"send_rnr_err", sum<PortCounter::rnr_waits>},
    {"sent_pkts", sent_packets},
    {"tcpRetransSegs", sum<PortCounter::retransmitted>},
    {"terminates_received", sum<PortCounter::terminates_received>},
    {"terminates_sent", sum<PortCounter::terminates_sent>},
};

std::vector<std::string_view> components_of(std::string_view path) {
  std::vector<std::string_view> components;
  while (!path.empty()) {
    const std::size_t length = std::min(path.find('/'), path.size());
    const std::string_view component = path.substr(0, length);
    if (!component.empty() && component != ".") components.push_back(component);
    path.remove_prefix(std::min(length + 1, path.size()));
  }
  return components;
}

const PortFile* find_file(std::span<const PortFile> files, std::string_view name) {
  const auto found =
      std::find_if(files.begin(), files.end(), [name](const PortFile& file) { return file.name == name; });
  return found != files.end() ? &*found : nullptr;
}

}  // namespace

std::span<const PortFile> port_counter_files() { return kCounterFiles; }
std::span<const PortFile> hw_counter_files() { return kHwCounterFiles; }

provider::PortCounts counts_of(const std::vector<provider::ProcessInventory>& processes, std::string_view device) {
  PortCounts counts{};
  for (const provider::ProcessInventory& process : processes) {
    for (const provider::ShownDevice& one : process.inventory.devices) {
      if (device != one.name) continue;
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += one.counts[i];
    }
  }
  return counts;
}

namespace {

std::optional<unsigned> index_in(std::string_view text) {
  unsigned index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(index) : std::nullopt;
}

// Parses the components of a path that follow "ports/1". False if the path is not one whose content changes.
bool parse_in_port(std::span<const std::string_view> parts, PortPath& found) {
  using Kind = PortPath::Kind;
  const std::string_view first = parts.front();
  if (first == "counters" || first == "hw_counters") {
    if (parts.size() == 1) return true;
    found.kind = Kind::counter;
    if (parts.size() == 2)
      found.file = find_file(first == "counters" ? port_counter_files() : hw_counter_files(), parts[1]);
    return found.file != nullptr;
  }
  if (parts.size() == 1) {
    found.kind = first == "state" ? Kind::state : Kind::physical_state;
    return first == "state" || first == "phys_state";
  }
  if (first == "gids" && parts.size() == 2) {
    found.kind = Kind::gid;
  } else if (first == "gid_attrs" && parts.size() == 3 && (parts[1] == "types" || parts[1] == "ndevs")) {
    found.kind = parts[1] == "types" ? Kind::gid_type : Kind::gid_interface;
  } else {
    return false;
  }
  const auto index = index_in(parts.back());
  found.index = index.value_or(0);
  return index.has_value();
}

}  // namespace

std::optional<PortPath> parse_port_path(std::string_view path) {
  const std::vector<std::string_view> parts = components_of(path);
  if (parts.size() < 4 || parts[0] != "class" || parts[1] != "infiniband" || parts[3] != "ports" ||
      (parts.size() > 4 && parts[4] != "1")) {
    return std::nullopt;
  }
  PortPath found{std::string(parts[2])};
  if (parts.size() > 5 && !parse_in_port(std::span(parts).subspan(5), found)) return std::nullopt;
  return found;
}

}  // namespace uiw::kernel_abi
