// SPDX-License-Identifier: MIT
// What can be measured as one number: by uiw, and by what it is compared with.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tools/bench/programs/programs.h"
#include "tools/bench/report.h"

namespace uiw::tools {

enum class Measured {
  iperf3,                 // plain TCP
  sockperf,               // plain TCP
  tcp_sends,              // plain TCP
  tcp_setup,              // plain TCP
  tcp_blocking,           // plain TCP: sockperf, whose ends block
  tcp_answers,            // plain TCP: the answers of a server with an epoll loop
  tcp_message_time,       // likewise: the processor time of a message
  tcp_gigabyte_time,      // likewise
  ucx_bandwidth,          // over shared memory or TCP, as `way` says
  ucx_latency,            // likewise
  libfabric_bandwidth,    // one message at a time
  libfabric_latency,      // on average
  rdma_bandwidth,         // by `program` of perftest
  rdma_messages,          // likewise
  rdma_latency,           // likewise, the median
  rdma_average_latency,   // likewise
  rdma_event_latency,     // likewise, the median, with completion events
  connections_bandwidth,  // by ib_write_bw over `connections` connections
  connections_messages,   // likewise
  rdma_answers,           // as tcp_answers
  rdma_message_time,      // as tcp_message_time
  rdma_gigabyte_time,     // as tcp_gigabyte_time
  rdma_writes,            // answers by RDMA Write and Send, both ends polling
  rdma_pinned_writes,     // likewise, each end on a processor of its own
  rdma_reads,
  rdma_fetch_adds,
  rdma_setup,
};
Unit unit_of(Measured what);
bool is_plain_tcp(Measured what);

struct Measurement {
  const char* name;  // for people
  Measured what;
  const char* program = nullptr;  // a program of perftest, or null
  std::size_t size = 0;           // octets of a message; for iperf3, of a write, where it is not iperf3's own choice
  Way way = {};
  unsigned connections = 1;  // of ib_write_bw, or clients of the server
};

// nullopt on failure, with one line in `error`.
std::optional<double> measure(const BenchSetup& setup, const Measurement& measurement, std::string& error);

}  // namespace uiw::tools
