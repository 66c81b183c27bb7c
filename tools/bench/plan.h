// SPDX-License-Identifier: MIT
// What `uiw bench` measures, in which order, and what is compared with what: a table. Pure; bench.cc carries it out.
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
  rdma_bandwidth,  // of `program` of perftest
  rdma_messages,   // likewise
  rdma_latency,    // likewise
  rdma_reads,
  rdma_fetch_adds,
  rdma_setup,
};
Unit unit_of(Measured what);

// One thing to measure again and again. Once it has failed it is left alone.
struct Series {
  const char* name;
  Measured what;
  const char* program;  // an ib_* of perftest, or null
  std::size_t size;     // octets of a message
  Way way;
  std::vector<double> samples;
  std::string error;
};

// A row of the report: one series of uiw, one of plain TCP or of something else to compare with.
struct PlannedRow {
  BenchRow row;  // without values
  std::size_t series;
  std::size_t reference;
};

struct Plan {
  std::vector<Series> series;
  std::vector<std::size_t> order;  // of one run; a reference comes up again close to what is compared with it
  std::vector<PlannedRow> rows;
};
// Some targets depend on how many processors there are.
Plan make_plan(unsigned processors);

// Medians, and the first error where there is none.
std::vector<BenchRow> rows_of(const Plan& plan);
// Of one sample at least.
double median(std::vector<double> samples);

}  // namespace uiw::tools
