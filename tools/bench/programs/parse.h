// SPDX-License-Identifier: MIT
// Reads the results that perftest, iperf3, sockperf, ucx_perftest and fi_pingpong print. Functions without side
// effects: text in, numbers out.
//
// The formats are those of perftest 4.5 (perftest_parameters.h, REPORT_FMT and REPORT_FMT_LAT), iperf3 3.12 with
// --json, sockperf 3.7, UCX 1.13 with -f and -v, and libfabric 1.17. nullopt means that the text has no result.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace uiw::tools {

struct PerftestBandwidth {
  double gbits_per_second = 0;     // "BW average[Gb/sec]", so the program has to be run with --report_gbits
  double messages_per_second = 0;  // "MsgRate[Mpps]", in messages
};
// The row for messages of `size` octets of an ib_*_bw.
std::optional<PerftestBandwidth> parse_perftest_bandwidth(const std::string& output, std::size_t size);

// Of the one-way times of a ping-pong, in microseconds.
struct Percentiles {
  double median = 0;
  double percentile_99 = 0;
  double percentile_99_9 = 0;
};

struct PerftestLatency {
  Percentiles percentiles;  // the median is "t_typical[usec]"
  double average = 0;
};
// The row for messages of `size` octets of an ib_*_lat run by iterations: one way for Send and Write.
std::optional<PerftestLatency> parse_perftest_latency(const std::string& output, std::size_t size);

// Microseconds for each queue pair, from uiw-setup.
std::optional<double> parse_setup(const std::string& output);

struct AnswerRate {
  double per_second = 0;
  double processor_us = 0;  // of both ends, for each answer
};
// What uiw-requests prints.
std::optional<AnswerRate> parse_requests(const std::string& output);

// Received bits a second, in Gb/s.
std::optional<double> parse_iperf3(const std::string& json);

std::optional<Percentiles> parse_sockperf(const std::string& output);

struct UcxResult {
  double median_us = 0;         // of tag_lat, one way
  double gbits_per_second = 0;  // overall; UCX counts in 2^20 octets a second and writes MB/s
};
std::optional<UcxResult> parse_ucx(const std::string& output);

// "usec/xfer" of the last row: the average time one way, in microseconds.
std::optional<double> parse_fi_pingpong(const std::string& output);

}  // namespace uiw::tools
