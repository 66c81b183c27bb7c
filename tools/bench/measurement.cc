// SPDX-License-Identifier: MIT
#include "tools/bench/measurement.h"

#include <chrono>

#include "tools/bench/programs/tcp_sends.h"

namespace uiw::tools {
namespace {

std::optional<double> positive(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

// The named member of a result that may be missing.
template <typename Result>
std::optional<double> member(const std::optional<Result>& result, double Result::*which) {
  return result ? std::optional(*result.*which) : std::nullopt;
}

std::optional<double> median_of(const std::optional<PerftestLatency>& result) {
  return result ? std::optional(result->percentiles.median) : std::nullopt;
}

}  // namespace

Unit unit_of(Measured what) {
  switch (what) {
    case Measured::iperf3:
    case Measured::ucx_bandwidth:
    case Measured::libfabric_bandwidth:
    case Measured::rdma_bandwidth: return Unit::gbits_per_second;
    case Measured::sockperf:
    case Measured::tcp_setup:
    case Measured::ucx_latency:
    case Measured::libfabric_latency:
    case Measured::rdma_latency:
    case Measured::rdma_average_latency:
    case Measured::rdma_setup: return Unit::microseconds;
    case Measured::tcp_sends:
    case Measured::rdma_messages:
    case Measured::rdma_reads:
    case Measured::rdma_fetch_adds: break;
  }
  return Unit::messages_per_second;
}

bool is_plain_tcp(Measured what) {
  return what == Measured::iperf3 || what == Measured::sockperf || what == Measured::tcp_sends ||
         what == Measured::tcp_setup;
}

std::optional<double> measure(const BenchSetup& setup, const Measurement& measurement, std::string& error) {
  const std::chrono::seconds duration(setup.seconds);
  const auto& [name, what, program, size, way] = measurement;
  switch (what) {
    case Measured::iperf3: return measure_iperf3(setup, size, error);
    case Measured::sockperf: return member(measure_sockperf(setup, error), &Percentiles::median);
    case Measured::tcp_sends: return positive(tcp_sends_per_second(setup.address, duration, error));
    case Measured::tcp_setup: return positive(tcp_setup_us(setup.address, duration, error));
    case Measured::ucx_bandwidth: return measure_ucx_gbits(setup, size, way.stream, error);
    case Measured::ucx_latency: return measure_ucx_latency(setup, size, way.stream, error);
    case Measured::libfabric_latency: return measure_libfabric_latency(setup, size, error);
    case Measured::libfabric_bandwidth: {
      const std::optional<double> microseconds = measure_libfabric_latency(setup, size, error);
      if (!microseconds) return std::nullopt;
      return static_cast<double>(size) * 8 / (*microseconds * 1e3);
    }
    case Measured::rdma_bandwidth:
      return member(measure_rdma_bandwidth(setup, program, size, way, error), &PerftestBandwidth::gbits_per_second);
    case Measured::rdma_messages:
      return member(measure_rdma_bandwidth(setup, program, size, way, error), &PerftestBandwidth::messages_per_second);
    case Measured::rdma_latency: return median_of(measure_rdma_latency(setup, program, size, way, error));
    case Measured::rdma_average_latency:
      return member(measure_rdma_latency(setup, program, size, way, error), &PerftestLatency::average);
    case Measured::rdma_reads: return measure_rdma_answered(setup, Answered::read, error);
    case Measured::rdma_fetch_adds: return measure_rdma_answered(setup, Answered::fetch_add, error);
    case Measured::rdma_setup: break;
  }
  return measure_rdma_setup(setup, error);
}

}  // namespace uiw::tools
