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

// The processor time of a message: each request has one, and so has each answer.
std::optional<double> message_time(const std::optional<AnswerRate>& result) {
  return result ? std::optional(result->processor_us / 2) : std::nullopt;
}

// Seconds of processor time for 10^9 octets, in messages of `size` octets.
std::optional<double> gigabyte_time(const std::optional<AnswerRate>& result, std::size_t size) {
  const std::optional<double> microseconds = message_time(result);
  return microseconds ? std::optional(*microseconds * 1e3 / static_cast<double>(size)) : std::nullopt;
}

}  // namespace

Unit unit_of(Measured what) {
  switch (what) {
    case Measured::iperf3:
    case Measured::ucx_bandwidth:
    case Measured::libfabric_bandwidth:
    case Measured::connections_bandwidth:
    case Measured::rdma_bandwidth: return Unit::gbits_per_second;
    case Measured::sockperf:
    case Measured::tcp_setup:
    case Measured::ucx_latency:
    case Measured::libfabric_latency:
    case Measured::rdma_latency:
    case Measured::rdma_average_latency:
    case Measured::tcp_blocking:
    case Measured::rdma_event_latency:
    case Measured::tcp_message_time:
    case Measured::rdma_message_time:
    case Measured::rdma_setup: return Unit::microseconds;
    case Measured::tcp_gigabyte_time:
    case Measured::rdma_gigabyte_time: return Unit::seconds;
    case Measured::tcp_answers:
    case Measured::connections_messages:
    case Measured::rdma_answers:
    case Measured::rdma_writes:
    case Measured::rdma_pinned_writes:
    case Measured::tcp_sends:
    case Measured::rdma_messages:
    case Measured::rdma_reads:
    case Measured::rdma_fetch_adds: break;
  }
  return Unit::messages_per_second;
}

bool is_plain_tcp(Measured what) {
  switch (what) {
    case Measured::iperf3:
    case Measured::sockperf:
    case Measured::tcp_sends:
    case Measured::tcp_setup:
    case Measured::tcp_blocking:
    case Measured::tcp_answers:
    case Measured::tcp_message_time:
    case Measured::tcp_gigabyte_time: return true;
    default: return false;
  }
}

std::optional<double> measure(const BenchSetup& setup, const Measurement& measurement, std::string& error) {
  const std::chrono::seconds duration(setup.seconds);
  const auto& [name, what, program, size, way, connections] = measurement;
  const auto requests = [&](Ends ends) {
    return measure_requests(setup, ends, measurement.size, measurement.connections, measurement.way, error);
  };
  switch (what) {
    case Measured::iperf3: return measure_iperf3(setup, size, error);
    case Measured::sockperf: return member(measure_sockperf(setup, Wait::polls, error), &Percentiles::median);
    case Measured::tcp_blocking: return member(measure_sockperf(setup, Wait::events, error), &Percentiles::median);
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
    case Measured::rdma_latency: return median_of(measure_rdma_latency(setup, program, size, way, Wait::polls, error));
    case Measured::rdma_average_latency:
      return member(measure_rdma_latency(setup, program, size, way, Wait::polls, error), &PerftestLatency::average);
    case Measured::rdma_event_latency:
      return median_of(measure_rdma_latency(setup, program, size, way, Wait::events, error));
    case Measured::connections_bandwidth:
      return member(measure_rdma_connections(setup, size, connections, way, error),
                    &PerftestBandwidth::gbits_per_second);
    case Measured::connections_messages:
      return member(measure_rdma_connections(setup, size, connections, way, error),
                    &PerftestBandwidth::messages_per_second);
    case Measured::tcp_answers: return member(requests(Ends::tcp), &AnswerRate::per_second);
    case Measured::rdma_answers: return member(requests(Ends::events), &AnswerRate::per_second);
    case Measured::tcp_message_time: return message_time(requests(Ends::tcp));
    case Measured::rdma_message_time: return message_time(requests(Ends::events));
    case Measured::tcp_gigabyte_time: return gigabyte_time(requests(Ends::tcp), size);
    case Measured::rdma_gigabyte_time: return gigabyte_time(requests(Ends::events), size);
    case Measured::rdma_writes: return member(requests(Ends::writes), &AnswerRate::per_second);
    case Measured::rdma_pinned_writes: return member(requests(Ends::pinned), &AnswerRate::per_second);
    case Measured::rdma_reads: return measure_rdma_answered(setup, Answered::read, error);
    case Measured::rdma_fetch_adds: return measure_rdma_answered(setup, Answered::fetch_add, error);
    case Measured::rdma_setup: break;
  }
  return measure_rdma_setup(setup, error);
}

}  // namespace uiw::tools
