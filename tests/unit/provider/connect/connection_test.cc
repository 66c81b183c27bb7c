// SPDX-License-Identifier: MIT
// Connections over loopback: both sides in this process, or a peer that speaks by hand.
#include "provider/connect/connection.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "mpa/descriptor.h"
#include "provider/connect/local_address.h"
#include "tests/unit/provider/rnic.h"

using namespace uiw;
using namespace uiw::test;
using provider::Connection;
using provider::ConnectionParameters;
using provider::Listener;

namespace {

class Observer final : public provider::ConnectionObserver {
 public:
  void established(const ConnectionParameters& peer) override {
    const std::lock_guard lock(mutex_);
    established_ = peer;
    changed_.notify_all();
  }
  void failed(int error, const ConnectionParameters* peer) override {
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
  std::optional<ConnectionParameters> wait_established() {
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
  std::optional<ConnectionParameters> rejection() {
    const std::lock_guard lock(mutex_);
    return rejection_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ConnectionParameters> established_, rejection_;
  int error_ = 0;
  bool disconnected_ = false;
};

class Calls final : public provider::ListenObserver {
 public:
  void requested(std::shared_ptr<Connection> call, const ConnectionParameters& peer) override {
    const std::lock_guard lock(mutex_);
    calls_.emplace_back(std::move(call), peer);
    changed_.notify_all();
  }
  std::pair<std::shared_ptr<Connection>, ConnectionParameters> next() {
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

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::shared_ptr<Connection>, ConnectionParameters>> calls_;
};

sockaddr_storage loopback(std::uint16_t port = 0) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return storage;
}

struct Server {
  Server() {
    const int fd = provider::bind_socket(address, false);
    REQUIRE(fd >= 0);
    REQUIRE(provider::listen(fd, 128, calls, listener) == 0);
    REQUIRE(reinterpret_cast<sockaddr_in&>(address).sin_port != 0);
  }
  // A TCP connection to it that speaks by hand.
  mpa::TcpStream dial() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)) == 0);
    return mpa::TcpStream(fd);
  }
  sockaddr_storage address = loopback();
  std::shared_ptr<Calls> calls = std::make_shared<Calls>();
  std::shared_ptr<Listener> listener;
};

