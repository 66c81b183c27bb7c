// SPDX-License-Identifier: MIT
#include "tools/bench/curves.h"

#include <utility>

#include "tools/bench/measurement.h"
#include "tools/bench/pairs.h"
#include "tools/child.h"

namespace uiw::tools {
namespace {

using Tell = std::function<void(const std::string& line)>;

constexpr std::size_t kSmallest = 64;
constexpr std::size_t kLargest = std::size_t{4} << 20;
constexpr std::size_t kFactor = 4;

struct Source {
  Subject subject;
  Measurement measurement;  // with the size of a point
  std::size_t largest = kLargest;
};

// All are two-sided: the receiver takes part.
std::vector<Source> bandwidth_sources(bool with_ucx) {
  std::vector<Source> sources{
      {Subject::uiw_shared_memory,
       {"ib_send_bw over shared memory", Measured::rdma_bandwidth, "ib_send_bw", 0, kOverSharedMemory}},
      {Subject::uiw_tcp, {"ib_send_bw over TCP", Measured::rdma_bandwidth, "ib_send_bw", 0, kOverTcp}},
      {Subject::plain_tcp, {"iperf3", Measured::iperf3}, kIperf3MaxSize},
  };
  if (with_ucx)
    sources.push_back(
        {Subject::ucx_shared_memory, {"UCX posix, tag_bw", Measured::ucx_bandwidth, nullptr, 0, kOverSharedMemory}});
  return sources;
}

std::string octets(std::size_t size) { return std::to_string(size) + " octets"; }

// Calls `once` and, if it fails, calls it again. Both failures are told of; nullopt after the second.
template <typename Once>
auto measure_twice(const std::string& what, const Once& once, const Tell& tell, std::vector<std::string>& errors)
    -> decltype(once(std::declval<std::string&>())) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::string error;
    auto result = once(error);
    if (result || interrupted() != 0) return result;
    tell(what + ": failed: " + error);
    if (attempt == 1) errors.push_back(what + ": " + error);
  }
  return std::nullopt;
}

// One point of every curve.
void measure_point(const BenchSetup& setup, unsigned runs, std::size_t size, const std::vector<Source>& sources,
                   const Tell& tell, Curves& curves) {
  std::vector<std::vector<double>> samples(sources.size());
  for (unsigned run = 0; run < runs; ++run) {
    for (std::size_t i = 0; i < sources.size() && interrupted() == 0; ++i) {
      if (size > sources[i].largest) continue;
      Measurement measurement = sources[i].measurement;
      measurement.size = size;
      const std::string what = std::string(measurement.name) + ", " + octets(size);
      const auto once = [&](std::string& error) { return measure(setup, measurement, error); };
      const std::optional<double> value = measure_twice(what, once, tell, curves.errors);
      if (!value) continue;
      samples[i].push_back(*value);
      tell(what + ": " + value_text(*value, Unit::gbits_per_second));
    }
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (!samples[i].empty()) curves.picture.bandwidth[i].points.push_back({size, median(samples[i])});
}

Percentiles medians(const std::vector<Percentiles>& samples) {
  const auto of = [&](double Percentiles::*which) {
    std::vector<double> values;
    values.reserve(samples.size());
    for (const Percentiles& each : samples) values.push_back(each.*which);
    return median(values);
  };
  return {of(&Percentiles::median), of(&Percentiles::percentile_99), of(&Percentiles::percentile_99_9)};
}

void measure_latencies(const BenchSetup& setup, unsigned runs, const Tell& tell, Curves& curves) {
  constexpr std::size_t kSize = 8;
  struct Pinged {
    Subject subject;
    const char* name;
    std::vector<Percentiles> samples;
  };
  Pinged all[] = {{Subject::uiw_shared_memory, "ib_send_lat over shared memory", {}},
                  {Subject::uiw_tcp, "ib_send_lat over TCP", {}},
                  {Subject::plain_tcp, "sockperf", {}}};
  const auto once = [&](Subject subject, std::string& error) -> std::optional<Percentiles> {
    if (subject == Subject::plain_tcp) return measure_sockperf(setup, Wait::polls, error);
    const Way& way = subject == Subject::uiw_tcp ? kOverTcp : kOverSharedMemory;
    const auto result = measure_rdma_latency(setup, "ib_send_lat", kSize, way, Wait::polls, error);
    return result ? std::optional(result->percentiles) : std::nullopt;
  };
  for (unsigned run = 0; run < runs; ++run) {
    for (Pinged& each : all) {
      if (interrupted() != 0) return;
      const auto result = measure_twice(
          each.name, [&](std::string& error) { return once(each.subject, error); }, tell, curves.errors);
      if (!result) continue;
      each.samples.push_back(*result);
      tell(std::string(each.name) + ": " + value_text(result->median, Unit::microseconds));
    }
  }
  for (const Pinged& each : all)
    if (!each.samples.empty()) curves.picture.latency.push_back({each.subject, medians(each.samples)});
}

}  // namespace

std::optional<Curves> measure_curves(const BenchSetup& setup, const CurveOptions& options, const Tell& tell) {
  Curves curves;
  curves.picture.processors = options.processors;
  curves.picture.runs = options.runs;
  const std::vector<Source> sources = bandwidth_sources(options.with_ucx);
  for (const Source& source : sources) curves.picture.bandwidth.push_back({source.subject, {}});
  for (std::size_t size = kSmallest; size <= kLargest && interrupted() == 0; size *= kFactor)
    measure_point(setup, options.runs, size, sources, tell, curves);
  if (interrupted() == 0) measure_latencies(setup, options.runs, tell, curves);
  if (interrupted() != 0) return std::nullopt;
  return curves;
}

}  // namespace uiw::tools
