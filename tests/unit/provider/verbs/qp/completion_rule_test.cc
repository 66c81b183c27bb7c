// SPDX-License-Identifier: MIT
// What a program written for InfiniBand sees of its Sends and Writes: completions once the peer has placed them, and
// errors at the work they are about.
#include <catch2/catch.hpp>

#include "tests/unit/provider/rnic.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr unsigned kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// A peer of octets: what comes, up to so many; and the answer to a Read of no octets.
Bytes take(TcpStream& peer, std::size_t size) {
  Bytes octets(size);
  std::size_t at = 0;
  REQUIRE(eventually([&] {
    const ssize_t n = peer.receive({octets.data() + at, size - at});
    if (n > 0) at += static_cast<std::size_t>(n);
    return at == size;
  }));
  return octets;
}
const Bytes& answer() {
  static const Bytes octets = fpdu(Wire().u8(0xC1).u8(0x42).u32(0).u64(0), false);
  return octets;
}
const Bytes& empty_write() {
  static const Bytes octets = fpdu(Wire().u8(0xC1).u8(0x40).u32(0).u64(0), false);
  return octets;
}
constexpr std::size_t kSend = 2 + 18 + 10 + 2 + 4, kProbe = 2 + 18 + 28 + 4;  // FPDUs; a Send has 10 octets

struct Raw {
  std::shared_ptr<Context> context = open_loopback();
  Side side;
  TcpStream peer;
  Bytes data = pattern(10);
  std::unique_ptr<Mr> mr;

  explicit Raw(bool remote = true, bool signal_all = true) : side(*context, 16, 4, 64, signal_all) {
    peer = attach_raw(side, remote);
    mr = side.expose(data, kAll);
    give(peer, empty_write());
  }
  void send(std::uint64_t id, unsigned flags = 0) {
    REQUIRE(side.post(IBV_WR_SEND, id, {sge_of(data, *mr)}, flags) == 0);
  }
  void expect(std::uint64_t id, ibv_wc_status status) {
    const ibv_wc wc = next(*side.send_cq);
    CHECK(wc.wr_id == id);
    CHECK(wc.status == status);
  }
};

}  // namespace

TEST_CASE("completion rule: a Send waits for the peer, or for TCP", "[completion]") {
  const bool remote = GENERATE(true, false);
  Raw it(remote);
  it.send(1);
  if (!remote) {
    take(it.peer, kSend);
    it.expect(1, IBV_WC_SUCCESS);
    return;
  }
  take(it.peer, kSend + kProbe);
  it.send(2);
  take(it.peer, kSend);
  for (int i = 0; i < 100; ++i) REQUIRE(none(*it.side.send_cq));
  give(it.peer, answer());
  it.expect(1, IBV_WC_SUCCESS);
  CHECK(none(*it.side.send_cq));  // only now it waits for the other
  take(it.peer, kProbe);
  give(it.peer, answer());
  it.expect(2, IBV_WC_SUCCESS);
}

TEST_CASE("completion rule: a probe that is not sent at once is sent when the program waits", "[completion]") {
  Raw it;
  it.send(1);
  take(it.peer, kSend + kProbe);
  give(it.peer, answer());
  REQUIRE(eventually([&] { return !it.side.send_cq->empty(); }));
  it.send(2);
  take(it.peer, kSend);
  // The progress thread, if it is still at the answer, may ask by itself.
  SECTION("in a poll that finds nothing") {
    it.expect(1, IBV_WC_SUCCESS);
    CHECK(none(*it.side.send_cq));
  }
  SECTION("or for an event") { REQUIRE(it.side.send_cq->request_notify(false) == 0); }
  SECTION("or for its queue to drain") { REQUIRE(it.side.to(IBV_QPS_SQD) == 0); }
  take(it.peer, kProbe);
}

TEST_CASE("completion rule: the connection ends before the peer has confirmed: IBV_WC_RETRY_EXC_ERR, then flushed",
          "[completion]") {
  const bool reset = GENERATE(false, true);
  Raw it;
  it.send(1);
  take(it.peer, kSend + kProbe);
  it.send(2);
  it.send(3);
  take(it.peer, 2 * kSend);
  give(it.peer, answer());
  it.expect(1, IBV_WC_SUCCESS);
  CHECK(none(*it.side.send_cq));
  take(it.peer, kProbe);
  if (reset) {
    it.peer.abort();
  } else {
    it.peer.close();
  }
  it.expect(2, IBV_WC_RETRY_EXC_ERR);
  it.expect(3, IBV_WC_WR_FLUSH_ERR);
  CHECK(it.side.qp->state() == IBV_QPS_ERR);
}

