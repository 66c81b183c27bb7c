// SPDX-License-Identifier: MIT
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "tools/bench/requests/ends.h"

namespace uiw::requests {
namespace {

void send_at_once(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// The server's end of a connection. The answer repeats the octets of the request, so one buffer is enough.
class Connection {
 public:
  Connection(int fd, std::size_t size) : fd_(fd), buffer_(size) {}
  int fd() const { return fd_; }

  // Receives what has arrived of a request; once the request is whole, sends as much of the answer as possible without
  // blocking. False at the end of the connection, and on an error.
  bool serve(int epoll) {
    if (received_ < buffer_.size()) {
      const ssize_t got = recv(fd_, buffer_.data() + received_, buffer_.size() - received_, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (got <= 0) return false;
      received_ += static_cast<std::size_t>(got);
      if (received_ < buffer_.size()) return true;
    }
    const ssize_t sent = send(fd_, buffer_.data() + sent_, buffer_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) sent_ += static_cast<std::size_t>(sent);
    const bool complete = sent_ == buffer_.size();
    if (complete) received_ = sent_ = 0;
    wait_for(epoll, complete ? EPOLLIN : EPOLLOUT);
    return true;
  }

  void wait_for(int epoll, std::uint32_t events) {
    if (events == waiting_for_) return;
    epoll_event event{};
    event.events = events;
    event.data.ptr = this;
    if (epoll_ctl(epoll, waiting_for_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd_, &event) != 0) fail("epoll_ctl", errno);
    waiting_for_ = events;
  }

 private:
  int fd_;
  std::vector<char> buffer_;
  std::size_t received_ = 0, sent_ = 0;
  std::uint32_t waiting_for_ = 0;
};

int connect_to(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("connect", errno);
  send_at_once(fd);
  return fd;
}

void ask(int fd, std::size_t size, const std::atomic<bool>& over, std::atomic<std::uint64_t>& answers) {
  std::vector<char> buffer(size);
  while (!over.load(std::memory_order_relaxed)) {
    for (std::size_t sent = 0; sent < size;) {
      const ssize_t now = send(fd, buffer.data() + sent, size - sent, MSG_NOSIGNAL);
      if (now < 0) fail("send", errno);
      sent += static_cast<std::size_t>(now);
    }
    for (std::size_t received = 0; received < size;) {
      const ssize_t now = recv(fd, buffer.data() + received, size - received, 0);
      if (now <= 0) fail("recv", errno);
      received += static_cast<std::size_t>(now);
    }
    answers.fetch_add(1, std::memory_order_relaxed);
  }
  close(fd);
}

}  // namespace

void serve_tcp(const Job& job, Shared& shared) {
  sockaddr_in local = job.address;
  socklen_t length = sizeof local;
  auto* generic = reinterpret_cast<sockaddr*>(&local);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, generic, length) != 0 || listen(listener, kMostClients) != 0 ||
      getsockname(listener, generic, &length) != 0)
    fail("listen", errno);
  shared.port = local.sin_port;

  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  std::vector<Connection> connections;
  connections.reserve(job.clients);  // the elements must not move, since the epoll set has their addresses
  while (connections.size() < job.clients) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) fail("accept", errno);
    send_at_once(fd);
    connections.emplace_back(fd, job.size).wait_for(epoll, EPOLLIN);
  }
  std::array<epoll_event, 64> events{};
  for (std::size_t open = connections.size(); open > 0;) {
    const int count = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno != EINTR) fail("epoll_wait", errno);
    for (int i = 0; i < count; ++i) {
      auto* connection = static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (connection->serve(epoll)) continue;
      close(connection->fd());
      --open;
    }
  }
}

void ask_tcp(const Job& job, Shared& shared) {
  const sockaddr_in server = server_address(job, shared);
  std::vector<int> connections;
  for (unsigned i = 0; i < job.clients; ++i) connections.push_back(connect_to(server));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < job.clients; ++i)
    threads.emplace_back(ask, connections[i], job.size, std::cref(shared.over), std::ref(shared.clients[i].answers));
  shared.connected = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace uiw::requests
