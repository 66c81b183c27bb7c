// SPDX-License-Identifier: MIT
// A stream whose receives have run out (Verbs draft section 13.2), and how it ends.
#include <cstring>

#include "provider/process/limits.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(Pair, "pause: one receive at a time out of many messages that have come", "[pause]") {
  const bool crc = GENERATE(false, true);
  const std::size_t mulpdu = GENERATE(0, 128);
  constexpr std::uint32_t kMessages = 2000, kSize = 150;
  Registered source(a, Bytes(kSize)), inbox(b, Bytes(kSize), kLocal);
  connect({.crc = crc, .mulpdu = mulpdu});
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    std::memcpy(source.data(), &i, sizeof i);
    REQUIRE(a.post(IBV_WR_SEND, i, {source.sge()}) == 0);
    REQUIRE(next(*a.send_cq).status == IBV_WC_SUCCESS);
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    REQUIRE(none(*b.receive_cq));
    REQUIRE(b.post_receive(i, {inbox.sge()}) == 0);
    const ibv_wc completion = check_next(*b.receive_cq, i);
    REQUIRE(completion.byte_len == kSize);
    REQUIRE(std::memcmp(inbox.data(), &i, sizeof i) == 0);
  }
}

TEST_CASE_METHOD(ConnectedPair, "pause: what came before the peer's end is there for those who post receives",
                 "[pause]") {
  const bool polling = GENERATE(false, true);
  Registered source(a, pattern(100)), inbox(b, Bytes(100), kLocal);
  for (std::uint64_t id = 0; id < 6; ++id) REQUIRE(a.post(IBV_WR_SEND, id, {source.sge()}) == 0);
  REQUIRE(a.qp->disconnect(nullptr) == 0);
  for (std::uint64_t id = 0; id < 6; ++id) CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  if (polling) CHECK(none(*b.receive_cq));
  for (std::uint64_t id = 0; id < 6; ++id) {
    CHECK(b.qp->state() == IBV_QPS_RTS);
    REQUIRE(b.post_receive(id, {inbox.sge()}) == 0);
    check_next(*b.receive_cq, id);
  }
  CHECK(b.enters_error());
}

TEST_CASE_METHOD(ConnectedPair, "pause: a peer that has closed is noticed although nothing is read", "[pause]") {
  const bool polling = GENERATE(false, true);  // the thread that looks out sleeps while the program polls
  REQUIRE(a.post(IBV_WR_SEND, 1, {}) == 0);
  REQUIRE(a.qp->disconnect(nullptr) == 0);
  CHECK(eventually([&] {
    if (polling) none(*b.receive_cq);
    return b.qp->state() == IBV_QPS_ERR;
  }));
  CHECK(none(*b.receive_cq));
}

TEST_CASE_METHOD(RawPair, "pause: an error in the stream right behind the pause is found once", "[pause]") {
  Registered inbox(a, Bytes(100), kLocal);
  Bytes stream = send_segment(1, 0, 50, true);
  const Bytes wrong = send_segment(7, 0, 50, true);  // MSN 2 is due
  for (int i = 0; i < 3; ++i) stream.insert(stream.end(), wrong.begin(), wrong.end());
  give(peer, stream);
  REQUIRE(a.post_receive(1, {inbox.sge()}) == 0);
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(a.enters_error());
  give(peer, wrong);
  peer.shutdown_send();
  const auto event = next_event(*context);
  REQUIRE(event);
  CHECK(event->event_type == IBV_EVENT_QP_REQ_ERR);
  a.qp->stop();
  CHECK(a.qp->events_reported() == 1);
  CHECK(none(*a.receive_cq));
}

TEST_CASE_METHOD(Loopback,
                 "pause: a receive posted in the moment of an error is flushed once, and after the message in progress",
                 "[pause]") {
  Bytes inbox(100);
  for (int round = 0; round < 200; ++round) {
    Side b(*context);
    const auto inbox_mr = b.expose(inbox, IBV_ACCESS_LOCAL_WRITE);
    TcpStream peer = attach_raw(b);
    for (std::uint64_t id = 1; id <= 2; ++id) REQUIRE(b.post_receive(id, {sge_of(inbox, *inbox_mr)}) == 0);
    Bytes stream = send_segment(1, 0, 50, true);
    const Bytes half = send_segment(2, 0, 50, false);
    stream.insert(stream.end(), half.begin(), half.end());
    give(peer, stream);
    REQUIRE(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    ibv_sge bad = sge_of(inbox, *inbox_mr);
    bad.lkey ^= 1;
    REQUIRE(b.post(IBV_WR_SEND, 9, {bad}) == 0);
    REQUIRE(b.post_receive(3, {sge_of(inbox, *inbox_mr)}) == 0);
    CHECK(next(*b.send_cq).status == IBV_WC_LOC_PROT_ERR);
    for (std::uint64_t id = 2; id <= 3; ++id) check_next(*b.receive_cq, id, IBV_WC_WR_FLUSH_ERR);
    REQUIRE(none(*b.receive_cq));
  }
}
