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
#include "tests/unit/provider/memory/memory_rig.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr unsigned kReadWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

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

TEST_CASE("qp: a bad lkey completes in its turn and ends the stream", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes memory(100);
  const auto mr = a.expose(memory, kReadWrite);
  attach(a, b);
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
  ibv_sge sge = sge_of(memory, *mr);
  sge.lkey ^= 1;
  REQUIRE(a.post(IBV_WR_SEND, 2, {sge}) == 0);
  a.post(IBV_WR_SEND, 3, {});
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  const auto completion = next(*a.send_cq);
  CHECK(completion.wr_id == 2);
  CHECK(completion.status == IBV_WC_LOC_PROT_ERR);
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: a read of what is not allowed fails at both ends (RFC 5040 section 7.2)", "[qp]") {
  const auto context = open_loopback(), other = open_loopback();
  Side a(*context), b(*other);
  Bytes memory(100), sink(100);
  const auto mr = b.expose(memory, IBV_ACCESS_LOCAL_WRITE);
  const auto sink_mr = a.expose(sink, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b);
  REQUIRE(b.post_receive(1, {}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 1, {sge_of(sink, *sink_mr)}, 0, mr->key(), address_of(memory)) == 0);
  const auto completion = next(*a.send_cq);
  CHECK(completion.wr_id == 1);
  CHECK(completion.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  const auto at_a = next_event(*context), at_b = next_event(*other);
  REQUIRE((at_a && at_b));
  CHECK(at_a->event_type == IBV_EVENT_QP_FATAL);
  CHECK(at_a->element == reinterpret_cast<std::uintptr_t>(a.handle()));
  CHECK(at_b->event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: a message longer than the receive (RFC 5040 section 5.3)", "[qp]") {
  const bool crc = GENERATE(false, true);
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes memory(1000), inbox(999);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b, crc);
  REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
  REQUIRE(b.post_receive(2, {sge_of(inbox, *inbox_mr)}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {sge_of(memory, *mr)}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_LOC_LEN_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: orderly end: what is posted is sent first", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  Bytes memory = pattern(1'000'000), inbox(1'000'000);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  CHECK(a.qp->disconnect(nullptr) == ENOTCONN);
  attach(a, b);
  REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
  REQUIRE(b.post_receive(2, {}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {sge_of(memory, *mr)}) == 0);
  CHECK(a.qp->disconnect(nullptr) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK((inbox == memory));
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return b.qp->state() == IBV_QPS_ERR; }));
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  CHECK(a.qp->disconnect(nullptr) == ENOTCONN);
}

TEST_CASE("qp: SQD is the draft's Closing state: an orderly end without an event (Verbs draft section 6.2.5)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context), b(*context);
  attach(a, b);
  REQUIRE(a.post_receive(1, {}) == 0);
  REQUIRE(b.post_receive(1, {}) == 0);
  CHECK(a.to(IBV_QPS_SQD) == 0);
  CHECK(a.to(IBV_QPS_SQD) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {}) == 0);  // too late
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE("qp: posts in error while an FPDU is on its way harm nothing", "[qp]") {
  const auto context = open_loopback();
  Side a(*context, 4), b(*context, 4);
  Bytes memory(24'000'000), sink(64);  // more than two sockets hold
  const auto mr = a.expose(memory, kReadWrite);
  attach(a, b);
  // b has no receive and stops reading; a's socket fills up in the middle of an FPDU.
  const ibv_sge all = sge_of(memory, *mr);
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(a.post(IBV_WR_SEND, id, {all}) == 0);
  // b writes to where it must not: a says so in a Terminate, behind its FPDU.
  ibv_sge own = {};
  const auto own_mr = b.expose(sink, kReadWrite);
  own = sge_of(sink, *own_mr);
  REQUIRE(b.post(IBV_WR_RDMA_WRITE, 1, {own}, 0, 0xDEAD00, 0) == 0);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  for (std::uint64_t id = 0; id < 4; ++id) CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  for (std::uint64_t id = 0; id < 16; ++id) {
    REQUIRE(a.post(IBV_WR_SEND, id, {}) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  }
  // b reads again, so that a's socket takes the rest.
  Bytes inbox(24'000'000);
  const auto inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(eventually([&] { return b.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("qp: a reset of the connection is told (Verbs draft figure 24: LLP Connection Reset)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context);
  auto [one, two] = tcp_pair();
  Qp::Attachment attachment;
  attachment.agreement.rtr = mpa::ReadyToReceive::write;
  attachment.agreement.ird = attachment.agreement.ord = 4;
  attachment.initiator = true;
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(a.qp->attach(one, attachment) == 0);
  two.abort();
  CHECK(next_type(*context) == IBV_EVENT_QP_FATAL);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE("qp: TCP fails in Closing: an event, once the state is ERR (Verbs draft section 6.2.5)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context);
  TcpStream peer = attach_raw(a);
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
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE("qp: what came before the peer learns of the end is received (Verbs draft section 6.2.5)", "[qp]") {
  const auto context = open_loopback();
  Side a(*context);
  TcpStream peer = attach_raw(a);
  Bytes inbox(40);
  const auto mr = a.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(a.post_receive(1, {sge_of(inbox, *mr)}) == 0);
  REQUIRE(a.post_receive(2, {}) == 0);
  REQUIRE(a.to(IBV_QPS_SQD) == 0);
  give(peer, send_segment(1, 0, 40, true));
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(inbox == pattern(40));
  peer.close();
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE("qp: to ERR in the middle of an FPDU (Verbs draft section 6.4)", "[qp]") {
  const auto context = open_loopback();
  const bool gone = GENERATE(false, true);
  Side a(*context);
  Pages source(6000);  // more than two sockets hold
  const auto mr = Mr::create(a.pd, source.memory, source.size, source.address(), 0);
  REQUIRE(mr);
  TcpStream peer = attach_raw(a);
  give(peer, fpdu(Wire().u8(0xC1).u8(0x40).u32(0).u64(0), false));  // a Write of no octets: the responder may send
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

TEST_CASE("qp: a peer that closes while Reads are due gets a Terminate (Verbs draft figures 8 and 24: Bad LLP Close)",
          "[qp]") {
  const auto context = open_loopback();
  Side a(*context);
  Bytes sink(100);
  const auto sink_mr = a.expose(sink, IBV_ACCESS_LOCAL_WRITE);
  auto [one, two] = tcp_pair();
  Qp::Attachment attachment;
  attachment.agreement.crc = false;
  attachment.agreement.rtr = mpa::ReadyToReceive::write;
  attachment.agreement.ird = attachment.agreement.ord = 4;
  attachment.initiator = true;
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(a.qp->attach(one, attachment) == 0);
  const bool due = GENERATE(true, false);
  if (due) REQUIRE(a.post(IBV_WR_RDMA_READ, 1, {sge_of(sink, *sink_mr)}, 0, 1, 0) == 0);
  ::shutdown(two.fd(), SHUT_WR);
  CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR; }));
  const auto [sent, error] = rest_of(two);
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

TEST_CASE("qp: an error that a completion reports causes no event (Verbs draft section 6.2.3)", "[qp]") {
  const auto context = open_loopback(), other = open_loopback();
  Side a(*context), b(*other);
  Bytes memory(1000), inbox(10);
  const auto mr = a.expose(memory, 0), inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
  attach(a, b);
  SECTION("a bad lkey") {
    ibv_sge sge = sge_of(memory, *mr);
    sge.lkey ^= 1;
    REQUIRE(a.post(IBV_WR_SEND, 2, {sge}) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_LOC_PROT_ERR);
    CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
    CHECK_FALSE(next_event(*context, 0));
    CHECK(next_type(*other) == IBV_EVENT_QP_FATAL);  // the Terminate
  }
  SECTION("a receive that is too short") {
    REQUIRE(b.post_receive(1, {sge_of(inbox, *inbox_mr)}) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 2, {sge_of(memory, *mr)}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_LOC_LEN_ERR);
    CHECK(eventually([&] { return a.qp->state() == IBV_QPS_ERR && b.qp->state() == IBV_QPS_ERR; }));
    CHECK_FALSE(next_event(*other, 0));
    CHECK(next_type(*context) == IBV_EVENT_QP_FATAL);
  }
}

TEST_CASE("qp: one that is being destroyed gets no connection from a thread that has found it before", "[qp]") {
  const auto context = open_loopback();
  Side a(*context);
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
    Qp::Attachment attachment;
    attachment.agreement.ird = attachment.agreement.ord = 4;
    error = end->attach(sockets.first, attachment);
  });
  REQUIRE(eventually([&] { return found.load(); }));
  a.qp.reset();
  connecting.join();
  CHECK(error == EINVAL);
  CHECK(sockets.first.is_open());
}
