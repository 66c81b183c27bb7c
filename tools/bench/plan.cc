// SPDX-License-Identifier: MIT
#include "tools/bench/plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace uiw::tools {
namespace {

constexpr std::size_t k8 = 8;
constexpr std::size_t k64KiB = std::size_t{64} << 10;
constexpr std::size_t k1MiB = std::size_t{1} << 20;

constexpr unsigned kFewProcessors = 4;  // fewer processors than this count as few

constexpr char kStream[] = "iperf3, one stream";
constexpr char kPing[] = "sockperf, one way";
constexpr char kSends[] = "8-byte sends";
constexpr char kConnections[] = "TCP connection, each end";
constexpr char kReads[] = "8-byte reads, 16 outstanding";

constexpr Way kOff{Crc::off, nullptr}, kOn{Crc::on, nullptr}, kAutomatic{};
// Manual connections under both completion rules, to compare what the remote rule costs.
constexpr Way kLocal{Crc::automatic, "local"}, kRemote{Crc::automatic, "remote"};

// A step of a run. A step with an `id` makes a row of the report, compared with an earlier step that it names. A step
// with a name that was used before measures the same series again.
struct Step {
  const char* name;
  Measured what;
  const char* program = nullptr;
  std::size_t size = 0;
  Way way = {};
  const char* id = nullptr;
  const char* reference = nullptr;
  double target = 0;  // 0: none
  bool against_tcp = true;
  double target_few = 0;  // the target with few processors, if it differs
};

constexpr Step kSteps[] = {
    {kStream, Measured::iperf3},
    {"ib_write_bw 64 KiB, CRC off", Measured::rdma_bandwidth, "ib_write_bw", k64KiB, kOff, "write_bw_64k", kStream,
     1.15},
    {"ib_write_bw 1 MiB, CRC off", Measured::rdma_bandwidth, "ib_write_bw", k1MiB, kOff, "write_bw_1m", kStream, 1.15},
    {kStream, Measured::iperf3},
    {"ib_write_bw 64 KiB, CRC on", Measured::rdma_bandwidth, "ib_write_bw", k64KiB, kOn, "write_bw_64k_crc", kStream,
     1.05},
    {"ib_write_bw 1 MiB, CRC on", Measured::rdma_bandwidth, "ib_write_bw", k1MiB, kOn, "write_bw_1m_crc", kStream,
     1.05},
    {kStream, Measured::iperf3},
    {"ib_read_bw 64 KiB", Measured::rdma_bandwidth, "ib_read_bw", k64KiB, kAutomatic, "read_bw_64k", kStream, 1.05},
    {"ib_read_bw 1 MiB", Measured::rdma_bandwidth, "ib_read_bw", k1MiB, kAutomatic, "read_bw_1m", kStream},
    {kStream, Measured::iperf3},
    {"ib_send_bw 64 KiB", Measured::rdma_bandwidth, "ib_send_bw", k64KiB, kAutomatic, "send_bw_64k", kStream, 1.05},
    {"ib_send_bw 1 MiB", Measured::rdma_bandwidth, "ib_send_bw", k1MiB, kAutomatic, "send_bw_1m", kStream},

    {kPing, Measured::sockperf},
    {"ib_send_lat 8 B, typical", Measured::rdma_latency, "ib_send_lat", k8, kAutomatic, "send_lat_8", kPing, 0.85},
    // ib_write_lat spins on memory; with two processors this leaves none for the progress thread.
    {"ib_write_lat 8 B, typical", Measured::rdma_latency, "ib_write_lat", k8, kAutomatic, "write_lat_8", kPing, 0.85,
     true, 1.8},

    {kSends, Measured::tcp_sends},
    {"8-byte writes, one QP", Measured::rdma_messages, "ib_write_bw", k8, kAutomatic, "writes_8", kSends, 3.0},

    {kConnections, Measured::tcp_setup},
    {"queue pair connected without rdma_cm, set-up", Measured::rdma_setup, nullptr, 0, kAutomatic, "setup_manual",
     kConnections},

    // Plain TCP has nothing comparable to an atomic operation, so the reference is an RDMA Read, which takes the same
    // path.
    {kReads, Measured::rdma_reads},
    {"fetch-and-adds, 16 outstanding", Measured::rdma_fetch_adds, nullptr, 0, kAutomatic, "fetch_adds", kReads, 0.8,
     false},

    {"without rdma_cm: ib_write_bw 64 KiB, completed by TCP", Measured::rdma_bandwidth, "ib_write_bw", k64KiB, kLocal},
    {"without rdma_cm: ib_write_bw 64 KiB, by the peer", Measured::rdma_bandwidth, "ib_write_bw", k64KiB, kRemote,
     "write_bw_64k_remote", "without rdma_cm: ib_write_bw 64 KiB, completed by TCP", 0.95, false},
    {"without rdma_cm: ib_send_bw 64 KiB, completed by TCP", Measured::rdma_bandwidth, "ib_send_bw", k64KiB, kLocal},
    {"without rdma_cm: ib_send_bw 64 KiB, by the peer", Measured::rdma_bandwidth, "ib_send_bw", k64KiB, kRemote,
     "send_bw_64k_remote", "without rdma_cm: ib_send_bw 64 KiB, completed by TCP", 0.95, false},
    {"without rdma_cm: 8-byte writes, completed by TCP", Measured::rdma_messages, "ib_write_bw", k8, kLocal},
    {"without rdma_cm: 8-byte writes, by the peer", Measured::rdma_messages, "ib_write_bw", k8, kRemote,
     "writes_8_remote", "without rdma_cm: 8-byte writes, completed by TCP", 0.95, false},
    {"without rdma_cm: ib_send_lat 8 B, completed by TCP", Measured::rdma_latency, "ib_send_lat", k8, kLocal},
    {"without rdma_cm: ib_send_lat 8 B, by the peer", Measured::rdma_latency, "ib_send_lat", k8, kRemote,
     "send_lat_8_remote", "without rdma_cm: ib_send_lat 8 B, completed by TCP", 1.1, false},
    {"without rdma_cm: ib_write_lat 8 B, completed by TCP", Measured::rdma_latency, "ib_write_lat", k8, kLocal},
    {"without rdma_cm: ib_write_lat 8 B, by the peer", Measured::rdma_latency, "ib_write_lat", k8, kRemote,
     "write_lat_8_remote", "without rdma_cm: ib_write_lat 8 B, completed by TCP", 1.1, false},
};

// The index of the series with this name; one past the last if there is none.
std::size_t find(const Plan& plan, const char* name) {
  const auto found = std::find_if(plan.series.begin(), plan.series.end(),
                                  [&](const Series& series) { return std::strcmp(series.name, name) == 0; });
  return static_cast<std::size_t>(found - plan.series.begin());
}

}  // namespace

