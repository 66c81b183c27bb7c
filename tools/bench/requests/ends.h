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
  sockaddr_in address{};  // where the server listens; the kernel chooses the port (Shared::port)
  std::size_t size = 0;   // octets of a request and of an answer, or of an RDMA Write
  unsigned clients = 0;
};

// The state that both ends and the measuring process share. It lies in shared memory.
struct Shared {
  std::atomic<std::uint16_t> port{0};  // the server's port, in network byte order; 0 until it listens
  std::atomic<bool> connected{false};  // all clients are connected, and send requests
  std::atomic<bool> over{false};       // the clients receive the outstanding answers, and end
  struct alignas(64) Counter {         // in a cache line of its own, since each client writes its counter
    std::atomic<std::uint64_t> answers{0};
  };
  std::array<Counter, kMostClients> clients;
};

[[noreturn]] void fail(const char* what, int error = 0);
// Waits until the server listens. Returns its address and port.
sockaddr_in server_address(const Job& job, const Shared& shared);

// Plain TCP: the server has all its sockets, which do not block, in one epoll set. The sockets of the clients block.
void serve_tcp(const Job& job, Shared& shared);
void ask_tcp(const Job& job, Shared& shared);

// How the ends of an RDMA connection work.
enum class Style {
  events,  // Sends; the server waits in epoll_wait() for its completion channel, a client in ibv_get_cq_event()
  writes,  // the answer is an RDMA Write and a Send; a client has 32 requests outstanding; both ends poll
};
void serve_rdma(const Job& job, Style style, Shared& shared);
void ask_rdma(const Job& job, Style style, Shared& shared);

}  // namespace uiw::requests
