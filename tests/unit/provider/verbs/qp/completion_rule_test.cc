// SPDX-License-Identifier: MIT
// What a program written for InfiniBand sees of its Sends and Writes: completions once the peer has placed them, and
// errors at the work they are about.
#include <catch2/catch.hpp>

#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr std::size_t kSend = 2 + 18 + 10 + 2 + 4, kProbe = 2 + 18 + 28 + 4;  // FPDUs; a Send has 10 octets

struct Raw : RawPair {
  Registered data{a, pattern(10)};

  explicit Raw(bool remote = true, bool signal_all = true)
      : RawPair({.depth = 1, .remote = remote, .rtr = mpa::ReadyToReceive::none}, false, {.signal_all = signal_all}) {
    give(peer, empty_write());
  }
  void send(std::uint64_t id, unsigned flags = 0) { REQUIRE(a.post(IBV_WR_SEND, id, {data.sge()}, flags) == 0); }
  void expect(std::uint64_t id, ibv_wc_status status) { check_next(*a.send_cq, id, status); }
};
struct Unsignaled : Raw {
  Unsignaled() : Raw(true, false) {}
};

}  // namespace

TEST_CASE("completion rule: a Send waits for the peer, or for TCP", "[completion]") {
  const bool remote = GENERATE(true, false);
  Raw it(remote);
  it.send(1);
  if (!remote) {
    it.take(kSend);
    it.expect(1, IBV_WC_SUCCESS);
    return;
  }
  it.take(kSend + kProbe);
  it.send(2);
  it.take(kSend);
  for (int i = 0; i < 100; ++i) REQUIRE(none(*it.a.send_cq));
  give(it.peer, empty_read_response());
  it.expect(1, IBV_WC_SUCCESS);
  CHECK(none(*it.a.send_cq));  // only now it waits for the other
  it.take(kProbe);
  give(it.peer, empty_read_response());
  it.expect(2, IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(Raw, "completion rule: a probe that is not sent at once is sent when the program waits",
                 "[completion]") {
  send(1);
  take(kSend + kProbe);
  give(peer, empty_read_response());
  REQUIRE(eventually([&] { return !a.send_cq->empty(); }));
  send(2);
  take(kSend);
  // The progress thread, if it is still at the answer, may ask by itself.
  SECTION("in a poll that finds nothing") {
    expect(1, IBV_WC_SUCCESS);
    CHECK(none(*a.send_cq));
  }
  SECTION("or for an event") { REQUIRE(a.send_cq->request_notify(false) == 0); }
  SECTION("or for its queue to drain") { REQUIRE(a.to(IBV_QPS_SQD) == 0); }
  take(kProbe);
}

TEST_CASE_METHOD(
    Raw, "completion rule: the connection ends before the peer has confirmed: IBV_WC_RETRY_EXC_ERR, then flushed",
    "[completion]") {
  const bool reset = GENERATE(false, true);
  send(1);
  take(kSend + kProbe);
  send(2);
  send(3);
  take(2 * kSend);
  give(peer, empty_read_response());
  expect(1, IBV_WC_SUCCESS);
  CHECK(none(*a.send_cq));
  take(kProbe);
  if (reset) {
    peer.abort();
  } else {
    peer.close();
  }
  expect(2, IBV_WC_RETRY_EXC_ERR);
  expect(3, IBV_WC_WR_FLUSH_ERR);
  CHECK(a.qp->state() == IBV_QPS_ERR);
}

TEST_CASE_METHOD(Unsignaled, "completion rule: unsignaled work that the peer has not confirmed is no error at the end",
                 "[completion]") {
  // More than the queue holds: it never fills.
  for (std::uint64_t id = 0; id < 50; ++id) {
    send(id);
    take(kSend);
  }
  peer.shutdown_send();
  REQUIRE(a.enters_error());
  CHECK(none(*a.send_cq));
  CHECK(a.qp->events_reported() == 0);
}

TEST_CASE_METHOD(Unsignaled, "completion rule: an orderly end waits for signaled work, and for no other",
                 "[completion]") {
  const bool signaled = GENERATE(false, true);
  send(1);
  send(2, signaled ? IBV_SEND_SIGNALED : 0);
  take(2 * kSend + (signaled ? kProbe : 0));
  REQUIRE(a.to(IBV_QPS_SQD) == 0);
  if (signaled) {
    std::byte octet;
    CHECK(peer.receive({&octet, 1}) == -EAGAIN);
    give(peer, empty_read_response());
    expect(2, IBV_WC_SUCCESS);
  }
  REQUIRE(hears_end());
  peer.close();
}

TEST_CASE_METHOD(
    Raw, "completion rule: a program may wait for a completion before it posts the receive that the peer waits for",
    "[completion]") {
  send(1);
  take(kSend + kProbe);
  // The answer stands behind a message without a receive.
  give(peer, send_segment(1, 0, 10, true));
  give(peer, empty_read_response());
  expect(1, IBV_WC_SUCCESS);
  send(2);
  expect(2, IBV_WC_SUCCESS);
  take(kSend);
  const Registered inbox(a, Bytes(10), kAll);
  REQUIRE(a.post_receive(9, {inbox.sge()}) == 0);
  CHECK(next(*a.receive_cq).wr_id == 9);
  send(3);
  take(kSend + kProbe);
  CHECK(none(*a.send_cq));
  give(peer, empty_read_response());
  expect(3, IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(Raw, "completion rule: before our FIN the peer gets its answer", "[completion]") {
  // It asked in the moment in which this side ended.
  give(peer, fpdu(Wire().u8(0x41).u8(0x41).u32(0).u32(1).u32(1).u32(0).u32(0).u64(0).u32(0).u32(0).u64(0), false));
  REQUIRE(a.to(IBV_QPS_SQD) == 0);
  CHECK(take(empty_read_response().size()) == empty_read_response());
  REQUIRE(hears_end());
}

TEST_CASE_METHOD(PairApart, "completion rule: an error goes to the work that caused it; the work before it succeeds",
                 "[completion]") {
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
  connect({.remote = true});
  Registered data(a, pattern(64), kAll), target(b, Bytes(64), kAll), inbox(b, Bytes(100), kAll),
      locked(b, Bytes(64), kLocal | IBV_ACCESS_REMOTE_READ);
  for (std::uint64_t id = 100; id < 104; ++id) REQUIRE(b.post_receive(id, {inbox.sge(0, 64)}) == 0);
  const ibv_sge whole = data.sge();
  REQUIRE(a.post(IBV_WR_SEND, 1, {whole}) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 2, {whole}, target) == 0);
  const ibv_sge result = data.sge(0, 8);
  int error = 0;
  switch (bad) {
    case Bad::key: error = a.post(IBV_WR_RDMA_WRITE, 3, {whole}, 0, target.key() ^ 0x5A5A00, 0); break;
    case Bad::bounds: error = a.post(IBV_WR_RDMA_WRITE, 3, {whole}, 0, target.key(), target.address() + 1); break;
    case Bad::rights: error = a.post(IBV_WR_RDMA_WRITE, 3, {whole}, locked); break;
    case Bad::read: error = a.post(IBV_WR_RDMA_READ, 3, {whole}, 0, target.key() ^ 0x5A5A00, 0); break;
    case Bad::atomic: error = a.post_atomic(3, result, locked.key(), locked.address(), 1); break;
    case Bad::misaligned: error = a.post_atomic(3, result, target.key(), target.address() + 4, 1); break;
    case Bad::long_send: error = a.post(IBV_WR_SEND, 3, {whole, whole}); break;
    case Bad::invalidate: error = a.post(IBV_WR_SEND_WITH_INV, 3, {whole}, 0, target.key()); break;
  }
  REQUIRE(error == 0);
  REQUIRE(a.post(IBV_WR_SEND, 4, {whole}) == 0);
  // One side at a time is polled; the thread moves the other.
  for (std::uint64_t id = 1; id <= 4; ++id)
    check_next(*a.send_cq, id, id < 3 ? IBV_WC_SUCCESS : id == 3 ? expected : IBV_WC_WR_FLUSH_ERR);
  CHECK(target == data);
}

TEST_CASE_METHOD(Loopback, "completion rule: work that the peer has received completes, however the peer leaves",
                 "[completion]") {
  enum class Way { disconnects, enters_error, is_reset, is_destroyed };
  const Way way = GENERATE(Way::disconnects, Way::enters_error, Way::is_reset, Way::is_destroyed);
  constexpr int kCount = 10;
  for (int turn = 0; turn < 50; ++turn) {
    Side a(*context), b(*context);
    attach(a, b, {.peer = mpa::PeerKind::uiw, .remote = true});
    Registered out(a, pattern(10)), in(b, Bytes(10), kLocal);
    for (int i = 0; i < kCount; ++i) REQUIRE(b.post_receive(1, {in.sge()}) == 0);
    for (int i = 0; i < kCount; ++i) REQUIRE(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
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