Unit unit_of(Measured what) {
  switch (what) {
    case Measured::iperf3:
    case Measured::rdma_bandwidth: return Unit::gbits_per_second;
    case Measured::sockperf:
    case Measured::tcp_setup:
    case Measured::rdma_latency:
    case Measured::rdma_setup: return Unit::microseconds;
    case Measured::tcp_sends:
    case Measured::rdma_messages:
    case Measured::rdma_reads:
    case Measured::rdma_fetch_adds: break;
  }
  return Unit::messages_per_second;
}

Plan make_plan(unsigned processors) {
  Plan plan;
  for (const Step& step : kSteps) {
    const std::size_t own = find(plan, step.name);
    if (own == plan.series.size()) {
      plan.series.push_back({step.name, step.what, step.program, step.size, step.way, {}, {}});
    }
    plan.order.push_back(own);
    if (step.id == nullptr) continue;
    const bool other_target = step.target_few != 0 && processors < kFewProcessors;
    const double target = other_target ? step.target_few : step.target;
    BenchRow row;
    row.id = step.id;
    row.name = step.name;
    row.unit = unit_of(step.what);
    row.reference = step.reference;
    if (target != 0) row.target = target;
    row.against_tcp = step.against_tcp;
    plan.rows.push_back({std::move(row), own, find(plan, step.reference)});
  }
  return plan;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
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

}  // namespace uiw::tools
