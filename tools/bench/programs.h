// SPDX-License-Identifier: MIT
// Runs stock benchmark programs as pairs of server and client on this machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/packages.h"

namespace uiw::tools {

// Where and how long measurements run.
struct BenchSetup {
  std::string preload;        // full path of libuiw-preload.so
  std::string device;         // "uiw_lo"
  std::string address;        // an IPv4 address of that device
  std::size_t gid_index = 0;  // the index of the GID of `address`
  unsigned seconds = 1;       // for each measurement
  unsigned iterations = 0;    // for each ping-pong of perftest
};

enum class Crc { automatic, on, off };

// How the two ends of perftest connect.
struct Way {
  Crc crc = Crc::automatic;
  const char* manual = nullptr;  // if not null, a manual connection with this completion rule: local or remote
};

// These return the result; nullopt on failure, and then `error` is one line with the reason.
std::optional<double> measure_rdma_gbits(const BenchSetup& setup, const std::string& program, std::size_t size,
                                         const Way& way, std::string& error);
std::optional<double> measure_rdma_messages(const BenchSetup& setup, const std::string& program, std::size_t size,
                                            const Way& way, std::string& error);
// Operations of 8 octets per second with 16 outstanding: RDMA Reads or fetch-and-adds.
enum class Answered { read, fetch_add };
std::optional<double> measure_rdma_answered(const BenchSetup& setup, Answered what, std::string& error);
std::optional<double> measure_rdma_latency(const BenchSetup& setup, const std::string& program, std::size_t size,
                                           const Way& way, std::string& error);
// Microseconds until a queue pair of a manual connection has sent and received a message.
std::optional<double> measure_setup(const BenchSetup& setup, std::string& error);
std::optional<double> measure_iperf3(const BenchSetup& setup, std::string& error);
std::optional<double> measure_sockperf(const BenchSetup& setup, std::string& error);

// The packages of the needed programs that are missing.
std::vector<Package> missing_packages();

}  // namespace uiw::tools
