// SPDX-License-Identifier: MIT
// uiw-tcp sends|setup ADDRESS SECONDS: measures plain TCP, as a reference. `uiw bench` runs it.
//
// "sends" measures how many small messages a second one connection carries, to compare with RDMA Writes of 8 octets. It
// sends 8 octets at a time, with TCP_NODELAY, over a connection of this process to itself, while a second thread
// receives them. It prints the sends a second; the time ends when the last octet has arrived. "setup" measures how long
// it takes to make connections, to compare with the set-up of queue pairs. In each round it makes 200 connections; the
// time begins before the first socket is created, and ends when an octet has arrived in each direction on all of them.
// It prints the median of the rounds, in microseconds for one end of a connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* call) {
  std::printf("%s: %s\n", call, std::strerror(errno));
  std::fflush(stdout);
  _exit(1);  // another thread may still use what destructors would take away
}

int checked(int result, const char* call) {
  if (result < 0) fail(call);
  return result;
}

int make_socket() { return checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"); }

// Listens at the address on a free port, and stores the port in `address`.
int listen_at(sockaddr_in& address) {
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int listener = make_socket();
  checked(bind(listener, generic, length), "bind");
  checked(listen(listener, 1), "listen");
  getsockname(listener, generic, &length);
  return listener;
}

// The descriptors of both ends of a connection.
struct Connection {
  int near, far;
};
Connection connect_to(int listener, const sockaddr_in& address) {
  const int near = make_socket();
  checked(connect(near, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
  return {near, checked(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept")};
}

void take_all(int fd) {
  std::vector<char> buffer(std::size_t{1} << 16);
  for (;;) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

double sends_per_second(int listener, const sockaddr_in& address, std::chrono::seconds duration) {
  const Connection connection = connect_to(listener, address);
  const int one = 1;
  setsockopt(connection.near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  std::thread taker(take_all, connection.far);
  const std::uint64_t message = 0;
  std::uint64_t count = 0;
  const Clock::time_point start = Clock::now();
  // The clock is read only once in 256 sends, so that the time for reading it does not matter.
  while (Clock::now() - start < duration) {
    for (int i = 0; i < 256; ++i) {
      if (send(connection.near, &message, sizeof message, MSG_NOSIGNAL) != sizeof message) fail("send");
      ++count;
    }
  }
  shutdown(connection.near, SHUT_WR);
  taker.join();
  const std::chrono::duration<double> took = Clock::now() - start;
  return static_cast<double>(count) / took.count();
}

// Measures one round of set-ups. Returns microseconds for each end.
double round(int listener, const sockaddr_in& address) {
  constexpr int kConnections = 200;
  std::vector<int> ends;
  char octet = 0;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kConnections; ++i) {
    const auto [near, far] = connect_to(listener, address);
    for (const int end : {near, far}) {
      if (send(end, &octet, 1, MSG_NOSIGNAL) != 1) fail("send");
      ends.push_back(end);
    }
  }
  for (const int end : ends) {
    if (recv(end, &octet, 1, 0) != 1) fail("recv");
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - start;
  for (const int end : ends) close(end);
  return took.count() / static_cast<double>(ends.size());
}

double setup_us(int listener, const sockaddr_in& address, std::chrono::seconds duration) {
  std::vector<double> rounds;
  const Clock::time_point end = Clock::now() + duration;
  do rounds.push_back(round(listener, address));
  while (Clock::now() < end);
  std::nth_element(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2), rounds.end());
  return rounds[rounds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 4 ? argv[1] : "";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if ((what != "sends" && what != "setup") || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
    std::fprintf(stderr, "usage: uiw-tcp sends|setup ADDRESS SECONDS; `uiw bench` runs it\n");
    return 2;
  }
  const std::chrono::seconds duration(std::atoi(argv[3]));
  const int listener = listen_at(address);
  if (what == "sends")
    std::printf("%.1f sends a second\n", sends_per_second(listener, address, duration));
  else
    std::printf("%.3f us an end\n", setup_us(listener, address, duration));
  return 0;
}
