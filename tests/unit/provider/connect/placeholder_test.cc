// SPDX-License-Identifier: MIT
// A connection of rdma_cm without a queue pair, against a peer whose octets the test reads and writes.
#include "provider/connect/startup/placeholder.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "provider/process/cm_loop.h"
#include "tests/unit/provider/awaitable.h"

namespace uiw::test {

namespace {

using mpa::ReadyToReceive;

class Owner final : public provider::ConnectionOwner, Awaitable {
 public:
  void connection_established() noexcept override {
    change([&] { established_ = true; });
  }
  void connection_ended() noexcept override {
    change([&] { ended_ = true; });
  }
  bool wait_established() {
    return wait([&] { return established_; });
  }
  bool wait_ended() {
    return wait([&] { return ended_; });
  }
  bool is_established() {
    return look([&] { return established_; });
  }

 private:
  bool established_ = false, ended_ = false;
};

// The two ends of a TCP connection, one of them held.
struct Held {
  explicit Held(bool initiator, ReadyToReceive rtr = ReadyToReceive::write) {
    auto [other, socket] = tcp_pair();
    peer = std::move(other);
    provider::Attachment attachment = attachment_of({.crc = true, .rtr = rtr}, initiator);
    attachment.owner = owner;
    REQUIRE(provider::CmLoop::instance().start() == 0);
    error = end->attach(socket, attachment);
  }
  void say(std::size_t octets) {
    const std::array<std::byte, 256> something{};
    REQUIRE(::send(peer.fd(), something.data(), octets, MSG_NOSIGNAL) == static_cast<ssize_t>(octets));
  }
  // What the peer hears next; a negative errno where it hears of a reset.
  ssize_t hear(std::array<std::byte, 256>& octets) {
    pollfd ready{peer.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    return peer.receive(MutableOctets(octets));
  }

  std::shared_ptr<Owner> owner = std::make_shared<Owner>();
  std::shared_ptr<provider::Placeholder> end = std::make_shared<provider::Placeholder>();
  TcpStream peer;
  int error = -1;
};

}  // namespace

TEST_CASE("the caller of a connection without a queue pair sends the ready-to-receive message when it confirms") {
  Held held(true);
  REQUIRE(held.error == 0);
  std::array<std::byte, 256> octets{};
  CHECK(held.peer.receive(MutableOctets(octets)) == -EAGAIN);
  held.end->confirm();
  held.end->confirm();
  // RFC 5044 figure 2: a ULPDU of 14 octets; RFC 5041 figure 3: tagged, last, version 1; RFC 5040 figure 3: an RDMA
  // Write of version 1; no payload, so the FPDU ends with the CRC, which was agreed on.
  REQUIRE(held.hear(octets) == 20);
  CHECK(std::memcmp(octets.data(), "\x00\x0e\xc1\x40", 4) == 0);
  CHECK(held.end->disconnect(held.owner.get()) == 0);
  CHECK(held.hear(octets) == 0);
  held.peer.shutdown_send();
  CHECK(held.owner->wait_ended());
  CHECK(held.end->disconnect(held.owner.get()) == ENOTCONN);
  CHECK_FALSE(held.owner->is_established());
}

TEST_CASE("the called side of a connection without a queue pair is established by the first message") {
  Held held(false);
  REQUIRE(held.error == 0);
  held.end->confirm();
  std::array<std::byte, 256> octets{};
  CHECK(held.peer.receive(MutableOctets(octets)) == -EAGAIN);
  CHECK_FALSE(held.owner->is_established());
  held.say(20);
  CHECK(held.owner->wait_established());
  held.peer.shutdown_send();
  CHECK(held.owner->wait_ended());
  CHECK(held.hear(octets) == 0);
}

TEST_CASE("a connection without a queue pair is reset when messages arrive on it") {
  Held held(GENERATE(false, true));
  REQUIRE(held.error == 0);
  held.say(20);
  held.say(45);
  CHECK(held.owner->wait_ended());
  std::array<std::byte, 256> octets{};
  CHECK(held.hear(octets) == -ECONNRESET);
}

TEST_CASE("a connection without a queue pair ends when the peer resets it") {
  Held held(true);
  held.peer.abort();
  CHECK(held.owner->wait_ended());
}

TEST_CASE("the called side of a connection without a queue pair gives up a peer that sends no first message") {
  Held held(false);
  const Owner other;
  held.end->no_first_message(&other);
  CHECK(held.end->disconnect(&other) == ENOTCONN);
  held.end->no_first_message(held.owner.get());
  CHECK(held.owner->wait_ended());
  std::array<std::byte, 256> octets{};
  CHECK(held.hear(octets) == -ECONNRESET);
}

TEST_CASE("a connection without a queue pair needs a peer that takes an RDMA Write as the first message") {
  Held held(true, ReadyToReceive::read);
  CHECK(held.error == EPROTO);
  CHECK(held.owner.use_count() == 1);
}

}  // namespace uiw::test
