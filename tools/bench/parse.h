// SPDX-License-Identifier: MIT
// Reads the results that perftest, iperf3 and sockperf print. Functions without side effects: text in, numbers out.
//
// The formats are those of perftest 4.5 (perftest_parameters.h, REPORT_FMT and REPORT_FMT_LAT), iperf3 3.12 with
// --json, and sockperf 3.7. nullopt means that the text has no result.
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

// "t_typical[usec]" of the row for messages of `size` octets of an ib_*_lat run by iterations: one way for
// Send and Write.
std::optional<double> parse_perftest_latency(const std::string& output, std::size_t size);

// Microseconds for each queue pair, from uiw-setup.
std::optional<double> parse_setup(const std::string& output);

// Received bits a second, in Gb/s.
std::optional<double> parse_iperf3(const std::string& json);

// The median one-way time of a ping-pong, in microseconds.
std::optional<double> parse_sockperf(const std::string& output);

}  // namespace uiw::tools
