// SPDX-License-Identifier: MIT
// The table of what `uiw bench` measures, what each is compared with, and the targets. No side effects; bench.cc
// carries it out.
#pragma once

#include <vector>

#include "tools/bench/measurement.h"
#include "tools/bench/report.h"

namespace uiw::tools {

// What a row needs beyond the programs that every row needs.
enum class Needs { nothing, ucx, libfabric, two_hosts, many_descriptors, two_processors };

// Rows that are measured together.
enum class Group {
  basic,        // bandwidths, latencies, rates, set-up
  events,       // latencies of programs that block
  connections,  // many connections beside one
  server,       // a server with an epoll loop, and its processor time
  pinned,       // ends that have a processor each
};
struct NamedGroup {
  const char* name;
  Group group;
};
inline constexpr NamedGroup kGroups[] = {{"basic", Group::basic},
                                         {"events", Group::events},
                                         {"connections", Group::connections},
                                         {"server", Group::server},
                                         {"pinned", Group::pinned}};

// A row of the report: a measurement of uiw, and one of plain TCP or of something else that it is compared with.
struct Row {
  const char* id;
  Measurement own;
  Measurement reference;
  double target = 0;      // for the ratio; 0: none
  double target_few = 0;  // the target with few processors, if it differs
  Needs needs = Needs::nothing;
};

struct Available {
  bool ucx = false;
  bool libfabric = false;
  bool two_hosts = false;
  bool many_descriptors = false;  // kDescriptors for each process
  bool two_processors = false;
};
// What 1,000 connections need: shared memory uses only a quarter of the descriptors that a process may have.
inline constexpr unsigned long kDescriptors = 4500;

// The rows of these groups in the order in which they are measured, without those whose needs are not available, and
// with the targets for this number of processors.
std::vector<Row> make_plan(const std::vector<Group>& groups, unsigned processors, const Available& available);

// The row of the report, without values.
BenchRow report_row(const Row& row);

}  // namespace uiw::tools