TEST_CASE("completion rule: unsignaled work that the peer has not confirmed is no error at the end", "[completion]") {
  Raw it(true, false);
  // More than the queue holds: it never fills.
  for (std::uint64_t id = 0; id < 50; ++id) {
    it.send(id);
    take(it.peer, kSend);
  }
  it.peer.shutdown_send();
  REQUIRE(eventually([&] { return it.side.qp->state() == IBV_QPS_ERR; }));
  CHECK(none(*it.side.send_cq));
  CHECK(it.side.qp->events_reported() == 0);
}

TEST_CASE("completion rule: an orderly end waits for signaled work, and for no other", "[completion]") {
  Raw it(true, false);
  const bool signaled = GENERATE(false, true);
  it.send(1);
  it.send(2, signaled ? IBV_SEND_SIGNALED : 0);
  take(it.peer, 2 * kSend + (signaled ? kProbe : 0));
  REQUIRE(it.side.to(IBV_QPS_SQD) == 0);
  std::byte octet;
  if (signaled) {
    CHECK(it.peer.receive({&octet, 1}) == -EAGAIN);
    give(it.peer, answer());
    it.expect(2, IBV_WC_SUCCESS);
  }
  REQUIRE(eventually([&] { return it.peer.receive({&octet, 1}) == 0; }));
  it.peer.close();
}

TEST_CASE("completion rule: a program may wait for a completion before it posts the receive that the peer waits for",
          "[completion]") {
  Raw it;
  it.send(1);
  take(it.peer, kSend + kProbe);
  // The answer stands behind a message without a receive.
  give(it.peer, send_segment(1, 0, 10, true));
  give(it.peer, answer());
  it.expect(1, IBV_WC_SUCCESS);
  it.send(2);
  it.expect(2, IBV_WC_SUCCESS);
  take(it.peer, kSend);
  Bytes inbox(10);
  const auto mr = it.side.expose(inbox, kAll);
  REQUIRE(it.side.post_receive(9, {sge_of(inbox, *mr)}) == 0);
  CHECK(next(*it.side.receive_cq).wr_id == 9);
  it.send(3);
  take(it.peer, kSend + kProbe);
  CHECK(none(*it.side.send_cq));
  give(it.peer, answer());
  it.expect(3, IBV_WC_SUCCESS);
}

TEST_CASE("completion rule: before our FIN the peer gets its answer", "[completion]") {
  // It asked in the moment in which this side ended.
  Raw it;
  give(it.peer, fpdu(Wire().u8(0x41).u8(0x41).u32(0).u32(1).u32(1).u32(0).u32(0).u64(0).u32(0).u32(0).u64(0), false));
  REQUIRE(it.side.to(IBV_QPS_SQD) == 0);
  CHECK(take(it.peer, answer().size()) == answer());
  std::byte octet;
  REQUIRE(eventually([&] { return it.peer.receive({&octet, 1}) == 0; }));
}

