// SPDX-License-Identifier: MIT
// The octets of start-up: a peer that the test writes for calls, or is called.
#include <cstring>

#include "tests/unit/provider/connect/called_pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(CalledPair, "connection: a peer that says nothing meets the deadline", "[connection]") {
  SECTION("called") {
    sockaddr_storage address = loopback();
    TcpStream silent(provider::bind_socket(address, false));
    REQUIRE(::listen(silent.fd(), 1) == 0);
    REQUIRE(call(address) == 0);
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
    REQUIRE(in->accept({a.qp->number(), 1, 1, {}}, callee) == 0);
    CHECK(callee->wait_failed() == ETIMEDOUT);
    read_to_end(stream);
    CHECK(a.qp->state() == IBV_QPS_ERR);
  }
}

TEST_CASE("connection: callers that are none are turned away (RFC 5044 section 7.1)", "[connection]") {
  const Server server;
  const Bytes bad =
      GENERATE(Bytes(Wire().text("GET / HTTP/1.1\r\n\r\n")), Bytes(Wire().text("MPA ID Req Frame").u8(0).u8(3).u16(0)),
               Bytes(Wire().text("MPA ID Req Frame").u8(0).u8(1).u16(513)),
               Bytes(Wire().text("MPA ID Rep Frame").u8(0).u8(1).u16(0)),
               Bytes(Wire().text("MPA ID Req Frame").u8(0x10).u8(2).u16(2).u16(0)));
  auto stream = server.dial();
  say(stream, bad);
  CHECK(read_to_end(stream).empty());
  CHECK(server.calls->count() == 0);
}

TEST_CASE_METHOD(ServedPair, "connection: a caller of revision 1, its request in pieces (RFC 5044 section 7.1)",
                 "[connection]") {
  REQUIRE(a.post_receive(1, {}) == 0);
  auto stream = server.dial();
  const int on = 1;
  ::setsockopt(stream.fd(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
  const Bytes request = Wire().text("MPA ID Req Frame").u8(0x40).u8(1).u16(5).add(pattern(5));
  for (const std::byte octet : request) say(stream, {octet});
  auto [in, said] = server.calls->next();
  CHECK(said.private_data == pattern(5));
  REQUIRE(in->accept({a.qp->number(), 1, 1, pattern(3)}, callee) == 0);
  CHECK(read_exactly(stream, 23) == Wire().text("MPA ID Rep Frame").u8(0x40).u8(1).u16(3).add(pattern(3)).bytes());
  REQUIRE(callee->wait_established());
  // A Send of nothing, CRC on.
  const Bytes ulpdu = Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(1).u32(0);
  say(stream, fpdu(ulpdu, true));
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
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
    CHECK(read_to_end(stream) == fpdu(Wire().u8(0x41).u8(0x47).u32(0).u32(2).u32(1).u32(0).u32(0x20020000), true));
  }
}

TEST_CASE_METHOD(CalledPair, "connection: a called peer that knows only revision 1 (RFC 6581 section 7)",
                 "[connection]") {
  const RawServer server;
  REQUIRE(call(server.address, pattern(6)) == 0);
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

TEST_CASE_METHOD(CalledPair, "connection: replies that are none", "[connection]") {
  const RawServer server;
  REQUIRE(call(server.address) == 0);
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
  SECTION("the end") {
    peer.close();
    CHECK(caller->wait_failed() == ECONNRESET);
  }
  CHECK(a.qp->state() == IBV_QPS_INIT);
}

TEST_CASE_METHOD(CalledPair, "connection: a rejection brings the read depths of the peer (RFC 6581 section 9.1)",
                 "[connection]") {
  const RawServer server;
  REQUIRE(call(server.address) == 0);
  auto peer = server.accept();
  read_exactly(peer, 24);
  say(peer, Wire().text("MPA ID Rep Frame").u8(0x30).u8(2).u16(6).u16(3).u16(7).u16(0x1234));
  CHECK(caller->wait_failed() == ECONNREFUSED);
  REQUIRE(caller->rejection());
  CHECK(caller->rejection()->responder_resources == 3);
  CHECK(caller->rejection()->initiator_depth == 7);
  CHECK(caller->rejection()->private_data == Wire().u16(0x1234).bytes());
}

TEST_CASE_METHOD(CalledPair,
                 "connection: a caller that cannot use its queue pair any more tells the peer (RFC 6581 section 9.3)",
                 "[connection]") {
  const RawServer server;
  REQUIRE(call(server.address) == 0);
  auto peer = server.accept();
  read_exactly(peer, 24);
  SECTION("it is gone") { a.qp.reset(); }
  SECTION("it is in ERR") { REQUIRE(a.to(IBV_QPS_ERR) == 0); }
  say(peer, Wire().text("MPA ID Rep Frame").u8(0x10).u8(2).u16(4).u16(0x8001).u16(0x8001));
  CHECK(caller->wait_failed() == EINVAL);
  bool reset = false;
  CHECK(read_to_end(peer, &reset) == fpdu(Wire().u8(0x41).u8(0x47).u32(0).u32(2).u32(1).u32(0).u32(0x20050000), false));
  CHECK_FALSE(reset);
}
