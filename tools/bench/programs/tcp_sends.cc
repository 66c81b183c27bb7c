// SPDX-License-Identifier: MIT
#include "tools/bench/programs/tcp_sends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tools/child.h"

namespace uiw::tools {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

void take_all(int fd) {
  std::vector<char> buffer(std::size_t{1} << 16);
  for (;;) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

// Makes all connections of one round. False with errno.
bool connect_all(int listener, const sockaddr_in& address, std::vector<Socket>& ends) {
  constexpr int kConnections = 200;
  const char octet = 0;
  char got = 0;
  for (int i = 0; i < kConnections; ++i) {
    const int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ends.emplace_back(near);
    if (near < 0 || connect(near, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
    const int far = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ends.emplace_back(far);
    if (far < 0 || send(near, &octet, 1, MSG_NOSIGNAL) != 1 || send(far, &octet, 1, MSG_NOSIGNAL) != 1) return false;
  }
  for (const Socket& end : ends) {
    if (recv(end.fd(), &got, 1, 0) != 1) return false;
  }
  return true;
}

// Listens at the address on any port, which it stores in `local`. On failure the socket is closed and errno set.
Socket listen_at(const std::string& address, sockaddr_in& local) {
  local.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &local.sin_addr);
  socklen_t length = sizeof local;
  auto* generic = reinterpret_cast<sockaddr*>(&local);
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd() < 0 || bind(listener.fd(), generic, length) != 0 || listen(listener.fd(), 1) != 0)
    return Socket(-1);
  getsockname(listener.fd(), generic, &length);
  return listener;
}

double failed(std::string& error, const char* call) {
  error = std::string(call) + ": " + std::strerror(errno);
  return 0;
}

}  // namespace

double tcp_sends_per_second(const std::string& address, std::chrono::milliseconds duration, std::string& error) {
  sockaddr_in local{};
  const Socket listener = listen_at(address, local);
  if (listener.fd() < 0) return failed(error, "listen");
  const Socket sender(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (sender.fd() < 0) return failed(error, "socket");
  if (connect(sender.fd(), reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0)
    return failed(error, "connect");
  const Socket receiver(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (receiver.fd() < 0) return failed(error, "accept");
  const int one = 1;
  setsockopt(sender.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

  std::thread taker(take_all, receiver.fd());
  const std::uint64_t message = 0;
  std::uint64_t count = 0;
  bool good = true;
  const Clock::time_point start = Clock::now();
  // The clock is read only from time to time, so that reading it does not count.
  while (good && interrupted() == 0 && Clock::now() - start < duration) {
    for (int i = 0; i < 256 && good; ++i) {
      good = send(sender.fd(), &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
      ++count;
    }
  }
  const int reason = errno;
  shutdown(sender.fd(), SHUT_WR);
  taker.join();
  const std::chrono::duration<double> took = Clock::now() - start;
  if (!good && interrupted() == 0) {
    errno = reason;
    return failed(error, "send");
  }
  return static_cast<double>(count) / took.count();
}

double tcp_setup_us(const std::string& address, std::chrono::milliseconds duration, std::string& error) {
  sockaddr_in local{};
  const Socket listener = listen_at(address, local);
  if (listener.fd() < 0) return failed(error, "listen");
  std::vector<double> rounds;
  const Clock::time_point end = Clock::now() + duration;
  do {
    std::vector<Socket> ends;
    const Clock::time_point start = Clock::now();
    if (!connect_all(listener.fd(), local, ends)) return failed(error, "a connection");
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    rounds.push_back(took.count() / static_cast<double>(ends.size()));
  } while (Clock::now() < end && interrupted() == 0);
  std::nth_element(rounds.begin(), rounds.begin() + static_cast<std::ptrdiff_t>(rounds.size() / 2), rounds.end());
  return rounds[rounds.size() / 2];
}

}  // namespace uiw::tools
