// SPDX-License-Identifier: MIT
#include "tools/bench/plan.h"

#include <algorithm>

namespace uiw::tools {
namespace {

constexpr std::size_t k8 = 8;
constexpr std::size_t k64 = 64;
constexpr std::size_t k4KiB = std::size_t{4} << 10;
constexpr std::size_t k64KiB = std::size_t{64} << 10;
constexpr std::size_t k128KiB = std::size_t{128} << 10;
constexpr std::size_t k1MiB = std::size_t{1} << 20;

constexpr unsigned kFewProcessors = 4;  // fewer processors than this count as few

constexpr Way kTcpOff{Crc::off, ByteStream::tcp}, kTcpOn{Crc::on, ByteStream::tcp};
constexpr Way kOff{Crc::off}, kOn{Crc::on};
// Manual connections under both completion rules, to compare what the remote rule costs.
constexpr Way kLocal{Crc::automatic, ByteStream::automatic, "local"};
constexpr Way kRemote{Crc::automatic, ByteStream::automatic, "remote"};
constexpr Way kManualSharedMemory{Crc::automatic, ByteStream::shared_memory, "remote"};
constexpr Way kManualTcp{Crc::automatic, ByteStream::tcp, "remote"};

constexpr Measurement bandwidth(const char* name, const char* program, std::size_t size, Way way) {
  return {name, Measured::rdma_bandwidth, program, size, way};
}
constexpr Measurement messages(const char* name, Way way) {
  return {name, Measured::rdma_messages, "ib_write_bw", k8, way};
}
constexpr Measurement latency(const char* name, const char* program, Way way) {
  return {name, Measured::rdma_latency, program, k8, way};
}

constexpr Measurement blocking_latency(const char* name, Way way) {
  return {name, Measured::rdma_event_latency, "ib_send_lat", k8, way};
}
constexpr Measurement many_messages(const char* name, Way way, unsigned connections) {
  return {name, Measured::connections_messages, "ib_write_bw", k8, way, connections};
}
constexpr Measurement many_bandwidth(const char* name, Way way, unsigned connections) {
  return {name, Measured::connections_bandwidth, "ib_write_bw", k64KiB, way, connections};
}
// By uiw-requests.
constexpr Measurement served(Measured what, const char* name, std::size_t size, unsigned clients, Way way = {}) {
  return {name, what, nullptr, size, way, clients};
}
constexpr unsigned kSomeClients = 8;  // of the server whose processor time is measured

constexpr Measurement kStream{"iperf3, one stream", Measured::iperf3};
constexpr Measurement kPing{"sockperf, one way", Measured::sockperf};
constexpr Measurement kBlockingPing{"sockperf, blocking, one way", Measured::tcp_blocking};
constexpr Measurement kSends{"8-byte sends", Measured::tcp_sends};
constexpr Measurement kConnections{"TCP connection, each end", Measured::tcp_setup};
constexpr Measurement kReads{"8-byte reads, 16 outstanding", Measured::rdma_reads};
constexpr Measurement kUcxPosixPing{"UCX posix, tag_lat", Measured::ucx_latency, nullptr, k8, kOverSharedMemory};
constexpr Measurement kUcxPosixStream{"UCX posix, tag_bw", Measured::ucx_bandwidth, nullptr, k1MiB, kOverSharedMemory};
constexpr Measurement kUcxTcpPing{"UCX tcp, tag_lat", Measured::ucx_latency, nullptr, k8, kOverTcp};
constexpr Measurement kUcxTcpStream{"UCX tcp, tag_bw", Measured::ucx_bandwidth, nullptr, k1MiB, kOverTcp};
constexpr Measurement kLibfabricPing{"libfabric tcp, average", Measured::libfabric_latency, nullptr, k8};
// fi_pingpong has no other bandwidth.
constexpr Measurement kLibfabricStream{"libfabric tcp, 1 MiB in turns", Measured::libfabric_bandwidth, nullptr, k1MiB};

constexpr Row kSharedMemoryRows[] = {
    {"shm_write_bw_64k", bandwidth("shared memory: ib_write_bw 64 KiB", "ib_write_bw", k64KiB, kOverSharedMemory),
     kStream, 1.8},
    {"shm_write_bw_1m", bandwidth("shared memory: ib_write_bw 1 MiB", "ib_write_bw", k1MiB, kOverSharedMemory), kStream,
     1.8},
    {"shm_read_bw_64k", bandwidth("shared memory: ib_read_bw 64 KiB", "ib_read_bw", k64KiB, kOverSharedMemory), kStream,
     1.8},
    {"shm_read_bw_1m", bandwidth("shared memory: ib_read_bw 1 MiB", "ib_read_bw", k1MiB, kOverSharedMemory), kStream,
     1.8},
    {"shm_send_bw_64k", bandwidth("shared memory: ib_send_bw 64 KiB", "ib_send_bw", k64KiB, kOverSharedMemory), kStream,
     1.8},
    {"shm_send_bw_1m", bandwidth("shared memory: ib_send_bw 1 MiB", "ib_send_bw", k1MiB, kOverSharedMemory), kStream,
     1.8},
    {"shm_send_lat_8", latency("shared memory: ib_send_lat 8 B", "ib_send_lat", kOverSharedMemory), kPing, 0.2},
    {"shm_write_lat_8", latency("shared memory: ib_write_lat 8 B", "ib_write_lat", kOverSharedMemory), kPing},
    {"shm_writes_8", messages("shared memory: 8-byte writes, one QP", kOverSharedMemory), kSends, 15},
    {"shm_send_lat_8_ucx", latency("shared memory: ib_send_lat 8 B", "ib_send_lat", kOverSharedMemory), kUcxPosixPing,
     1.5, 0, Needs::ucx},
    {"shm_send_bw_1m_ucx", bandwidth("shared memory: ib_send_bw 1 MiB", "ib_send_bw", k1MiB, kOverSharedMemory),
     kUcxPosixStream, 0, 0, Needs::ucx},
};

constexpr Row kTcpRows[] = {
    {"write_bw_64k", bandwidth("TCP: ib_write_bw 64 KiB, CRC off", "ib_write_bw", k64KiB, kTcpOff), kStream, 1.15},
    {"write_bw_1m", bandwidth("TCP: ib_write_bw 1 MiB, CRC off", "ib_write_bw", k1MiB, kTcpOff), kStream, 1.15},
    {"write_bw_64k_crc", bandwidth("TCP: ib_write_bw 64 KiB, CRC on", "ib_write_bw", k64KiB, kTcpOn), kStream, 1.05},
    {"write_bw_1m_crc", bandwidth("TCP: ib_write_bw 1 MiB, CRC on", "ib_write_bw", k1MiB, kTcpOn), kStream, 1.05},
    {"read_bw_64k", bandwidth("TCP: ib_read_bw 64 KiB", "ib_read_bw", k64KiB, kOverTcp), kStream, 1.05},
    {"read_bw_1m", bandwidth("TCP: ib_read_bw 1 MiB", "ib_read_bw", k1MiB, kOverTcp), kStream},
    {"send_bw_64k", bandwidth("TCP: ib_send_bw 64 KiB", "ib_send_bw", k64KiB, kOverTcp), kStream, 1.05},
    {"send_bw_1m", bandwidth("TCP: ib_send_bw 1 MiB", "ib_send_bw", k1MiB, kOverTcp), kStream},
    {"send_lat_8", latency("TCP: ib_send_lat 8 B", "ib_send_lat", kOverTcp), kPing, 1.0},
    // ib_write_lat spins on memory; with two processors this leaves none for the progress thread.
    {"write_lat_8", latency("TCP: ib_write_lat 8 B", "ib_write_lat", kOverTcp), kPing, 1.0, 1.8},
    {"writes_8", messages("TCP: 8-byte writes, one QP", kOverTcp), kSends, 5},
    {"send_lat_8_ucx", latency("TCP: ib_send_lat 8 B", "ib_send_lat", kOverTcp), kUcxTcpPing, 1.0, 0, Needs::ucx},
    {"send_bw_1m_ucx", bandwidth("TCP: ib_send_bw 1 MiB", "ib_send_bw", k1MiB, kOverTcp), kUcxTcpStream, 2, 0,
     Needs::ucx},
    {"send_lat_8_libfabric",
     {"TCP: ib_send_lat 8 B, average", Measured::rdma_average_latency, "ib_send_lat", k8, kOverTcp},
     kLibfabricPing,
     1.0,
     0,
     Needs::libfabric},
    {"send_bw_1m_libfabric", bandwidth("TCP: ib_send_bw 1 MiB", "ib_send_bw", k1MiB, kOverTcp), kLibfabricStream, 2, 0,
     Needs::libfabric},
};

constexpr Row kOtherRows[] = {
    {"hosts_write_bw_64k", bandwidth("two hosts: ib_write_bw 64 KiB, CRC off", "ib_write_bw", k64KiB, kOff), kStream,
     1.0, 0, Needs::two_hosts},
    {"hosts_write_bw_64k_crc", bandwidth("two hosts: ib_write_bw 64 KiB, CRC on", "ib_write_bw", k64KiB, kOn), kStream,
     0.9, 0, Needs::two_hosts},

    {"setup_manual", {"queue pair connected without rdma_cm, set-up", Measured::rdma_setup}, kConnections},
    // Plain TCP has nothing comparable to an atomic operation, so the reference is an RDMA Read, which takes the same
    // path.
    {"fetch_adds", {"fetch-and-adds, 16 outstanding", Measured::rdma_fetch_adds}, kReads, 0.8},

    {"write_bw_64k_remote",
     bandwidth("without rdma_cm: ib_write_bw 64 KiB, completed by the peer", "ib_write_bw", k64KiB, kRemote),
     bandwidth("the same, completed locally", "ib_write_bw", k64KiB, kLocal), 0.95},
    {"send_bw_64k_remote",
     bandwidth("without rdma_cm: ib_send_bw 64 KiB, completed by the peer", "ib_send_bw", k64KiB, kRemote),
     bandwidth("the same, completed locally", "ib_send_bw", k64KiB, kLocal), 0.95},
    {"writes_8_remote", messages("without rdma_cm: 8-byte writes, completed by the peer", kRemote),
     messages("the same, completed locally", kLocal), 0.95},
    {"send_lat_8_remote", latency("without rdma_cm: ib_send_lat 8 B, completed by the peer", "ib_send_lat", kRemote),
     latency("the same, completed locally", "ib_send_lat", kLocal), 1.1},
    {"write_lat_8_remote", latency("without rdma_cm: ib_write_lat 8 B, completed by the peer", "ib_write_lat", kRemote),
     latency("the same, completed locally", "ib_write_lat", kLocal), 1.1},
};

constexpr Row kEventRows[] = {
    {"shm_event_lat_8", blocking_latency("shared memory: ib_send_lat -e 8 B", kOverSharedMemory), kBlockingPing, 0.8},
    {"shm_event_lat_8_manual",
     blocking_latency("shared memory: ib_send_lat -e 8 B, without rdma_cm", kManualSharedMemory), kBlockingPing, 0.8},
    {"event_lat_8", blocking_latency("TCP: ib_send_lat -e 8 B", kOverTcp), kBlockingPing, 1.15},
    {"event_lat_8_manual", blocking_latency("TCP: ib_send_lat -e 8 B, without rdma_cm", kManualTcp), kBlockingPing,
     1.15},
};

constexpr Row kConnectionRows[] = {
    {"shm_writes_8_8_connections", many_messages("shared memory: ib_write_bw 8 B, 8 connections", kOverSharedMemory, 8),
     many_messages("the same, one connection", kOverSharedMemory, 1), 0.8},
    {"shm_writes_8_64_connections",
     many_messages("shared memory: ib_write_bw 8 B, 64 connections", kOverSharedMemory, 64),
     many_messages("the same, one connection", kOverSharedMemory, 1), 0.8},
    {"shm_writes_8_256_connections",
     many_messages("shared memory: ib_write_bw 8 B, 256 connections", kOverSharedMemory, 256),
     many_messages("the same, one connection", kOverSharedMemory, 1), 0.8},
    {"shm_writes_8_1000_connections",
     many_messages("shared memory: ib_write_bw 8 B, 1000 connections", kOverSharedMemory, 1000),
     many_messages("the same, one connection", kOverSharedMemory, 1), 0.8, 0, Needs::many_descriptors},
    {"shm_write_bw_64k_8_connections",
     many_bandwidth("shared memory: ib_write_bw 64 KiB, 8 connections", kOverSharedMemory, 8),
     many_bandwidth("the same, one connection", kOverSharedMemory, 1), 0.8},
    {"shm_write_bw_64k_64_connections",
     many_bandwidth("shared memory: ib_write_bw 64 KiB, 64 connections", kOverSharedMemory, 64),
     many_bandwidth("the same, one connection", kOverSharedMemory, 1), 0.8},
    {"shm_write_bw_64k_256_connections",
     many_bandwidth("shared memory: ib_write_bw 64 KiB, 256 connections", kOverSharedMemory, 256),
     many_bandwidth("the same, one connection", kOverSharedMemory, 1), 0.8},
    {"shm_write_bw_64k_1000_connections",
     many_bandwidth("shared memory: ib_write_bw 64 KiB, 1000 connections", kOverSharedMemory, 1000),
     many_bandwidth("the same, one connection", kOverSharedMemory, 1), 0.8, 0, Needs::many_descriptors},
    {"writes_8_8_connections", many_messages("TCP: ib_write_bw 8 B, 8 connections", kOverTcp, 8),
     many_messages("the same, one connection", kOverTcp, 1), 0.5},
    {"writes_8_64_connections", many_messages("TCP: ib_write_bw 8 B, 64 connections", kOverTcp, 64),
     many_messages("the same, one connection", kOverTcp, 1), 0.5},
    {"writes_8_256_connections", many_messages("TCP: ib_write_bw 8 B, 256 connections", kOverTcp, 256),
     many_messages("the same, one connection", kOverTcp, 1), 0.5},
    {"writes_8_1000_connections", many_messages("TCP: ib_write_bw 8 B, 1000 connections", kOverTcp, 1000),
     many_messages("the same, one connection", kOverTcp, 1), 0.5, 0, Needs::many_descriptors},
    {"write_bw_64k_8_connections", many_bandwidth("TCP: ib_write_bw 64 KiB, 8 connections", kOverTcp, 8),
     many_bandwidth("the same, one connection", kOverTcp, 1), 0.8},
    {"write_bw_64k_64_connections", many_bandwidth("TCP: ib_write_bw 64 KiB, 64 connections", kOverTcp, 64),
     many_bandwidth("the same, one connection", kOverTcp, 1), 0.8},
    {"write_bw_64k_256_connections", many_bandwidth("TCP: ib_write_bw 64 KiB, 256 connections", kOverTcp, 256),
     many_bandwidth("the same, one connection", kOverTcp, 1), 0.8},
    {"write_bw_64k_1000_connections", many_bandwidth("TCP: ib_write_bw 64 KiB, 1000 connections", kOverTcp, 1000),
     many_bandwidth("the same, one connection", kOverTcp, 1), 0.8, 0, Needs::many_descriptors},
};

constexpr Row kServerRows[] = {
    {"shm_server_64_1_client",
     served(Measured::rdma_answers, "shared memory: epoll server, 64 B, 1 client", k64, 1, kOverSharedMemory),
     served(Measured::tcp_answers, "plain TCP, the same", k64, 1), 1.2},
    {"shm_server_64_8_clients",
     served(Measured::rdma_answers, "shared memory: epoll server, 64 B, 8 clients", k64, 8, kOverSharedMemory),
     served(Measured::tcp_answers, "plain TCP, the same", k64, 8), 1.2},
    {"shm_server_64_50_clients",
     served(Measured::rdma_answers, "shared memory: epoll server, 64 B, 50 clients", k64, 50, kOverSharedMemory),
     served(Measured::tcp_answers, "plain TCP, the same", k64, 50), 1.2},
    {"shm_server_64k_1_client",
     served(Measured::rdma_answers, "shared memory: epoll server, 64 KiB, 1 client", k64KiB, 1, kOverSharedMemory),
     served(Measured::tcp_answers, "plain TCP, the same", k64KiB, 1), 1.5},
    {"shm_server_64k_8_clients",
     served(Measured::rdma_answers, "shared memory: epoll server, 64 KiB, 8 clients", k64KiB, 8, kOverSharedMemory),
     served(Measured::tcp_answers, "plain TCP, the same", k64KiB, 8), 1.5},
    {"shm_server_64k_50_clients",
     served(Measured::rdma_answers, "shared memory: epoll server, 64 KiB, 50 clients", k64KiB, 50, kOverSharedMemory),
     served(Measured::tcp_answers, "plain TCP, the same", k64KiB, 50), 1.5},
    {"server_64_1_client", served(Measured::rdma_answers, "TCP: epoll server, 64 B, 1 client", k64, 1, kOverTcp),
     served(Measured::tcp_answers, "plain TCP, the same", k64, 1), 1.0},
    {"server_64_8_clients", served(Measured::rdma_answers, "TCP: epoll server, 64 B, 8 clients", k64, 8, kOverTcp),
     served(Measured::tcp_answers, "plain TCP, the same", k64, 8), 1.0},
    {"server_64_50_clients", served(Measured::rdma_answers, "TCP: epoll server, 64 B, 50 clients", k64, 50, kOverTcp),
     served(Measured::tcp_answers, "plain TCP, the same", k64, 50), 1.0},
    {"server_64k_1_client", served(Measured::rdma_answers, "TCP: epoll server, 64 KiB, 1 client", k64KiB, 1, kOverTcp),
     served(Measured::tcp_answers, "plain TCP, the same", k64KiB, 1), 1.0},
    {"server_64k_8_clients",
     served(Measured::rdma_answers, "TCP: epoll server, 64 KiB, 8 clients", k64KiB, 8, kOverTcp),
     served(Measured::tcp_answers, "plain TCP, the same", k64KiB, 8), 1.0},
    {"server_64k_50_clients",
     served(Measured::rdma_answers, "TCP: epoll server, 64 KiB, 50 clients", k64KiB, 50, kOverTcp),
     served(Measured::tcp_answers, "plain TCP, the same", k64KiB, 50), 1.0},
    {"shm_message_time_64",
     served(Measured::rdma_message_time, "shared memory: processor time, message of 64 B", k64, kSomeClients,
            kOverSharedMemory),
     served(Measured::tcp_message_time, "plain TCP, the same", k64, kSomeClients), 1.3},
    {"shm_gigabyte_time_64k",
     served(Measured::rdma_gigabyte_time, "shared memory: processor time, 1 GB by 64 KiB", k64KiB, kSomeClients,
            kOverSharedMemory),
     served(Measured::tcp_gigabyte_time, "plain TCP, the same", k64KiB, kSomeClients)},
    {"message_time_64",
     served(Measured::rdma_message_time, "TCP: processor time, message of 64 B", k64, kSomeClients, kOverTcp),
     served(Measured::tcp_message_time, "plain TCP, the same", k64, kSomeClients), 1.3},
    {"gigabyte_time_64k",
     served(Measured::rdma_gigabyte_time, "TCP: processor time, 1 GB by 64 KiB", k64KiB, kSomeClients, kOverTcp),
     served(Measured::tcp_gigabyte_time, "plain TCP, the same", k64KiB, kSomeClients)},
};

constexpr Row kPinnedRows[] = {
    {"shm_pinned_writes_128k",
     served(Measured::rdma_pinned_writes, "shared memory: answers by Write, 128 KiB, ends pinned", k128KiB, 1,
            kOverSharedMemory),
     served(Measured::rdma_writes, "the same, not pinned", k128KiB, 1, kOverSharedMemory), 1.0, 0,
     Needs::two_processors},
    {"shm_pinned_writes_4k",
     served(Measured::rdma_pinned_writes, "shared memory: answers by Write, 4 KiB, ends pinned", k4KiB, 1,
            kOverSharedMemory),
     served(Measured::rdma_writes, "the same, not pinned", k4KiB, 1, kOverSharedMemory), 1.0, 0, Needs::two_processors},
    {"pinned_writes_128k",
     served(Measured::rdma_pinned_writes, "TCP: answers by Write, 128 KiB, ends pinned", k128KiB, 1, kOverTcp),
     served(Measured::rdma_writes, "the same, not pinned", k128KiB, 1, kOverTcp), 1.0, 0, Needs::two_processors},
    {"pinned_writes_4k",
     served(Measured::rdma_pinned_writes, "TCP: answers by Write, 4 KiB, ends pinned", k4KiB, 1, kOverTcp),
     served(Measured::rdma_writes, "the same, not pinned", k4KiB, 1, kOverTcp), 1.0, 0, Needs::two_processors},
};

bool is_available(Needs needs, const Available& available) {
  switch (needs) {
    case Needs::ucx: return available.ucx;
    case Needs::libfabric: return available.libfabric;
    case Needs::two_hosts: return available.two_hosts;
    case Needs::many_descriptors: return available.many_descriptors;
    case Needs::two_processors: return available.two_processors;
    case Needs::nothing: break;
  }
  return true;
}

}  // namespace

std::vector<Row> make_plan(const std::vector<Group>& groups, unsigned processors, const Available& available) {
  std::vector<Row> rows;
  const auto add = [&](Group group, const auto& table) {
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) return;
    for (Row row : table) {
      if (!is_available(row.needs, available)) continue;
      if (row.target_few != 0 && processors < kFewProcessors) row.target = row.target_few;
      rows.push_back(row);
    }
  };
  add(Group::basic, kSharedMemoryRows);
  add(Group::basic, kTcpRows);
  add(Group::basic, kOtherRows);
  add(Group::events, kEventRows);
  add(Group::connections, kConnectionRows);
  add(Group::server, kServerRows);
  add(Group::pinned, kPinnedRows);
  return rows;
}

BenchRow report_row(const Row& row) {
  BenchRow result;
  result.id = row.id;
  result.name = row.own.name;
  result.unit = unit_of(row.own.what);
  result.reference = row.reference.name;
  if (row.target != 0) result.target = row.target;
  result.against_tcp = is_plain_tcp(row.reference.what);
  return result;
}

}  // namespace uiw::tools
