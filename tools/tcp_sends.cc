// SPDX-License-Identifier: MIT
#include "tools/tcp_sends.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
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

double failed(std::string& error, const char* call) {
  error = std::string(call) + ": " + std::strerror(errno);
  return 0;
}

}  // namespace

double tcp_sends_per_second(const std::string& address, std::chrono::milliseconds duration,
                            std::string& error) {
  sockaddr_in local{};
  local.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &local.sin_addr);
  socklen_t length = sizeof local;
  auto* generic = reinterpret_cast<sockaddr*>(&local);
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Socket sender(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd() < 0 || sender.fd() < 0) return failed(error, "socket");
  if (bind(listener.fd(), generic, sizeof local) != 0 || listen(listener.fd(), 1) != 0)
    return failed(error, "listen");
  getsockname(listener.fd(), generic, &length);
  if (connect(sender.fd(), generic, sizeof local) != 0) return failed(error, "connect");
  const Socket receiver(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (receiver.fd() < 0) return failed(error, "accept");
  const int one = 1;
  setsockopt(sender.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);

  std::thread taker(take_all, receiver.fd());
  const std::uint64_t message = 0;
  std::uint64_t count = 0;
  bool good = true;
  const Clock::time_point start = Clock::now();
  // The clock is read once in a while, so that it does not count.
  while (good && interrupted() == 0 && Clock::now() - start < duration) {
    for (int i = 0; i < 256 && good; ++i) {
      good =
          send(sender.fd(), &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
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

}  // namespace uiw::tools
