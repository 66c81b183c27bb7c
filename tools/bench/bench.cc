// SPDX-License-Identifier: MIT
#include "tools/bench/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "provider/process/device.h"
#include "provider/process/settings.h"
#include "tools/address.h"
#include "tools/bench/plan.h"
#include "tools/bench/programs.h"
#include "tools/bench/report.h"
#include "tools/bench/tcp_sends.h"
#include "tools/child.h"
#include "tools/files.h"
#include "tools/processors.h"

namespace uiw::tools {
namespace {

struct BenchOptions {
  bool json = false;
  bool quick = false;
  unsigned runs = 5;
  unsigned seconds = 1;
};

std::optional<double> measure(const BenchSetup& setup, Series& series) {
  const std::chrono::seconds duration(setup.seconds);
  const auto unless_failed = [](double value) { return value > 0 ? std::optional(value) : std::nullopt; };
  switch (series.what) {
    case Measured::iperf3: return measure_iperf3(setup, series.error);
    case Measured::sockperf: return measure_sockperf(setup, series.error);
    case Measured::tcp_sends: return unless_failed(tcp_sends_per_second(setup.address, duration, series.error));
    case Measured::tcp_setup: return unless_failed(tcp_setup_us(setup.address, duration, series.error));
    case Measured::rdma_bandwidth:
      return measure_rdma_gbits(setup, series.program, series.size, series.way, series.error);
    case Measured::rdma_messages:
      return measure_rdma_messages(setup, series.program, series.size, series.way, series.error);
    case Measured::rdma_latency:
      return measure_rdma_latency(setup, series.program, series.size, series.way, series.error);
    case Measured::rdma_reads: return measure_rdma_answered(setup, Answered::read, series.error);
    case Measured::rdma_fetch_adds: return measure_rdma_answered(setup, Answered::fetch_add, series.error);
    case Measured::rdma_setup: break;
  }
  return measure_setup(setup, series.error);
}

// Prints one line for each measurement on standard error, so that standard output has only the table.
void measure_all(const BenchSetup& setup, Plan& plan, unsigned runs) {
  for (unsigned run = 1; run <= runs; ++run) {
    for (const std::size_t which : plan.order) {
      Series& series = plan.series[which];
      if (!series.error.empty() || interrupted() != 0) continue;
      const std::optional<double> value = measure(setup, series);
      if (interrupted() != 0) return;
      if (value) series.samples.push_back(*value);
      std::fprintf(stderr, "run %u of %u: %s: %s\n", run, runs, series.name,
                   value ? value_text(*value, unit_of(series.what)).c_str() : ("failed: " + series.error).c_str());
    }
  }
}

// Chooses the first IPv4 address, on the loopback device if there is one; perftest is run without IPv6 here.
bool choose_device(BenchSetup& setup) {
  std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  std::stable_partition(devices.begin(), devices.end(), [](const auto& device) { return device.loopback; });
  for (const provider::DeviceInfo& device : devices) {
    const auto gid = std::find_if(device.gids.begin(), device.gids.end(), provider::is_ipv4);
    if (gid == device.gids.end()) continue;
    setup.device = device.name;
    setup.address = address_text(*gid);
    setup.gid_index = static_cast<std::size_t>(gid - device.gids.begin());
    return true;
  }
  return false;
}

int complain(const char* text) {
  std::fprintf(stderr, "uiw bench: %s\n", text);
  return 1;
}

int bench(const BenchOptions& options) {
  if (const std::string& error = provider::settings().error; !error.empty()) return complain(error.c_str());
  if (const std::vector<Package> missing = missing_packages(); !missing.empty())
    return complain(("programs are missing; install them: " + how_to_install(missing)).c_str());
  BenchSetup setup;
  setup.preload = preload_library();
  if (setup.preload.empty()) return complain("libuiw-preload.so is missing; see `uiw doctor`");
  if (!choose_device(setup)) return complain("no device has an IPv4 address; see `uiw devices`");
  const unsigned runs = options.quick ? 1 : options.runs;
  setup.seconds = options.quick ? 1 : options.seconds;
  setup.iterations = options.quick ? 10000 : 40000 * setup.seconds;

  catch_interrupts();
  const unsigned processors = usable_processors();
  Plan plan = make_plan(processors);
  measure_all(setup, plan, runs);
  if (const int signal = interrupted(); signal != 0) {
    std::fputs("uiw bench: interrupted; all programs it started have ended\n", stderr);
    std::signal(signal, SIG_DFL);
    raise(signal);  // so that the shell sees the signal
    return 128 + signal;
  }
  const BenchFrame frame{runs, setup.seconds, processors, setup.device, setup.address};
  const std::vector<BenchRow> rows = rows_of(plan);
  const std::string text = options.json ? json_of(frame, rows) : table_of(frame, rows);
  std::fputs(text.c_str(), stdout);
  const bool failed = std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) { return !row.error.empty(); });
  return failed ? 1 : 0;
}

}  // namespace

Action add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  command.add_flag("--json", options->json, "Print JSON");
  command.add_option("--runs", options->runs, "How often each is measured; medians are printed (default 5)")
      ->check(CLI::Range(1U, 1000U));
  command.add_option("--duration", options->seconds, "Seconds of each measurement (default 1)")
      ->check(CLI::Range(1U, 600U));
  command.add_flag("--quick", options->quick, "Measure each once, for a second at most");
  command.footer("Exit status 0 where everything could be measured, whether or not targets are met; else 1.");
  return [options] { return bench(*options); };
}

}  // namespace uiw::tools
