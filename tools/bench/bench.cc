// SPDX-License-Identifier: MIT
#include "tools/bench/bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/processors.h"
#include "provider/process/device.h"
#include "provider/process/settings.h"
#include "tools/address.h"
#include "tools/bench/curves.h"
#include "tools/bench/measurement.h"
#include "tools/bench/pairs.h"
#include "tools/bench/plan.h"
#include "tools/bench/plot.h"
#include "tools/bench/programs/installed.h"
#include "tools/bench/programs/programs.h"
#include "tools/bench/programs/two_hosts.h"
#include "tools/bench/report.h"
#include "tools/child.h"
#include "tools/files.h"

namespace uiw::tools {
namespace {

struct BenchOptions {
  bool json = false;
  bool quick = false;
  unsigned runs = 5;
  unsigned seconds = 1;
  std::string rows = "basic";
  std::string plot;  // the file for the picture; empty: none
};

// Progress goes to standard error, so that standard output has only the table.
void tell(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

// Chooses the first IPv4 address, on the loopback device if there is one; perftest is run without IPv6 here.
bool choose_device(BenchSetup& setup) {
  std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  std::stable_partition(devices.begin(), devices.end(), [](const auto& device) { return device.loopback; });
  for (const provider::DeviceInfo& device : devices) {
    if (!device.active) continue;
    const auto gid = std::find_if(device.gids.begin(), device.gids.end(), provider::is_ipv4);
    if (gid == device.gids.end()) continue;
    setup.device = device.name;
    setup.address = address_text(*gid);
    setup.gid_index = static_cast<std::size_t>(gid - device.gids.begin());
    return true;
  }
  return false;
}

int complain(const std::string& text) {
  std::fprintf(stderr, "uiw bench: %s\n", text.c_str());
  return 1;
}

constexpr char kAllRows[] = "all";

std::vector<std::string> names_of_rows() {
  std::vector<std::string> names;
  for (const NamedGroup& each : kGroups) names.emplace_back(each.name);
  names.emplace_back(kAllRows);
  return names;
}

std::vector<Group> groups_of(const std::string& rows) {
  std::vector<Group> groups;
  for (const NamedGroup& each : kGroups)
    if (rows == each.name || rows == kAllRows) groups.push_back(each.group);
  return groups;
}

bool contains(const std::vector<Group>& groups, Group group) {
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

// The programs that this one starts may have as many descriptors as this one. False if they are too few.
bool allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= kDescriptors) return true;
  if (limit.rlim_max < kDescriptors) return false;
  limit.rlim_cur = kDescriptors;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// For the basic rows.
void find_programs(TwoHosts& hosts, Available& available, std::vector<std::string>& left_out) {
  available.ucx = ucx_installed();
  available.libfabric = libfabric_installed();
  if (!available.ucx)
    left_out.push_back("rows with UCX: ucx_perftest is missing; install it: " + how_to_install({kUcxUtils}));
  if (!available.libfabric)
    left_out.push_back("rows with libfabric: fi_pingpong is missing; install it: " + how_to_install({kLibfabricBin}));
  std::string error;
  available.two_hosts = hosts.make(error);
  if (!available.two_hosts) left_out.push_back("rows between two hosts: " + error);
}

// What there is beyond the programs that all rows need; what there is not is said in `left_out`.
Available find_available(const std::vector<Group>& groups, TwoHosts& hosts, std::vector<std::string>& left_out) {
  Available available;
  if (contains(groups, Group::basic)) find_programs(hosts, available, left_out);
  available.many_descriptors = contains(groups, Group::connections) && allow_many_descriptors();
  if (contains(groups, Group::connections) && !available.many_descriptors)
    left_out.push_back("rows with 1000 connections: a process needs " + std::to_string(kDescriptors) +
                       " descriptors and may not have them (ulimit -n)");
  available.two_processors = usable_processors() >= 2;
  if (contains(groups, Group::pinned) && !available.two_processors)
    left_out.emplace_back("rows with pinned ends: there is one processor only");
  return available;
}

struct Results {
  BenchFrame frame;
  std::vector<BenchRow> rows;
  std::optional<Curves> curves;  // if a picture is wanted
};

// All programs that it starts have ended on return. nullopt if this process was interrupted.
std::optional<Results> measure_all(const BenchSetup& setup, const BenchOptions& options) {
  Results results;
  results.frame = {options.runs, setup.seconds, usable_processors(), setup.device, setup.address, {}};
  TwoHosts hosts;
  const std::vector<Group> groups = groups_of(options.rows);
  const Available available = find_available(groups, hosts, results.frame.left_out);
  for (const Row& row : make_plan(groups, results.frame.processors, available)) {
    const BenchSetup where = row.needs == Needs::two_hosts ? hosts.between(setup) : setup;
    const auto once = [&](const Measurement& measurement, std::string& error) {
      return measure(where, measurement, error);
    };
    const std::optional<BenchRow> result = measure_row(
        row, options.runs, once, [] { return interrupted() != 0; }, tell);
    if (!result) return std::nullopt;
    results.rows.push_back(*result);
  }
  if (options.plot.empty()) return results;
  results.curves = measure_curves(setup, {options.runs, results.frame.processors, ucx_installed()}, tell);
  if (!results.curves) return std::nullopt;
  return results;
}

// False if the picture could not be made or is incomplete.
bool draw(const Curves& curves, const std::string& file) {
  std::string error;
  if (!run_gnuplot(gnuplot_script(curves.picture, file), error)) {
    complain("no picture: " + error);
    return false;
  }
  for (const std::string& missing : curves.errors) complain("missing in " + file + ": " + missing);
  return curves.errors.empty();
}

int bench(BenchOptions options) {
  if (const std::string& error = provider::settings().error; !error.empty()) return complain(error);
  if (const std::vector<Package> missing = missing_packages(!options.plot.empty()); !missing.empty())
    return complain("programs are missing; install them: " + how_to_install(missing));
  BenchSetup setup;
  setup.preload = preload_library();
  if (setup.preload.empty()) return complain("libuiw-preload.so is missing; see `uiw doctor`");
  if (!choose_device(setup)) return complain("no device has an IPv4 address; see `uiw devices`");
  if (!options.plot.empty())
    if (const std::string error = cannot_write(options.plot); !error.empty()) return complain(error);
  if (options.quick) options.runs = options.seconds = 1;
  setup.seconds = options.seconds;
  setup.iterations = options.quick ? 10000 : 40000 * setup.seconds;

  catch_interrupts();
  const std::optional<Results> results = measure_all(setup, options);
  if (const int signal = interrupted(); signal != 0) {
    std::fputs("uiw bench: interrupted; all programs it started have ended\n", stderr);
    std::signal(signal, SIG_DFL);
    raise(signal);  // so that the shell sees the signal
    return 128 + signal;
  }
  const auto& [frame, rows, curves] = *results;
  const std::string text = options.json ? json_of(frame, rows) : table_of(frame, rows);
  std::fputs(text.c_str(), stdout);
  const bool failed = std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) { return !row.error.empty(); });
  const bool drawn = !curves || draw(*curves, options.plot);
  return failed || !drawn ? 1 : 0;
}

}  // namespace

Action add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  command.add_flag("--json", options->json, "Print JSON");
  command.add_option("--runs", options->runs, "How often each pair is measured; medians are printed (default 5)")
      ->check(CLI::Range(1U, 1000U));
  command.add_option("--duration", options->seconds, "Seconds of each measurement (default 1)")
      ->check(CLI::Range(1U, 600U));
  command.add_flag("--quick", options->quick, "Measure each once, for a second at most");
  command.add_option("--rows", options->rows, "Which rows are measured (default basic)")
      ->check(CLI::IsMember(names_of_rows()));
  command
      .add_option("--plot", options->plot,
                  "Measure and draw bandwidth over message size, and latency percentiles (SVG)")
      ->type_name("FILE");
  command.footer("Exit status 0 where everything could be measured, whether or not targets are met; else 1.");
  return [options] { return bench(*options); };
}

}  // namespace uiw::tools
