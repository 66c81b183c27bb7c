// SPDX-License-Identifier: MIT
#include "base/stream/tcp_stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <utility>

#include "tests/unit/base/stream/recording_tap.h"
#include "tests/unit/base/stream/tcp_pair.h"
#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;

namespace {

iovec vector_of(const Bytes& data) { return {const_cast<std::byte*>(data.data()), data.size()}; }

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  REQUIRE(::getsockopt(fd, level, name, &value, &size) == 0);
  return value;
}

}  // namespace

TEST_CASE("tcp_stream: a new socket is non-blocking, close-on-exec and does not delay", "[tcp_stream]") {
  const int family = GENERATE(AF_INET, AF_INET6);
  const TcpStream stream(TcpStream::open(family));
  if (!stream.is_open() && family == AF_INET6) return;
  REQUIRE(stream.is_open());
  CHECK((::fcntl(stream.fd(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(stream.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(option(stream.fd(), IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(option(stream.fd(), SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(TcpStream::open(12345) < 0);
}

TEST_CASE_METHOD(TcpPair, "tcp_stream: gathers, scatters, and says when it cannot", "[tcp_stream]") {
  Bytes into(100);
  CHECK(b.receive(MutableOctets(into)) == -EAGAIN);
  const Bytes first = pattern(10, 1), second = pattern(20, 2);
  iovec vectors[] = {vector_of(first), vector_of(second)};
  REQUIRE(a.send(vectors) == 30);
  TcpPair::wait(b, POLLIN);
  Bytes left(4), right(100);
  iovec to[] = {vector_of(left), vector_of(right)};
  REQUIRE(b.receive(std::span<iovec>(to)) == 30);
  CHECK(left == Bytes(first.begin(), first.begin() + 4));
  CHECK(std::equal(first.begin() + 4, first.end(), right.begin()));
  CHECK(std::equal(second.begin(), second.end(), right.begin() + 6));
  CHECK(b.receive(std::span<iovec>(to)) == -EAGAIN);

  // Until the socket is full: part of it first, then -EAGAIN; nothing is lost.
  const Bytes large = pattern(1'000'000);
  std::size_t sent = 0;
  for (;;) {
    iovec one = vector_of(large);
    const ssize_t n = a.send({&one, 1});
    if (n == -EAGAIN) break;
    REQUIRE(n > 0);
    sent += static_cast<std::size_t>(n);
    REQUIRE(sent < std::size_t{1} << 30);
  }
  a.shutdown_send();
  Bytes buffer(300'000);
  std::size_t received = 0;
  for (ssize_t n; (n = TcpPair::receive(b, buffer)) != 0;) {
    REQUIRE(n > 0);
    received += static_cast<std::size_t>(n);
  }
  CHECK(received == sent);
  // The other direction still stands.
  iovec back = vector_of(first);
  CHECK(b.send({&back, 1}) == 10);
  CHECK(TcpPair::receive(a, into) == 10);
}

TEST_CASE_METHOD(TcpPair, "tcp_stream: the end and the reset look different to the peer", "[tcp_stream]") {
  Bytes into(10);
  SECTION("close") {
    a.close();
    CHECK_FALSE(a.is_open());
    CHECK(TcpPair::receive(b, into) == 0);
  }
  SECTION("abort") {
    a.abort();
    CHECK_FALSE(a.is_open());
    CHECK(TcpPair::receive(b, into) == -ECONNRESET);
    // And no SIGPIPE.
    iovec one = vector_of(into);
    CHECK(b.send({&one, 1}) == -EPIPE);
  }
  a.close();
  a.abort();
  a.shutdown_send();
}

TEST_CASE_METHOD(TcpPair, "tcp_stream: source memory that is not there", "[tcp_stream]") {
  void* gone = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  iovec one{gone, 100};
  CHECK(a.send({&one, 1}) == -EFAULT);
  ::munmap(gone, 4096);
}

TEST_CASE_METHOD(TcpPair, "tcp_stream: moves and releases its descriptor", "[tcp_stream]") {
  const int fd = a.fd(), other = b.fd();
  TcpStream moved = std::move(a);
  CHECK(moved.fd() == fd);
  CHECK_FALSE(a.is_open());  // NOLINT(bugprone-use-after-move): that is the test
  moved = std::move(b);
  CHECK(moved.fd() == other);
  CHECK(::fcntl(fd, F_GETFD) == -1);
  CHECK(moved.release() == other);
  CHECK_FALSE(moved.is_open());
  CHECK(::close(other) == 0);
}

TEST_CASE("tcp_stream: segment size", "[tcp_stream]") {
  const TcpPair pair;
  CHECK(pair.a.segment_size() >= 536);
  CHECK(TcpStream().segment_size() == 536);
}

TEST_CASE_METHOD(TcpPair, "tcp_stream: a tap sees what passes, in both directions, and how it ends", "[tcp_stream]") {
  Tapped one, other;
  a.set_tap(std::make_unique<RecordingTap>(one));
  b.set_tap(std::make_unique<RecordingTap>(other));
  const Bytes first = pattern(10, 1), second = pattern(20, 2), third = pattern(5, 3);
  iovec vectors[] = {vector_of(first), vector_of(second)};
  REQUIRE(a.send(vectors) == 30);
  iovec hidden[] = {vector_of(third)};
  REQUIRE(a.send_untapped(hidden) == 5);
  CHECK(one.sent == Wire().add(first).add(second).bytes());

  Bytes wanted(4), staging(16), into(100);
  Octets rest;
  TcpPair::wait(b, POLLIN);
  REQUIRE(b.receive(wanted, staging, rest) == 20);
  REQUIRE(b.receive(MutableOctets(into).first(10)) == 10);
  REQUIRE(b.receive_untapped(MutableOctets(into)) == 5);
  CHECK(b.receive(MutableOctets(into)) == -EAGAIN);
  CHECK(other.received == one.sent);

  // The tap goes with the socket.
  TcpStream moved = std::move(a);
  CHECK(a.tap() == nullptr);
  moved.shutdown_send();
  CHECK(one.ends == " sent fin");
  REQUIRE(TcpPair::receive(b, into) == 0);
  CHECK(other.ends == " received fin");
  b.abort();
  CHECK(other.ends == " received fin sent rst");
  REQUIRE(TcpPair::receive(moved, into) == -ECONNRESET);
  CHECK(one.ends == " sent fin received rst");
  CHECK((one.received.empty() && other.sent.empty()));
}
