// SPDX-License-Identifier: MIT
// Two ends of a TCP connection over loopback, for tests of streams of octets.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <utility>

#include "base/stream/tcp_stream.h"
#include "tests/unit/octets.h"

namespace uiw::test {

inline std::pair<TcpStream, TcpStream> tcp_pair() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const TcpStream listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener.fd(), 1) == 0);
  REQUIRE(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  TcpStream a(TcpStream::open(AF_INET));
  if (::connect(a.fd(), reinterpret_cast<sockaddr*>(&address), size) != 0) REQUIRE(errno == EINPROGRESS);
  TcpStream b(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  REQUIRE(b.is_open());
  TcpStream::set_options(b.fd());
  pollfd ready{a.fd(), POLLOUT, 0};
  REQUIRE(::poll(&ready, 1, 10'000) == 1);
  return {std::move(a), std::move(b)};
}

struct TcpPair {
  TcpStream a, b;
  TcpPair() : TcpPair(tcp_pair()) {}
  explicit TcpPair(std::pair<TcpStream, TcpStream> both) : a(std::move(both.first)), b(std::move(both.second)) {}
  static void wait(const TcpStream& stream, short events) {
    pollfd ready{stream.fd(), events, 0};
    REQUIRE(::poll(&ready, 1, 10'000) == 1);
  }
  // The next result other than -EAGAIN.
  static ssize_t receive(TcpStream& stream, Bytes& to) {
    for (;;) {
      const ssize_t n = stream.receive(MutableOctets(to));
      if (n != -EAGAIN) return n;
      wait(stream, POLLIN);
    }
  }
};

}  // namespace uiw::test
