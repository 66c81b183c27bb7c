// SPDX-License-Identifier: MIT
// The table of what `uiw bench` measures, in which order, and what is compared with what. No side effects; bench.cc
// carries it out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/programs.h"
#include "tools/bench/report.h"

namespace uiw::tools {

enum class Measured {
  iperf3,          // plain TCP
  sockperf,        // plain TCP
  tcp_sends,       // plain TCP
  tcp_setup,       // plain TCP
  rdma_bandwidth,  // by `program` of perftest
  rdma_messages,   // likewise
  rdma_latency,    // likewise
  rdma_reads,
  rdma_fetch_adds,
  rdma_setup,
};
Unit unit_of(Measured what);

// A measurement that is repeated. After a failure it is not run again.
struct Series {
  const char* name;
  Measured what;
  const char* program;  // a program of perftest, or null
  std::size_t size;     // octets of a message
  Way way;
  std::vector<double> samples;
  std::string error;
};

// A row of the report: a series of uiw, and a series of plain TCP or of something else to compare it with.
struct PlannedRow {
  BenchRow row;  // without values
  std::size_t series;
  std::size_t reference;
};

struct Plan {
  std::vector<Series> series;
  // The order of one run. A reference is measured again close to the series that is compared with it.
  std::vector<std::size_t> order;
  std::vector<PlannedRow> rows;
};
// Some targets depend on the number of processors.
Plan make_plan(unsigned processors);

// The rows with medians, or the first error of a series without a result.
std::vector<BenchRow> rows_of(const Plan& plan);
// `samples` has at least one element.
double median(std::vector<double> samples);

}  // namespace uiw::tools
