// SPDX-License-Identifier: MIT
// Both sides of a connection over loopback, or a peer whose octets the test writes: observers that can be waited for, a
// listener, and TCP connections to it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "provider/connect/call.h"
#include "provider/connect/listener.h"
#include "provider/connect/startup/outgoing_call.h"
#include "tests/unit/provider/connect/loopback.h"
#include "tests/unit/provider/rnic.h"

namespace uiw::test {

using provider::Call;
using provider::CallParameters;
using provider::Listener;

class Observer final : public provider::CallObserver {
 public:
  void established(const CallParameters& peer) override {
    const std::lock_guard lock(mutex_);
    established_ = peer;
    changed_.notify_all();
  }
  void failed(int error, const CallParameters* peer) override {
    const std::lock_guard lock(mutex_);
    error_ = error;
    if (peer != nullptr) rejection_ = *peer;
    changed_.notify_all();
  }
  void disconnected() override {
    const std::lock_guard lock(mutex_);
    disconnected_ = true;
    changed_.notify_all();
  }
  std::optional<CallParameters> wait_established() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return established_ || error_ != 0; });
    return established_;
  }
  int wait_failed() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return error_ != 0; });
    return error_;
  }
  bool wait_disconnected() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return disconnected_; });
    return disconnected_;
  }
  std::optional<CallParameters> rejection() {
    const std::lock_guard lock(mutex_);
    return rejection_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<CallParameters> established_, rejection_;
  int error_ = 0;
  bool disconnected_ = false;
};

class Calls : public provider::ListenObserver {
 public:
  void requested(std::shared_ptr<Call> call, const CallParameters& peer) override {
    const std::lock_guard lock(mutex_);
    calls_.emplace_back(std::move(call), peer);
    changed_.notify_all();
  }
  std::pair<std::shared_ptr<Call>, CallParameters> next() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, [&] { return !calls_.empty(); }));
    auto call = std::move(calls_.front());
    calls_.erase(calls_.begin());
    return call;
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return calls_.size();
  }
  bool wait_count(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return calls_.size() >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::shared_ptr<Call>, CallParameters>> calls_;
};

struct Server {
  explicit Server(int backlog = 128, const std::shared_ptr<Calls>& observer = std::make_shared<Calls>())
      : calls(observer) {
    const int fd = provider::bind_socket(address, false);
    REQUIRE(fd >= 0);
    REQUIRE(provider::listen(fd, backlog, calls, listener) == 0);
    REQUIRE(reinterpret_cast<sockaddr_in&>(address).sin_port != 0);
  }
  // A TCP connection to it, whose octets the test writes.
  TcpStream dial() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)) == 0);
    return TcpStream(fd);
  }
  sockaddr_storage address = loopback();
  std::shared_ptr<Calls> calls;
  std::shared_ptr<Listener> listener;
};

// A peer to be called, whose octets the test writes.
struct RawServer {
  RawServer() { REQUIRE(::listen(listener.fd(), 2) == 0); }
  TcpStream accept() const {
    pollfd ready{listener.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    return TcpStream(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  sockaddr_storage address = loopback();
  TcpStream listener{provider::bind_socket(address, false)};
};

inline int call(Side& side, const sockaddr_storage& remote, const std::shared_ptr<Observer>& observer,
                std::shared_ptr<Call>& connection, const Bytes& private_data = {}, unsigned depth = 4) {
  const int fd = bound_socket();
  return provider::connect(fd, remote, {side.qp->number(), depth, depth, private_data}, -1, observer, connection);
}

// Until the peer ends: what it said, or a reset.
inline Bytes read_to_end(TcpStream& stream, bool* reset = nullptr) {
  Bytes all;
  for (;;) {
    std::byte buffer[4096];
    pollfd ready{stream.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    const ssize_t n = ::recv(stream.fd(), buffer, sizeof buffer, 0);
    if (reset != nullptr) *reset = n < 0;
    if (n <= 0) return all;
    all.insert(all.end(), buffer, buffer + n);
  }
}
inline Bytes read_exactly(TcpStream& stream, std::size_t size) {
  Bytes all(size);
  REQUIRE(::recv(stream.fd(), all.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  return all;
}
inline void say(TcpStream& stream, const Bytes& octets) {
  REQUIRE(::send(stream.fd(), octets.data(), octets.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(octets.size()));
}

}  // namespace uiw::test
