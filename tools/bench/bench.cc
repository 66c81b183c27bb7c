// SPDX-License-Identifier: MIT
// `uiw bench`: stock RDMA benchmarks over uiw and plain TCP, taking turns, in one run on this machine.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>

#include "provider/process/device.h"
#include "provider/process/settings.h"
#include "tools/address.h"
#include "tools/bench_programs.h"
#include "tools/bench_report.h"
#include "tools/child.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/tcp_sends.h"

namespace uiw::tools {
namespace {

constexpr std::size_t kSmall = 8;
constexpr std::size_t k64KiB = std::size_t{64} << 10;
constexpr std::size_t k1MiB = std::size_t{1} << 20;

struct BenchOptions {
  bool json = false;
  bool quick = false;
  unsigned runs = 5;
  unsigned seconds = 1;
};

using Measurement = std::function<std::optional<double>(std::string& error)>;

// One thing to measure again and again. Once it has failed it is left alone.
struct Series {
  std::string name;
  Unit unit;
  Measurement measure;
  std::vector<double> samples;
  std::string error;
};

// A row of the table: one series of uiw, one of plain TCP or of something else to compare with.
struct PlannedRow {
  BenchRow row;
  std::size_t series;
  std::size_t reference;
};

struct Plan {
  std::vector<Series> series;
  std::vector<std::size_t> order;  // of one run; a reference comes up again close to what it is compared with
  std::vector<PlannedRow> rows;

