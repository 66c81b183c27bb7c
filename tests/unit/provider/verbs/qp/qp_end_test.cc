// SPDX-License-Identifier: MIT
// How the stream of a queue pair ends: in order, by an error of either side, or of TCP; and the async events of the
// Verbs draft's figures 24 and 25.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/grace_period.h"
#include "provider/connect/qp_table.h"
#include "provider/verbs/qp/qp.h"
#include "tests/unit/provider/memory/window_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

// Up to the end of the stream: octets, and the errno of a reset.
std::pair<Bytes, int> rest_of(const TcpStream& peer) {
  Bytes sent;
  for (;;) {
    pollfd ready{peer.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    std::byte part[65536];
    const ssize_t n = ::recv(peer.fd(), part, sizeof part, 0);
    if (n < 0) return {sent, errno};
    if (n == 0) return {sent, 0};
    sent.insert(sent.end(), part, part + n);
  }
}

}  // namespace

TEST_CASE_METHOD(ConnectedPair, "qp: a bad lkey completes in its turn and ends the stream", "[qp]") {
  Registered memory(a, Bytes(100), kAll);
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
  ibv_sge sge = memory.sge();
  sge.lkey ^= 1;
  REQUIRE(a.post(IBV_WR_SEND, 2, {sge}) == 0);
  a.post(IBV_WR_SEND, 3, {});
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  check_next(*a.send_cq, 2, IBV_WC_LOC_PROT_ERR);
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(enter_error());
}