TEST_CASE("completion rule: an error goes to the work that caused it; the work before it succeeds", "[completion]") {
  enum class Bad { key, bounds, rights, read, atomic, misaligned, long_send, invalidate };
  const auto [bad, expected] = GENERATE(table<Bad, ibv_wc_status>({
      {Bad::key, IBV_WC_REM_ACCESS_ERR},
      {Bad::bounds, IBV_WC_REM_ACCESS_ERR},
      {Bad::rights, IBV_WC_REM_ACCESS_ERR},
      {Bad::read, IBV_WC_REM_ACCESS_ERR},
      {Bad::atomic, IBV_WC_REM_ACCESS_ERR},
      {Bad::misaligned, IBV_WC_REM_INV_REQ_ERR},
      {Bad::long_send, IBV_WC_REM_INV_REQ_ERR},
      {Bad::invalidate, IBV_WC_REM_ACCESS_ERR},
  }));
  const auto near_context = open_loopback(), far_context = open_loopback();
  Side near(*near_context), far(*far_context);
  attach(near, far, false, 4, 0, mpa::PeerKind::other, true);
  Bytes data = pattern(64), target(64), inbox(100), locked(64);
  const auto mr = near.expose(data, kAll), remote = far.expose(target, kAll), receive = far.expose(inbox, kAll),
             readable = far.expose(locked, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  for (std::uint64_t id = 100; id < 104; ++id) {
    REQUIRE(far.post_receive(id, {{address_of(inbox), 64, receive->key()}}) == 0);
  }
  const ibv_sge whole = sge_of(data, *mr);
  REQUIRE(near.post(IBV_WR_SEND, 1, {whole}) == 0);
  REQUIRE(near.post(IBV_WR_RDMA_WRITE, 2, {whole}, 0, remote->key(), address_of(target)) == 0);
  ibv_sge result = whole;
  result.length = 8;
  int error = 0;
  switch (bad) {
    case Bad::key: error = near.post(IBV_WR_RDMA_WRITE, 3, {whole}, 0, remote->key() ^ 0x5A5A00, 0); break;
    case Bad::bounds: error = near.post(IBV_WR_RDMA_WRITE, 3, {whole}, 0, remote->key(), address_of(target) + 1); break;
    case Bad::rights: error = near.post(IBV_WR_RDMA_WRITE, 3, {whole}, 0, readable->key(), address_of(locked)); break;
    case Bad::read: error = near.post(IBV_WR_RDMA_READ, 3, {whole}, 0, remote->key() ^ 0x5A5A00, 0); break;
    case Bad::atomic: error = near.post_atomic(3, result, readable->key(), address_of(locked), 1); break;
    case Bad::misaligned: error = near.post_atomic(3, result, remote->key(), address_of(target) + 4, 1); break;
    case Bad::long_send: error = near.post(IBV_WR_SEND, 3, {whole, whole}); break;
    case Bad::invalidate: error = near.post(IBV_WR_SEND_WITH_INV, 3, {whole}, 0, remote->key()); break;
  }
  REQUIRE(error == 0);
  REQUIRE(near.post(IBV_WR_SEND, 4, {whole}) == 0);
  // One side at a time is polled; the thread moves the other.
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const ibv_wc wc = next(*near.send_cq);
    CHECK(wc.wr_id == id);
    CHECK(wc.status == (id < 3 ? IBV_WC_SUCCESS : id == 3 ? expected : IBV_WC_WR_FLUSH_ERR));
  }
  CHECK(target == data);
}

TEST_CASE("completion rule: work that the peer has received completes, however the peer leaves", "[completion]") {
  enum class Way { disconnects, enters_error, is_reset, is_destroyed };
  const Way way = GENERATE(Way::disconnects, Way::enters_error, Way::is_reset, Way::is_destroyed);
  const auto context = open_loopback();
  constexpr int kCount = 10;
  for (int turn = 0; turn < 50; ++turn) {
    Side a(*context), b(*context);
    attach(a, b, false, 4, 0, mpa::PeerKind::uiw, true);
    Bytes out = pattern(10), in(10);
    const auto send = a.expose(out, 0), receive = b.expose(in, IBV_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < kCount; ++i) REQUIRE(b.post_receive(1, {sge_of(in, *receive)}) == 0);
    for (int i = 0; i < kCount; ++i) REQUIRE(a.post(IBV_WR_SEND, 1, {sge_of(out, *send)}) == 0);
    for (int i = 0; i < kCount; ++i) REQUIRE(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    switch (way) {
      case Way::disconnects: REQUIRE(b.qp->disconnect(nullptr) == 0); break;
      case Way::enters_error: REQUIRE(b.to(IBV_QPS_ERR) == 0); break;
      case Way::is_reset: REQUIRE(b.to(IBV_QPS_RESET) == 0); break;
      case Way::is_destroyed: b.qp.reset(); break;
    }
    INFO("turn " << turn << ", way " << static_cast<int>(way));
    for (int i = 0; i < kCount; ++i) REQUIRE(next(*a.send_cq).status == IBV_WC_SUCCESS);
  }
}