  std::size_t add(const std::string& name, Unit unit, Measurement measure) {
    series.push_back({name, unit, std::move(measure), {}, {}});
    order.push_back(series.size() - 1);
    return series.size() - 1;
  }
  void again(std::size_t which) { order.push_back(which); }
  void compare(const char* id, std::size_t own, std::size_t reference, std::optional<double> target,
               bool against_tcp = true) {
    rows.push_back({{id, series[own].name, series[own].unit, series[reference].name, target, {}, {}, {}, against_tcp},
                    own,
                    reference});
  }
};

unsigned processor_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

Plan make_plan(const BenchSetup& setup, unsigned processors) {
  Plan plan;
  auto gbits = [&](const std::string& name, const char* program, std::size_t size, const Way& way) {
    return plan.add(name, Unit::gbits_per_second, [=, &setup](std::string& error) {
      return measure_rdma_gbits(setup, program, size, way, error);
    });
  };
  auto latency = [&](const std::string& name, const char* program, const Way& way = {}) {
    return plan.add(name, Unit::microseconds, [=, &setup](std::string& error) {
      return measure_rdma_latency(setup, program, kSmall, way, error);
    });
  };
  auto messages = [&](const std::string& name, const Way& way) {
    return plan.add(name, Unit::messages_per_second, [=, &setup](std::string& error) {
      return measure_rdma_messages(setup, "ib_write_bw", kSmall, way, error);
    });
  };

  const std::size_t stream = plan.add("iperf3, one stream", Unit::gbits_per_second,
                                      [&setup](std::string& error) { return measure_iperf3(setup, error); });
  plan.compare("write_bw_64k", gbits("ib_write_bw 64 KiB, CRC off", "ib_write_bw", k64KiB, {Crc::off}), stream,
               1.15);
  plan.compare("write_bw_1m", gbits("ib_write_bw 1 MiB, CRC off", "ib_write_bw", k1MiB, {Crc::off}), stream,
               1.15);
  plan.again(stream);
  plan.compare("write_bw_64k_crc", gbits("ib_write_bw 64 KiB, CRC on", "ib_write_bw", k64KiB, {Crc::on}),
               stream, 1.05);
  plan.compare("write_bw_1m_crc", gbits("ib_write_bw 1 MiB, CRC on", "ib_write_bw", k1MiB, {Crc::on}), stream,
               1.05);
  plan.again(stream);
  plan.compare("read_bw_64k", gbits("ib_read_bw 64 KiB", "ib_read_bw", k64KiB, {Crc::automatic}), stream, 1.05);
  plan.compare("read_bw_1m", gbits("ib_read_bw 1 MiB", "ib_read_bw", k1MiB, {Crc::automatic}), stream,
               std::nullopt);
  plan.again(stream);
  plan.compare("send_bw_64k", gbits("ib_send_bw 64 KiB", "ib_send_bw", k64KiB, {Crc::automatic}), stream, 1.05);
  plan.compare("send_bw_1m", gbits("ib_send_bw 1 MiB", "ib_send_bw", k1MiB, {Crc::automatic}), stream,
               std::nullopt);

  const std::size_t ping = plan.add("sockperf, one way", Unit::microseconds,
                                    [&setup](std::string& error) { return measure_sockperf(setup, error); });
  plan.compare("send_lat_8", latency("ib_send_lat 8 B, typical", "ib_send_lat"), ping, 0.85);
  // ib_write_lat spins on memory, which leaves the progress thread no processor of its own where there are
  // two.
  plan.compare("write_lat_8", latency("ib_write_lat 8 B, typical", "ib_write_lat"), ping,
               processors < 4 ? 1.8 : 0.85);

  const std::size_t sends = plan.add("8-byte sends", Unit::messages_per_second, [&setup](std::string& error) {
    const double rate = tcp_sends_per_second(setup.address, std::chrono::seconds(setup.seconds), error);
    return rate > 0 ? std::optional(rate) : std::nullopt;
  });
  plan.compare("writes_8", messages("8-byte writes, one QP", {}), sends, 3.0);

  const std::size_t connections =
      plan.add("TCP connection, each end", Unit::microseconds, [&setup](std::string& error) {
        const double time = tcp_setup_us(setup.address, std::chrono::seconds(setup.seconds), error);
        return time > 0 ? std::optional(time) : std::nullopt;
      });
  const std::size_t queue_pairs =
      plan.add("queue pair connected without rdma_cm, set-up", Unit::microseconds,
               [&setup](std::string& error) { return measure_setup(setup, error); });
  plan.compare("setup_manual", queue_pairs, connections, std::nullopt);

  // Plain TCP has nothing to set beside an atomic operation; an RDMA Read takes the same way.
  auto answered = [&](const char* name, Answered what) {
    return plan.add(name, Unit::messages_per_second,
                    [what, &setup](std::string& error) { return measure_rdma_answered(setup, what, error); });
  };
  const std::size_t reads = answered("8-byte reads, 16 outstanding", Answered::read);
  plan.compare("fetch_adds", answered("fetch-and-adds, 16 outstanding", Answered::fetch_add), reads, 0.8, false);

  // What it costs to complete work as InfiniBand does, once the peer has placed it.
  const Way local{Crc::automatic, "local"}, remote{Crc::automatic, "remote"};
  const auto rules = [&](const char* id, const std::string& name, double target, const auto& measured) {
    const std::size_t reference = measured(name + ", completed by TCP", local);
    plan.compare(id, measured(name + ", by the peer", remote), reference, target, false);
  };
  rules("write_bw_64k_remote", "without rdma_cm: ib_write_bw 64 KiB", 0.95,
        [&](const std::string& name, const Way& way) { return gbits(name, "ib_write_bw", k64KiB, way); });
  rules("send_bw_64k_remote", "without rdma_cm: ib_send_bw 64 KiB", 0.95,
        [&](const std::string& name, const Way& way) { return gbits(name, "ib_send_bw", k64KiB, way); });
  rules("writes_8_remote", "without rdma_cm: 8-byte writes", 0.95, messages);
  rules("send_lat_8_remote", "without rdma_cm: ib_send_lat 8 B", 1.1,
        [&](const std::string& name, const Way& way) { return latency(name, "ib_send_lat", way); });
  rules("write_lat_8_remote", "without rdma_cm: ib_write_lat 8 B", 1.1,
        [&](const std::string& name, const Way& way) { return latency(name, "ib_write_lat", way); });
  return plan;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

// One line a measurement on standard error, so that standard output holds the table alone.
void measure_all(Plan& plan, unsigned runs) {
  for (unsigned run = 1; run <= runs; ++run) {
    for (const std::size_t which : plan.order) {
      Series& series = plan.series[which];
      if (!series.error.empty() || interrupted() != 0) continue;
      const std::optional<double> value = series.measure(series.error);
      if (interrupted() != 0) return;
      if (value) series.samples.push_back(*value);
      std::fprintf(stderr, "run %u of %u: %s: %s\n", run, runs, series.name.c_str(),
                   value ? value_text(*value, series.unit).c_str() : ("failed: " + series.error).c_str());
    }
  }
}

std::vector<BenchRow> rows_of(const Plan& plan) {
  std::vector<BenchRow> rows;
  for (const PlannedRow& planned : plan.rows) {
    BenchRow row = planned.row;
    const Series& own = plan.series[planned.series];
    const Series& reference = plan.series[planned.reference];
    if (own.error.empty() && !own.samples.empty()) row.value = median(own.samples);
    if (reference.error.empty() && !reference.samples.empty()) row.compared = median(reference.samples);
    row.error = !own.error.empty() ? own.error : reference.error;
    rows.push_back(row);
  }
  return rows;
}

// The first IPv4 address, of the loopback device if there is one: perftest speaks no IPv6 here.
bool choose_device(BenchSetup& setup) {
  std::vector<provider::DeviceInfo> devices = provider::enumerate_devices();
  std::stable_partition(devices.begin(), devices.end(), [](const auto& device) { return device.loopback; });
  for (const provider::DeviceInfo& device : devices) {
    const auto gid = std::find_if(device.gids.begin(), device.gids.end(), is_ipv4);
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
  if (const std::vector<std::string> missing = missing_packages(); !missing.empty()) {
    std::string text = "programs are missing; install them: apt-get install";
    for (const std::string& package : missing) text += " " + package;
    return complain(text.c_str());
  }
  BenchSetup setup;
  setup.preload = preload_library();
  if (setup.preload.empty()) return complain("libuiw-preload.so is missing; see `uiw doctor`");
  if (!choose_device(setup)) return complain("no device has an IPv4 address; see `uiw devices`");
  const unsigned runs = options.quick ? 1 : options.runs;
  setup.seconds = options.quick ? 1 : options.seconds;
  setup.iterations = options.quick ? 10000 : 40000 * setup.seconds;

  catch_interrupts();
  const unsigned processors = processor_count();
  Plan plan = make_plan(setup, processors);
  measure_all(plan, runs);
  if (const int signal = interrupted(); signal != 0) {
    std::fputs("uiw bench: interrupted; all programs it started have ended\n", stderr);
    std::signal(signal, SIG_DFL);
    raise(signal);  // so that a shell sees how this ended
    return 128 + signal;
  }
  const BenchFrame frame{runs, setup.seconds, processors, setup.device, setup.address};
  const std::vector<BenchRow> rows = rows_of(plan);
  const std::string text = options.json ? json_of(frame, rows) : table_of(frame, rows);
  std::fputs(text.c_str(), stdout);
  const bool failed =
      std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) { return !row.error.empty(); });
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