TEST_CASE_METHOD(PairApart, "qp: a read of what is not allowed fails at both ends (RFC 5040 section 7.2)", "[qp]") {
  Registered memory(b, Bytes(100), kLocal);
  Registered sink(a, Bytes(100), kLocal);
  connect();
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 1, {sink.sge()}, memory) == 0);
  check_next(*a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  const auto at_a = next_event(*context), at_b = next_event(*context_b);
  REQUIRE((at_a && at_b));
  CHECK(at_a->event_type == IBV_EVENT_QP_FATAL);
  CHECK(at_a->element == reinterpret_cast<std::uintptr_t>(a.handle()));
  CHECK(at_b->event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(enter_error());
}

TEST_CASE_METHOD(Pair, "qp: a message longer than the receive (RFC 5040 section 5.3)", "[qp]") {
  const bool crc = GENERATE(false, true);
  Registered memory(a, Bytes(1000)), inbox(b, Bytes(999), kLocal);
  connect({.crc = crc});
  REQUIRE(b.post_receive(1, {inbox.sge()}) == 0);
  REQUIRE(b.post_receive(2, {inbox.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {memory.sge()}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_LOC_LEN_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(a.enters_error());
}

TEST_CASE_METHOD(Pair, "qp: orderly end: what is posted is sent first", "[qp]") {
  Registered memory(a, pattern(1'000'000)), inbox(b, Bytes(1'000'000), kLocal);
  CHECK(a.qp->disconnect(nullptr) == ENOTCONN);
  connect();
  REQUIRE(b.post_receive(1, {inbox.sge()}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {memory.sge()}) == 0);
  CHECK(a.qp->disconnect(nullptr) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK((inbox == memory));
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(b.enters_error());
  CHECK(a.enters_error());
  CHECK(a.qp->disconnect(nullptr) == ENOTCONN);
}

TEST_CASE_METHOD(ConnectedPair,
                 "qp: SQD is the draft's Closing state: an orderly end without an event (Verbs draft section 6.2.5)",
                 "[qp]") {
  REQUIRE(a.post_receive(1, {}) == 0);
  REQUIRE(b.post_receive(1, {}) == 0);
  CHECK(a.to(IBV_QPS_SQD) == 0);
  CHECK(a.to(IBV_QPS_SQD) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {}) == 0);  // too late
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(enter_error());
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE("qp: posts in error while an FPDU is on its way harm nothing", "[qp]") {
  Pair pair({.depth = 4});
  pair.connect();
  Side &a = pair.a, &b = pair.b;
  const Registered memory(a, Bytes(24'000'000), kAll), sink(b, Bytes(64), kAll);  // more than two sockets hold
  // b has no receive and stops reading; a's socket fills up in the middle of an FPDU.
  const ibv_sge all = memory.sge();
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(a.post(IBV_WR_SEND, id, {all}) == 0);
  // b writes to where it must not: a says so in a Terminate, behind its FPDU.
  REQUIRE(b.post(IBV_WR_RDMA_WRITE, 1, {sink.sge()}, 0, 0xDEAD00, 0) == 0);
  CHECK(a.enters_error());
  for (std::uint64_t id = 0; id < 4; ++id) CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  for (std::uint64_t id = 0; id < 16; ++id) {
    REQUIRE(a.post(IBV_WR_SEND, id, {}) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  }
  // b reads again, so that a's socket takes the rest.
  Registered inbox(b, Bytes(24'000'000), kLocal);
  REQUIRE(b.post_receive(1, {inbox.sge()}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(b.enters_error());
}

TEST_CASE_METHOD(Single, "qp: a reset of the connection is told (Verbs draft figure 24: LLP Connection Reset)",
                 "[qp]") {
  attach_raw(a, {.crc = true}, true).abort();
  CHECK(next_type(*context) == IBV_EVENT_QP_FATAL);
  CHECK(a.enters_error());
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(RawPair, "qp: TCP fails in Closing: an event, once the state is ERR (Verbs draft section 6.2.5)",
                 "[qp]") {
  REQUIRE(a.post_receive(1, {}) == 0);
  REQUIRE(a.to(IBV_QPS_SQD) == 0);
  const bool reset = GENERATE(true, false);
  if (reset) {
    peer.abort();
    CHECK(next_type(*context) == IBV_EVENT_QP_FATAL);
    CHECK(a.qp->state() == IBV_QPS_ERR);
  } else {
    peer.close();  // the orderly end
  }
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(a.enters_error());
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(RawPair, "qp: what came before the peer learns of the end is received (Verbs draft section 6.2.5)",
                 "[qp]") {
  Registered inbox(a, Bytes(40), kLocal);
  REQUIRE(a.post_receive(1, {inbox.sge()}) == 0);
  REQUIRE(a.post_receive(2, {}) == 0);
  REQUIRE(a.to(IBV_QPS_SQD) == 0);
  give(peer, send_segment(1, 0, 40, true));
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(inbox == pattern(40));
  peer.close();
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(Single, "qp: to ERR in the middle of an FPDU (Verbs draft section 6.4)", "[qp]") {
  const bool gone = GENERATE(false, true);
  Pages source(6000);  // more than two sockets hold
  const auto mr = Mr::create(a.pd, source.memory, source.size, source.address(), 0);
  REQUIRE(mr);
  TcpStream peer = attach_raw(a);
  give(peer, empty_write());  // the responder may send
  REQUIRE(a.post(IBV_WR_SEND, 1, {{source.address(), kPage, mr->key()}}) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  const ibv_sge all{source.address(), static_cast<std::uint32_t>(source.size), mr->key()};
  REQUIRE(a.post(IBV_WR_SEND, 2, {all}) == 0);  // TCP takes what it can, and stops in the middle of an FPDU
  if (gone) REQUIRE(::mprotect(source.memory, source.size, PROT_NONE) == 0);
  REQUIRE(a.to(IBV_QPS_ERR) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  const auto [sent, error] = rest_of(peer);
  std::size_t at = 0;
  while (sent.size() - at >= 2) {
    const std::size_t size = (2 + big_endian(Octets(sent).subspan(at, 2)) + 3) / 4 * 4 + 4;
    if (sent.size() - at < size) break;
    at += size;
  }
  if (gone) {
    CHECK(error == ECONNRESET);
  } else {
    CHECK(error == 0);
    CHECK(at == sent.size());  // whole FPDUs
    CHECK_FALSE(next_event(*context, 0));
  }
}

TEST_CASE_METHOD(
    Single, "qp: a peer that closes while Reads are due gets a Terminate (Verbs draft figures 8 and 24: Bad LLP Close)",
    "[qp]") {
  Registered sink(a, Bytes(100), kLocal);
  TcpStream peer = attach_raw(a, {}, true);
  const bool due = GENERATE(true, false);
  if (due) REQUIRE(a.post(IBV_WR_RDMA_READ, 1, {sink.sge()}, 0, 1, 0) == 0);
  ::shutdown(peer.fd(), SHUT_WR);
  CHECK(a.enters_error());
  const auto [sent, error] = rest_of(peer);
  CHECK(error == 0);
  if (due) {
    CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
    CHECK(next_type(*context) == IBV_EVENT_QP_FATAL);
    // FPDU length, DDP and RDMAP header of an untagged segment: the Terminate control field follows.
    REQUIRE(sent.size() > 4 + 2 + 18);
    const std::byte wanted[] = {std::byte{0x02}, std::byte{0x07}};
    const auto control = std::search(sent.begin(), sent.end(), std::begin(wanted), std::end(wanted));
    CHECK(control != sent.end());
  }
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(PairApart, "qp: an error that a completion reports causes no event (Verbs draft section 6.2.3)",
                 "[qp]") {
  Registered memory(a, Bytes(1000)), inbox(b, Bytes(10), kLocal);
  connect();
  SECTION("a bad lkey") {
    ibv_sge sge = memory.sge();
    sge.lkey ^= 1;
    REQUIRE(a.post(IBV_WR_SEND, 2, {sge}) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_LOC_PROT_ERR);
    CHECK(enter_error());
    CHECK_FALSE(next_event(*context, 0));
    CHECK(next_type(*context_b) == IBV_EVENT_QP_FATAL);  // the Terminate
  }
  SECTION("a receive that is too short") {
    REQUIRE(b.post_receive(1, {inbox.sge()}) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 2, {memory.sge()}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_LOC_LEN_ERR);
    CHECK(enter_error());
    CHECK_FALSE(next_event(*context_b, 0));
    CHECK(next_type(*context) == IBV_EVENT_QP_FATAL);
  }
}

TEST_CASE_METHOD(Single, "qp: one that is being destroyed gets no connection from a thread that has found it before",
                 "[qp]") {
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  auto sockets = tcp_pair();
  std::atomic<bool> found{false};
  int error = 0;
  std::thread connecting([&, number = a.qp->number()] {
    const ReadSection section;
    provider::Attachable* const end = provider::find_attachable(number);
    const std::uint64_t period = uiw::detail::current_period;
    found = true;
    eventually([&] { return uiw::detail::current_period != period; });  // it waits for this section
    error = end->attach(sockets.first, attachment_of({}, false));
  });
  REQUIRE(eventually([&] { return found.load(); }));
  a.qp.reset();
  connecting.join();
  CHECK(error == EINVAL);
  CHECK(sockets.first.is_open());
}