// A peer to be called, which speaks by hand.
struct HandServer {
  HandServer() { REQUIRE(::listen(listener.fd(), 2) == 0); }
  mpa::TcpStream accept() const {
    pollfd ready{listener.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    return mpa::TcpStream(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  sockaddr_storage address = loopback();
  mpa::TcpStream listener{provider::bind_socket(address, false)};
};

int socket_to_call_with() {
  sockaddr_storage local = loopback();
  const int fd = provider::bind_socket(local, false);
  REQUIRE(fd >= 0);
  return fd;
}

int call(Side& side, const sockaddr_storage& remote, const std::shared_ptr<Observer>& observer,
         std::shared_ptr<Connection>& connection, const Bytes& private_data = {}, unsigned depth = 4) {
  const int fd = socket_to_call_with();
  return provider::connect(fd, remote, {side.qp->number(), depth, depth, private_data}, -1, observer, connection);
}

// Until the peer ends: what it said, or a reset.
Bytes read_to_end(mpa::TcpStream& stream, bool* reset = nullptr) {
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
Bytes read_exactly(mpa::TcpStream& stream, std::size_t size) {
  Bytes all(size);
  REQUIRE(::recv(stream.fd(), all.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  return all;
}
void say(mpa::TcpStream& stream, const Bytes& octets) {
  REQUIRE(::send(stream.fd(), octets.data(), octets.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(octets.size()));
}

}  // namespace

TEST_CASE("connection: call, accept, traffic, orderly end", "[connection]") {
  const auto context = open_loopback();
  const Server server;
  Side a(*context), b(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(b.to(IBV_QPS_INIT) == 0);
  const auto caller = std::make_shared<Observer>(), callee = std::make_shared<Observer>();
  std::shared_ptr<Connection> out;
  REQUIRE(call(a, server.address, caller, out, pattern(20, 1), 3) == 0);
  auto [in, said] = server.calls->next();
  CHECK(said.private_data == pattern(20, 1));
  CHECK(said.responder_resources == 3);
  CHECK(said.initiator_depth == 3);
  REQUIRE(in->accept({b.qp->number(), 2, 2, pattern(30, 2)}, callee) == 0);
  CHECK(in->accept({b.qp->number(), 2, 2, {}}, callee) == EINVAL);
  CHECK(in->reject({}) == EINVAL);
  const auto reply = caller->wait_established();
  REQUIRE(reply);
  CHECK(reply->private_data == pattern(30, 2));
  REQUIRE(callee->wait_established());
  CHECK(a.qp->state() == IBV_QPS_RTS);
  CHECK(b.qp->state() == IBV_QPS_RTS);
  const auto local = in->local_address(), remote = out->remote_address();
  CHECK(std::memcmp(&local, &remote, sizeof(sockaddr_in)) == 0);
  const auto there = in->remote_address(), here = out->local_address();
  CHECK(std::memcmp(&there, &here, sizeof(sockaddr_in)) == 0);
  // Both ways.
  for (Side* side : {&a, &b}) {
    Side& other = side == &a ? b : a;
    REQUIRE(other.post_receive(1, {}) == 0);
    REQUIRE(side->post(IBV_WR_SEND, 1, {}) == 0);
    CHECK(next(*other.receive_cq).status == IBV_WC_SUCCESS);
    CHECK(next(*side->send_cq).status == IBV_WC_SUCCESS);
  }
  const bool active = GENERATE(false, true);
  CHECK((active ? out : in)->disconnect() == 0);
  CHECK(caller->wait_disconnected());
  CHECK(callee->wait_disconnected());
  CHECK(a.qp->state() == IBV_QPS_ERR);
  CHECK(b.qp->state() == IBV_QPS_ERR);
  CHECK(out->disconnect() == ENOTCONN);
  CHECK(in->disconnect() == ENOTCONN);
}

TEST_CASE("connection: rejected with private data", "[connection]") {
  const auto context = open_loopback();
  const Server server;
  Side a(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  const auto caller = std::make_shared<Observer>();
  std::shared_ptr<Connection> out;
  REQUIRE(call(a, server.address, caller, out) == 0);
  auto [in, said] = server.calls->next();
  CHECK(in->reject(pattern(77)) == 0);
  CHECK(caller->wait_failed() == ECONNREFUSED);
  REQUIRE(caller->rejection());
  CHECK(caller->rejection()->private_data == pattern(77));
  CHECK(in->disconnect() == ENOTCONN);
  CHECK(out->disconnect() == ENOTCONN);
  // The queue pair may call again.
  const auto again = std::make_shared<Observer>();
  REQUIRE(call(a, server.address, again, out) == 0);
  CHECK(server.calls->next().first->reject({}) == 0);
  CHECK(again->wait_failed() == ECONNREFUSED);
}

TEST_CASE("connection: nobody listens, or a moment later", "[connection]") {
  const auto context = open_loopback();
  Side a(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  sockaddr_storage address = loopback();
  const int fd = provider::bind_socket(address, false);
  const auto caller = std::make_shared<Observer>();
  std::shared_ptr<Connection> out;
  REQUIRE(call(a, address, caller, out) == 0);  // and is refused right then
  const bool later = GENERATE(false, true);
  std::shared_ptr<Listener> listener;
  if (later) {
    const auto calls = std::make_shared<Calls>();
    REQUIRE(provider::listen(fd, 8, calls, listener) == 0);
    CHECK(calls->next().first->reject(pattern(1)) == 0);
  }
  CHECK(caller->wait_failed() == ECONNREFUSED);
  CHECK(caller->rejection().has_value() == later);
  if (!later) ::close(fd);
}

TEST_CASE("connection: a queue pair that cannot take a stream", "[connection]") {
  const auto context = open_loopback();
  const Server server;
  Side a(*context), b(*context);
  const auto caller = std::make_shared<Observer>();
  std::shared_ptr<Connection> out;
  CHECK(call(a, server.address, caller, out) == EINVAL);  // RESET
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(call(a, server.address, caller, out) == 0);
  auto [in, said] = server.calls->next();
  CHECK(in->accept({b.qp->number(), 1, 1, {}}, caller) == EINVAL);  // RESET
  CHECK(in->accept({12345, 1, 1, {}}, caller) == EINVAL);           // none
  CHECK(in->disconnect() == ENOTCONN);
  in.reset();  // dropped without an answer
  CHECK(caller->wait_failed() == ECONNRESET);
}

TEST_CASE("connection: a peer that says nothing meets the deadline", "[connection]") {
  const auto context = open_loopback();
  Side a(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  SECTION("called") {
    sockaddr_storage address = loopback();
    mpa::TcpStream silent(provider::bind_socket(address, false));
    REQUIRE(::listen(silent.fd(), 1) == 0);
    const auto caller = std::make_shared<Observer>();
    std::shared_ptr<Connection> out;
    REQUIRE(call(a, address, caller, out) == 0);
    CHECK(caller->wait_failed() == ETIMEDOUT);
  }
  SECTION("calling") {
    const Server server;
    auto stream = server.dial();
    say(stream, Wire().text("MPA ID Req Frame").u8(0).u8(1));  // and not the rest
    read_to_end(stream);
    CHECK(server.calls->count() == 0);
  }
  SECTION("calling, and then no ready-to-receive message") {
    const Server server;
    auto stream = server.dial();
    say(stream, Wire().text("MPA ID Req Frame").u8(0x10).u8(2).u16(4).u16(0x8001).u16(0x8001));
    auto [in, said] = server.calls->next();
    const auto callee = std::make_shared<Observer>();
    REQUIRE(in->accept({a.qp->number(), 1, 1, {}}, callee) == 0);
    CHECK(callee->wait_failed() != 0);
    read_to_end(stream);
    CHECK(a.qp->state() == IBV_QPS_ERR);
  }
}

TEST_CASE("connection: callers that are none are turned away (RFC 5044 section 7.1)", "[connection]") {
  const Server server;
  const Bytes bad = GENERATE(
      Bytes(Wire().text("GET / HTTP/1.1\r\n\r\n")), Bytes(Wire().text("MPA ID Req Frame").u8(0).u8(3).u16(0)),
      Bytes(Wire().text("MPA ID Req Frame").u8(0).u8(1).u16(513)),
      Bytes(Wire().text("MPA ID Rep Frame").u8(0).u8(1).u16(0)),
      Bytes(Wire().text("MPA ID Req Frame").u8(0x10).u8(2).u16(2).u16(0)));
  auto stream = server.dial();
  say(stream, bad);
  CHECK(read_to_end(stream).empty());
  CHECK(server.calls->count() == 0);
}

TEST_CASE("connection: a caller that wants markers is rejected", "[connection]") {
  const Server server;
  auto stream = server.dial();
  say(stream, Wire().text("MPA ID Req Frame").u8(0x80).u8(1).u16(0));
  const Bytes reply = read_to_end(stream);
  REQUIRE(reply.size() >= 20);
  CHECK(std::memcmp(reply.data(), "MPA ID Rep Frame", 16) == 0);
  CHECK((reply[16] & std::byte{0x20}) != std::byte{0});
  CHECK(server.calls->count() == 0);
}

TEST_CASE("connection: a caller of revision 1, its request in pieces (RFC 5044 section 7.1)", "[connection]") {
  const auto context = open_loopback();
  const Server server;
  Side b(*context);
  REQUIRE(b.to(IBV_QPS_INIT) == 0);
  REQUIRE(b.post_receive(1, {}) == 0);
  auto stream = server.dial();
  const int on = 1;
  ::setsockopt(stream.fd(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
  const Bytes request = Wire().text("MPA ID Req Frame").u8(0x40).u8(1).u16(5).add(pattern(5));
  for (const std::byte octet : request) say(stream, {octet});
  auto [in, said] = server.calls->next();
  CHECK(said.private_data == pattern(5));
  const auto callee = std::make_shared<Observer>();
  REQUIRE(in->accept({b.qp->number(), 1, 1, pattern(3)}, callee) == 0);
  CHECK(read_exactly(stream, 23) == Wire().text("MPA ID Rep Frame").u8(0x40).u8(1).u16(3).add(pattern(3)).bytes());
  REQUIRE(callee->wait_established());
  // A Send of nothing, CRC on.
  const Bytes ulpdu = Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(1).u32(0);
  say(stream, fpdu(ulpdu, true));
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  SECTION("the peer ends in good order") {
    stream.shutdown_send();
    CHECK(callee->wait_disconnected());
    read_to_end(stream);
  }
  SECTION("the peer resets") {
    stream.abort();
    CHECK(callee->wait_disconnected());
  }
  SECTION("a bad CRC: a Terminate of LLP, MPA CRC error (RFC 5044 section 8)") {
    Bytes bad = fpdu(Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(2).u32(0), true);
    bad.back() ^= std::byte{1};
    say(stream, bad);
    CHECK(callee->wait_disconnected());
    const Bytes out = read_to_end(stream);
    CHECK(out == fpdu(Wire().u8(0x41).u8(0x47).u32(0).u32(2).u32(1).u32(0).u32(0x20020000), true));
  }
}

TEST_CASE("connection: a called peer that knows only revision 1 (RFC 6581 section 7)", "[connection]") {
  const auto context = open_loopback();
  Side a(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  const HandServer server;
  const auto caller = std::make_shared<Observer>();
  std::shared_ptr<Connection> out;
  REQUIRE(call(a, server.address, caller, out, pattern(6)) == 0);
  auto first = server.accept();
  const Bytes request = read_exactly(first, 30);
  CHECK(request[17] == std::byte{2});
  CHECK(Bytes(request.begin() + 24, request.end()) == pattern(6));
  say(first, Wire().text("MPA ID Rep Frame").u8(0x20).u8(1).u16(0));
  auto second = server.accept();
  const Bytes again = read_exactly(second, 26);
  CHECK(again[17] == std::byte{1});
  CHECK((again[16] & std::byte{0x10}) == std::byte{0});
  CHECK(Bytes(again.begin() + 20, again.end()) == pattern(6));
  say(second, Wire().text("MPA ID Rep Frame").u8(0).u8(1).u16(2).add(pattern(2)));
  const auto peer = caller->wait_established();
  REQUIRE(peer);
  CHECK(peer->private_data == pattern(2));
  CHECK(read_to_end(first).empty());
}

TEST_CASE("connection: replies that are none", "[connection]") {
  const auto context = open_loopback();
  Side a(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  const HandServer server;
  const auto caller = std::make_shared<Observer>();
  std::shared_ptr<Connection> out;
  REQUIRE(call(a, server.address, caller, out) == 0);
  auto peer = server.accept();
  read_exactly(peer, 24);
  SECTION("another protocol") {
    say(peer, Wire().text("220 mail ready\r\n"));
    CHECK(caller->wait_failed() == EPROTO);
  }
  SECTION("no ready-to-receive message that both can do") {
    say(peer, Wire().text("MPA ID Rep Frame").u8(0x10).u8(2).u16(4).u16(0x8001).u16(0x0001));
    CHECK(caller->wait_failed() == EPROTO);
  }
  SECTION("markers") {
    say(peer, Wire().text("MPA ID Rep Frame").u8(0x90).u8(2).u16(4).u16(0x8001).u16(0x8001));
    CHECK(caller->wait_failed() == EPROTO);
  }
  SECTION("the end") {
    peer.close();
    CHECK(caller->wait_failed() == ECONNRESET);
  }
  CHECK(a.qp->state() == IBV_QPS_INIT);
}

TEST_CASE("connection: dropping a call or a listener", "[connection]") {
  const auto context = open_loopback();
  Side a(*context);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  auto server = std::make_unique<Server>();
  const sockaddr_storage address = server->address;
  SECTION("a call that is not established: no callback") {
    const auto caller = std::make_shared<Observer>();
    std::shared_ptr<Connection> out;
    REQUIRE(call(a, address, caller, out) == 0);
    auto [in, said] = server->calls->next();
    out.reset();
    CHECK_FALSE(caller->rejection());
    Side b(*context);
    REQUIRE(b.to(IBV_QPS_INIT) == 0);
    // Accepted or not: the caller is gone, and that ends it.
    const auto callee = std::make_shared<Observer>();
    if (in->accept({b.qp->number(), 1, 1, {}}, callee) == 0) CHECK(callee->wait_failed() != 0);
  }
  SECTION("a listener: calls handed out live on") {
    const auto caller = std::make_shared<Observer>();
    std::shared_ptr<Connection> out;
    REQUIRE(call(a, address, caller, out) == 0);
    auto [in, said] = server->calls->next();
    server->listener.reset();
    CHECK(in->reject({}) == 0);
    CHECK(caller->wait_failed() == ECONNREFUSED);
    CHECK(caller->rejection());
    const auto again = std::make_shared<Observer>();
    REQUIRE(call(a, address, again, out) == 0);
    CHECK(again->wait_failed() == ECONNREFUSED);
    CHECK_FALSE(again->rejection());
  }
}

TEST_CASE("connection: sockets and addresses", "[connection]") {
  sockaddr_storage address{};
  address.ss_family = AF_UNIX;
  CHECK(provider::bind_socket(address, false) == -EAFNOSUPPORT);
  address = loopback();
  reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1
  CHECK(provider::bind_socket(address, false) == -EADDRNOTAVAIL);
  const Server server;
  sockaddr_storage same = server.address;
  CHECK(provider::bind_socket(same, false) == -EADDRINUSE);

  sockaddr_storage source{};
  const sockaddr_storage destination = loopback(80);
  const auto* to = reinterpret_cast<const sockaddr*>(&destination);
  REQUIRE(provider::choose_source(to, nullptr, source) == 0);
  CHECK(reinterpret_cast<sockaddr_in&>(source).sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  CHECK(reinterpret_cast<sockaddr_in&>(source).sin_port == 0);
  sockaddr_storage wanted = loopback(99);
  reinterpret_cast<sockaddr_in&>(wanted).sin_addr.s_addr = htonl(0x7F000005);
  REQUIRE(provider::choose_source(to, reinterpret_cast<sockaddr*>(&wanted), source) == 0);
  CHECK(reinterpret_cast<sockaddr_in&>(source).sin_addr.s_addr == htonl(0x7F000005));
  reinterpret_cast<sockaddr_in&>(wanted).sin_addr.s_addr = htonl(0xC0000201);
  CHECK(provider::choose_source(to, reinterpret_cast<sockaddr*>(&wanted), source) == EADDRNOTAVAIL);
  wanted.ss_family = AF_INET6;
  CHECK(provider::choose_source(to, reinterpret_cast<sockaddr*>(&wanted), source) == EAFNOSUPPORT);
  wanted.ss_family = AF_UNIX;
  CHECK(provider::choose_source(reinterpret_cast<sockaddr*>(&wanted), nullptr, source) == EAFNOSUPPORT);
}

TEST_CASE("connection: many at once", "[connection]") {
  const auto context = open_loopback();
  const Server server;
  constexpr std::size_t kCount = 30;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::shared_ptr<Observer>> observers;
  std::vector<std::shared_ptr<Connection>> connections(kCount);
  for (std::size_t i = 0; i < 2 * kCount; ++i) {
    sides.push_back(std::make_unique<Side>(*context));
    observers.push_back(std::make_shared<Observer>());
    REQUIRE(sides.back()->to(IBV_QPS_INIT) == 0);
    REQUIRE(sides.back()->post_receive(1, {}) == 0);
  }
  for (std::size_t i = 0; i < kCount; ++i) REQUIRE(call(*sides[i], server.address, observers[i], connections[i]) == 0);
  for (std::size_t i = kCount; i < 2 * kCount; ++i) {
    auto [in, said] = server.calls->next();
    REQUIRE(in->accept({sides[i]->qp->number(), 4, 4, {}}, observers[i]) == 0);
  }
  for (auto& observer : observers) REQUIRE(observer->wait_established());
  for (auto& side : sides) REQUIRE(side->post(IBV_WR_SEND, 1, {}) == 0);
  for (auto& side : sides) CHECK(next(*side->receive_cq).status == IBV_WC_SUCCESS);
  for (auto& connection : connections) CHECK(connection->disconnect() == 0);
  for (auto& observer : observers) CHECK(observer->wait_disconnected());
}

namespace {

std::size_t open_descriptors() {
  std::size_t count = 0;
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int fd = 0; fd < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096)); ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

class Limit {
 public:
  explicit Limit(const rlimit& limit) { REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0); }
  ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  const rlimit before_ = [] {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    return before;
  }();
};

// A client whose connection is answered.
void real_call(const Server& server, Side& client, Side& side, int fd) {
  for (Side* one : {&client, &side}) REQUIRE(one->to(IBV_QPS_INIT) == 0);
  const auto observer = std::make_shared<Observer>(), accepted = std::make_shared<Observer>();
  std::shared_ptr<Connection> connection;
  REQUIRE(provider::connect(fd, server.address, {client.qp->number(), 4, 4, {}}, -1, observer, connection) == 0);
  const auto taken = server.calls->next();
  REQUIRE(taken.first->accept({side.qp->number(), 4, 4, {}}, accepted) == 0);
  REQUIRE(observer->wait_established());
}

}  // namespace

TEST_CASE("calls that say nothing are bounded, and keep nobody out", "[connection]") {
  const Server server;
  const std::size_t before = open_descriptors();
  std::vector<mpa::TcpStream> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(server.dial());
  // The oldest have given way.
  std::byte octet;
  pollfd ended{silent.front().fd(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, 30'000) == 1);
  CHECK(::recv(silent.front().fd(), &octet, 1, 0) <= 0);
  CHECK(open_descriptors() - before <= 300 + 130);
  const auto context = open_loopback();
  Side client(*context), side(*context);
  real_call(server, client, side, socket_to_call_with());
}

TEST_CASE("calls that say nothing give way to the next where no descriptor is free", "[connection]") {
  const Server server;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // In another process, so that they take none of the descriptors here.
  int start[2], done[2];
  REQUIRE(::pipe(start) == 0);
  REQUIRE(::pipe(done) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char octet = 0;
    bool all = ::read(start[0], &octet, 1) == 1;
    for (int i = 0; i < 100; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      all = ::connect(fd, reinterpret_cast<const sockaddr*>(&server.address), sizeof(sockaddr_in)) == 0 && all;
    }
    if (!all || ::write(done[1], &octet, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  REQUIRE(child > 0);
  const auto context = open_loopback();
  Side first_client(*context), first_side(*context), client(*context), side(*context);
  real_call(server, first_client, first_side, socket_to_call_with());  // what a context needs but once is there
  const int fd_of_client = socket_to_call_with();
  rlimit small = before;
  small.rlim_cur = open_descriptors() + 8 + mpa::kDescriptorsLeft;
  {
    const Limit few(small);
    char octet = 0;
    CHECK(::write(start[1], &octet, 1) == 1);
    CHECK(::read(done[0], &octet, 1) == 1);
    real_call(server, client, side, fd_of_client);
  }
  for (const int fd : {start[0], start[1], done[0], done[1]}) ::close(fd);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
