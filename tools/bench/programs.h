// SPDX-License-Identifier: MIT
// Running stock benchmark programs as pairs of server and client on this machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace uiw::tools {

// Where and how long to measure.
struct BenchSetup {
  std::string preload;        // full path of libuiw-preload.so
  std::string device;         // "uiw_lo"
  std::string address;        // an IPv4 address of that device
  std::size_t gid_index = 0;  // of the GID that stands for it
  unsigned seconds = 1;       // each measurement
  unsigned iterations = 0;    // of a ping-pong by perftest
};

enum class Crc { automatic, on, off };

// How perftest's two ends are connected.
struct Way {
  Crc crc = Crc::automatic;
  const char* manual = nullptr;  // without rdma_cm, under this completion rule: local or remote
};

// The results; nullopt on failure, with `error` saying in one line what went wrong.
std::optional<double> measure_rdma_gbits(const BenchSetup& setup, const std::string& program, std::size_t size,
                                         const Way& way, std::string& error);
std::optional<double> measure_rdma_messages(const BenchSetup& setup, const std::string& program, std::size_t size,
                                            const Way& way, std::string& error);
// Operations of 8 octets a second, 16 outstanding: RDMA Reads, or fetch-and-adds.
enum class Answered { read, fetch_add };
std::optional<double> measure_rdma_answered(const BenchSetup& setup, Answered what, std::string& error);
std::optional<double> measure_rdma_latency(const BenchSetup& setup, const std::string& program, std::size_t size,
                                           const Way& way, std::string& error);
// Microseconds until a queue pair that is connected without rdma_cm has sent and received a message.
std::optional<double> measure_setup(const BenchSetup& setup, std::string& error);
std::optional<double> measure_iperf3(const BenchSetup& setup, std::string& error);
std::optional<double> measure_sockperf(const BenchSetup& setup, std::string& error);

// Those of the programs needed that are not there, as package names of Debian and Ubuntu.
std::vector<std::string> missing_packages();

}  // namespace uiw::tools
