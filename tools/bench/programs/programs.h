// SPDX-License-Identifier: MIT
// Which benchmark programs are run for each result, with which arguments, and where: perftest, uiw-setup and
// uiw-requests over uiw, and the last without it too (rdma.cc); iperf3, sockperf, UCX and libfabric (reference.cc).
//
// Each function returns the result; nullopt on failure, and then `error` is one line with the reason.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tools/bench/programs/parse.h"

namespace uiw::tools {

// Where and how long measurements run.
struct BenchSetup {
  std::string preload;        // full path of libuiw-preload.so
  std::string device;         // "uiw_lo"
  std::string address;        // an IPv4 address of that device, at the server's end
  std::size_t gid_index = 0;  // the index of the GID of `address`
  unsigned seconds = 1;       // for each measurement
  unsigned iterations = 0;    // for each ping-pong that is limited by their number
  // The paths of the network namespaces of the two ends; empty: that of this process.
  std::string server_namespace;
  std::string client_namespace;
};

enum class Crc { automatic, on, off };

// The byte stream that carries a connection within this host.
enum class ByteStream { automatic, shared_memory, tcp };

// How the two ends of perftest connect.
struct Way {
  Crc crc = Crc::automatic;
  ByteStream stream = ByteStream::automatic;
  const char* manual = nullptr;  // if not null, a manual connection with this completion rule: local or remote
};
inline constexpr Way kOverSharedMemory{Crc::automatic, ByteStream::shared_memory};
inline constexpr Way kOverTcp{Crc::automatic, ByteStream::tcp};

// How a program learns of completions: by polling, or by blocking until an event comes.
enum class Wait { polls, events };

// perftest, with messages of `size` octets.
std::optional<PerftestBandwidth> measure_rdma_bandwidth(const BenchSetup& setup, const std::string& program,
                                                        std::size_t size, const Way& way, std::string& error);
std::optional<PerftestLatency> measure_rdma_latency(const BenchSetup& setup, const std::string& program,
                                                    std::size_t size, const Way& way, Wait wait, std::string& error);
// ib_write_bw over so many connections at a time. Its Writes are limited by their number: the first ones of a thousand
// connections alone may take longer than a second.
std::optional<PerftestBandwidth> measure_rdma_connections(const BenchSetup& setup, std::size_t size,
                                                          unsigned connections, const Way& way, std::string& error);
// Operations of 8 octets per second with 16 outstanding: RDMA Reads or fetch-and-adds.
enum class Answered { read, fetch_add };
std::optional<double> measure_rdma_answered(const BenchSetup& setup, Answered what, std::string& error);
// Microseconds until a queue pair of a manual connection has sent and received a message.
std::optional<double> measure_rdma_setup(const BenchSetup& setup, std::string& error);

// The ends that uiw-requests has; the comment at the top of tools/bench/requests/requests.cc says what they do.
enum class Ends { tcp, events, writes, pinned };
std::optional<AnswerRate> measure_requests(const BenchSetup& setup, Ends ends, std::size_t size, unsigned clients,
                                           const Way& way, std::string& error);

// Gb/s of one stream, written `size` octets at a time; 0: as much at a time as iperf3 does by itself.
std::optional<double> measure_iperf3(const BenchSetup& setup, std::size_t size, std::string& error);
inline constexpr std::size_t kIperf3MaxSize = std::size_t{1} << 20;
std::optional<Percentiles> measure_sockperf(const BenchSetup& setup, Wait wait, std::string& error);

// UCX's messages with tags, over its transport posix or tcp: Gb/s, and microseconds one way.
std::optional<double> measure_ucx_gbits(const BenchSetup& setup, std::size_t size, ByteStream stream,
                                        std::string& error);
std::optional<double> measure_ucx_latency(const BenchSetup& setup, std::size_t size, ByteStream stream,
                                          std::string& error);

// libfabric's provider tcp, in a ping-pong: microseconds one way, on average.
std::optional<double> measure_libfabric_latency(const BenchSetup& setup, std::size_t size, std::string& error);

}  // namespace uiw::tools
