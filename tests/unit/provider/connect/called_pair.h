// SPDX-License-Identifier: MIT
// Two queue pairs of which one calls and the other one is called, or a peer whose octets the test writes: observers
// that can be waited for, a listener, and TCP connections to it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "provider/connect/call.h"
#include "provider/connect/listener.h"
#include "provider/connect/startup/outgoing_call.h"
#include "tests/unit/provider/awaitable.h"
#include "tests/unit/provider/connect/loopback.h"

namespace uiw::test {

using provider::Call;
using provider::CallParameters;
using provider::Listener;

class Observer final : public provider::CallObserver, Awaitable {
 public:
  void established(const CallParameters& peer) override {
    change([&] { established_ = peer; });
  }
  void failed(int error, const CallParameters* peer) override {
    change([&] {
      error_ = error;
      if (peer != nullptr) rejection_ = *peer;
    });
  }
  void disconnected() override {
    change([&] { disconnected_ = true; });
  }
  std::optional<CallParameters> wait_established() {
    wait([&] { return established_ || error_ != 0; });
    return look([&] { return established_; });
  }
  int wait_failed() {
    wait([&] { return error_ != 0; });
    return look([&] { return error_; });
  }
  bool wait_disconnected() {
    return wait([&] { return disconnected_; });
  }
  std::optional<CallParameters> rejection() {
    return look([&] { return rejection_; });
  }

 private:
  std::optional<CallParameters> established_, rejection_;
  int error_ = 0;
  bool disconnected_ = false;
};

class Calls : public provider::ListenObserver, Awaitable {
 public:
  using Requested = std::pair<std::shared_ptr<Call>, CallParameters>;
  void requested(std::shared_ptr<Call> call, const CallParameters& peer) override {
    change([&] { calls_.emplace_back(std::move(call), peer); });
  }
  Requested next() {
    REQUIRE(wait_count(1));
    return look([&] {
      Requested call = std::move(calls_.front());
      calls_.pop_front();
      return call;
    });
  }
  std::size_t count() {
    return look([&] { return calls_.size(); });
  }
  bool wait_count(std::size_t count) {
    return wait([&] { return calls_.size() >= count; });
  }

 private:
  std::deque<Requested> calls_;
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

// Of the two queue pairs, both in INIT, `a` calls.
struct CalledPair : InitPair {
  // 0 or an errno.
  int call(const sockaddr_storage& remote, const Bytes& private_data = {}, unsigned depth = 4) {
    return test::call(a, remote, caller, out, private_data, depth);
  }
  std::shared_ptr<Observer> caller = std::make_shared<Observer>(), callee = std::make_shared<Observer>();
  std::shared_ptr<Call> out;
};
// By a listener.
struct ServedPair : CalledPair {
  int call(const Bytes& private_data = {}, unsigned depth = 4) {
    return CalledPair::call(server.address, private_data, depth);
  }
  Server server;
};

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
