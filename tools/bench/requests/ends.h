// SPDX-License-Identifier: MIT
// The two processes that uiw-requests measures: a server, and its clients.
//
// A client sends a request, and the server answers it. The server has one thread; the clients are threads of one
// process. The functions return when the job is over, and end the process with a line on standard output on failure.
#pragma once

#include <netinet/in.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uiw::requests {

inline constexpr unsigned kMostClients = 256;

struct Job {
  sockaddr_in address{};  // where the server listens; it chooses the port
  std::size_t size = 0;   // octets of a request and of an answer, or of an RDMA Write
  unsigned clients = 0;
};

// Lies in memory that both ends and the process that measures share.
struct Shared {
  std::atomic<std::uint16_t> port{0};  // where the server listens, in network byte order; 0: not yet
  std::atomic<bool> connected{false};  // all clients are connected, and send requests
  std::atomic<bool> over{false};       // clients take the outstanding answers, and end
  struct alignas(64) Counter {         // alone in its cache line, since each client writes its own
    std::atomic<std::uint64_t> answers{0};
  };
  std::array<Counter, kMostClients> clients;
};

[[noreturn]] void fail(const char* what, int error = 0);
// Waits until the server listens.
sockaddr_in server_address(const Job& job, const Shared& shared);

// Plain TCP: the server has all connections, which do not block, in one epoll set; the clients block.
void serve_tcp(const Job& job, Shared& shared);
void ask_tcp(const Job& job, Shared& shared);

// How the ends of an RDMA connection work.
enum class Style {
  events,  // Sends; the server has its completion channel in an epoll set, a client blocks until an event comes
  writes,  // the answer is an RDMA Write and then a Send; 32 requests are outstanding, and both ends poll
};
void serve_rdma(const Job& job, Style style, Shared& shared);
void ask_rdma(const Job& job, Style style, Shared& shared);

}  // namespace uiw::requests
