// SPDX-License-Identifier: MIT
#include "provider/verbs/srq.h"

#include <cerrno>

#include "provider/process/limits.h"
#include "tests/unit/provider/connect/manual/manual_caller.h"
#include "tests/unit/provider/verbs/pool_pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::SrqUser;

TEST_CASE_METHOD(Loopback, "srq: creation checks sizes and the limit", "[srq]") {
  Pd pd(context);
  const auto error = [&](ibv_srq_attr attributes, bool arm) {
    errno = 0;
    return Srq::create(pd, attributes, arm, nullptr) ? 0 : errno;
  };
  CHECK(error({1, 1, 0}, false) == 0);
  CHECK(error({provider::kMaxSrqWr, provider::kMaxSge, 0}, false) == 0);
  CHECK(error({0, 1, 0}, false) == EINVAL);
  CHECK(error({provider::kMaxSrqWr + 1, 1, 0}, false) == EINVAL);
  CHECK(error({1, provider::kMaxSge + 1, 0}, false) == EINVAL);
  CHECK(error({4, 1, 5}, true) == EINVAL);
  CHECK(error({4, 1, 5}, false) == 0);  // irrelevant for ibv_create_srq
  CHECK_FALSE(pd.in_use());
  ibv_srq_attr attributes{4, 0, 4};
  const auto armed = Srq::create(pd, attributes, true, nullptr);
  REQUIRE(armed);
  CHECK(pd.in_use());
  CHECK(attributes.max_wr == 4);
  CHECK(attributes.max_sge >= 1);
  ibv_srq_attr found{};
  armed->query(found);
  CHECK(found.max_wr == 4);
  CHECK(found.max_sge == attributes.max_sge);
  CHECK(found.srq_limit == 4);
  attributes = {4, 1, 9};
  const auto other = Srq::create(pd, attributes, false, nullptr);
  REQUIRE(other);
  other->query(found);
  CHECK(found.srq_limit == 0);
  CHECK(other->number() != armed->number());
  ibv_device_attr_ex device{};
  context->query_device(device);
  CHECK(device.orig_attr.max_srq > 0);
  CHECK(device.orig_attr.max_srq_wr == provider::kMaxSrqWr);
  CHECK(device.orig_attr.max_srq_sge == provider::kMaxSge);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) != 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_XRC) == 0);
}

TEST_CASE_METHOD(Loopback, "srq: errno of ibv_post_srq_recv, and of ibv_post_recv to a queue pair that has one",
                 "[srq]") {
  Pool pool(*context, 3);
  Side side(*context, {.srq = pool.srq.get()});
  ibv_sge sges[3] = {{address_of(pool.memory), 8, pool.mr->key()}, {}, {}};
  sges[1] = sges[2] = sges[0];
  CHECK(pool.post(1, sges, -1) == EINVAL);
  CHECK(pool.post(1, sges, 3) == EINVAL);
  // Of a list, those before the bad one are posted.
  ibv_recv_wr list[5] = {};
  for (int i = 0; i < 5; ++i) list[i].next = i < 4 ? &list[i + 1] : nullptr;
  ibv_recv_wr* bad = nullptr;
  CHECK(pool.srq->post(list, &bad) == ENOMEM);
  CHECK(bad == &list[3]);
  REQUIRE(side.to(IBV_QPS_INIT) == 0);
  CHECK(side.post_receive(1, {}) == EINVAL);
  CHECK(side.to(IBV_QPS_ERR) == 0);
  CHECK(side.post_receive(1, {}) == EINVAL);
  CHECK(none(*side.receive_cq));
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  side.qp->query(attributes, init);
  CHECK(attributes.cap.max_recv_wr == 0);  // ignored (Verbs draft section 6.3.4)
}

TEST_CASE_METHOD(Loopback, "srq: not to be destroyed while a queue pair has it", "[srq]") {
  Pool pool(*context);
  CHECK_FALSE(pool.srq->in_use());
  {
    Side one(*context, {.srq = pool.srq.get()});
    CHECK(pool.srq->in_use());
    { Side two(*context, {.srq = pool.srq.get()}); }
    CHECK(pool.srq->in_use());
    CHECK(one.to(IBV_QPS_ERR) == 0);
    CHECK(pool.srq->in_use());
  }
  CHECK_FALSE(pool.srq->in_use());
  REQUIRE(pool.post(0) == 0);  // goes with it
}

TEST_CASE_METHOD(Loopback,
                 "srq: the memory of receives left in it is not written afterwards (Verbs draft section 6.3.3)",
                 "[srq]") {
  Pool pool(*context);
  auto b = std::make_unique<Side>(*context, QueueSizes{.srq = pool.srq.get()});
  TcpStream peer = attach_raw(*b);
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(pool.post(id) == 0);
  give(peer, send_segment(1, 0, 40, true));
  CHECK(next(*b->receive_cq).wr_id == 0);
  const Bytes first = send_segment(2, 0, 40, true);
  give(peer, Octets(first).first(first.size() - 20));  // in the middle of the next message, which has taken a receive
  const bool queue_pair_first = GENERATE(true, false);
  if (queue_pair_first) {
    b.reset();
  } else {
    REQUIRE(b->to(IBV_QPS_RESET) == 0);
    b.reset();
  }
  CHECK_FALSE(pool.srq->in_use());
  pool.srq.reset();
  const Bytes then = pool.memory;
  // The rest, and more messages, as far as TCP takes them: until the peer has answered with its end.
  give(peer, Octets(first).subspan(first.size() - 20));
  give(peer, send_segment(3, 0, 40, true));
  pollfd ended{peer.fd(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, 30'000) == 1);
  CHECK(pool.memory == then);
  // The memory serves another queue.
  ibv_srq_attr attributes{16, 2, 0};
  pool.srq = Srq::create(pool.pd, attributes, false, pool.handle());
  REQUIRE(pool.srq);
  auto all = pairs_of(pool, 1);
  REQUIRE(all[0]->send(5, 64) == 0);
  CHECK(none(*all[0]->b.receive_cq));  // nothing is left of the receives
  REQUIRE(pool.post(9) == 0);
  CHECK(next(*all[0]->b.receive_cq).wr_id == 9);
}

TEST_CASE_METHOD(Loopback, "srq: the receive of a message whose stream is forgotten is there again", "[srq][manual]") {
  Pool pool(*context, 4);
  auto b = std::make_unique<Side>(*context, QueueSizes{.srq = pool.srq.get()});
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(pool.post(id) == 0);
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 4) == 0);  // which tells when one is taken
  enum class End { psn, reset, destroyed };
  const End end = GENERATE(End::psn, End::reset, End::destroyed);
  const bool filled_up = GENERATE(false, true);
  INFO("end " << static_cast<int>(end) << ", filled up " << filled_up);
  Caller caller(*b);
  REQUIRE(b->to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(*b, gid(*context), caller.own) == 0);
  auto greeting = caller.greeting();
  greeting.psn = 6;
  REQUIRE(caller.dial(gid(*context)) == 0);
  caller.say(octets_of(greeting));
  REQUIRE(caller.hear(20 + 4 + provider::kPairGreetingSize).size() == 20 + 4 + provider::kPairGreetingSize);
  give(caller.stream, send_segment(1, 0, 40, false));  // more is to come
  REQUIRE(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));
  if (filled_up) REQUIRE(pool.post(4) == 0);
  if (end == End::psn) {
    REQUIRE(to_rts(*b, 5) == 0);  // not what this peer expects
    CHECK(b->qp->state() == IBV_QPS_RTS);
  } else if (end == End::reset) {
    REQUIRE(b->to(IBV_QPS_RESET) == 0);
  } else {
    b->qp.reset();
  }
  CHECK(pool.post(5) == ENOMEM);
  if (end == End::psn && filled_up) {
    check_next(*b->receive_cq, 0, IBV_WC_WR_FLUSH_ERR);
  } else {
    CHECK(none(*b->receive_cq));
  }
  // Others get it, in its turn.
  auto all = pairs_of(pool, 1);
  for (const std::uint64_t id : {1U, 2U, 3U, filled_up ? 4U : 0U}) {
    REQUIRE(all[0]->send(1, 64) == 0);
    CHECK(next(*all[0]->b.receive_cq).wr_id == id);
  }
}

TEST_CASE_METHOD(Loopback, "srq: a receive leaves its place when a message takes it (Verbs draft section 6.3.7)",
                 "[srq]") {
  Pool pool(*context, 4);
  const std::uint32_t size = pool.query().max_wr;
  auto all = pairs_of(pool, 1);
  for (std::uint64_t id = 0; id < size; ++id) REQUIRE(pool.post(id) == 0);
  CHECK(pool.post(size) == ENOMEM);
  REQUIRE(all[0]->send(1, 64) == 0);
  // Its completion is not polled.
  CHECK(eventually([&] { return pool.post(size) == 0; }));
  CHECK(pool.post(size + 1) == ENOMEM);
  CHECK(next(*all[0]->b.receive_cq).wr_id == 0);
  CHECK(pool.post(size + 1) == ENOMEM);
}

TEST_CASE_METHOD(Loopback, "srq: the limit event comes once for each time it is armed", "[srq]") {
  Pool pool(*context);
  auto all = pairs_of(pool, 1);
  CHECK(pool.modify(IBV_SRQ_LIMIT, 0, 17) == EINVAL);
  CHECK(pool.modify(1 << 5, 0, 1) == EINVAL);
  std::uint32_t number = 0;
  const auto receive = [&](unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      REQUIRE(all[0]->send(number++, 64) == 0);
      CHECK(next(*all[0]->b.receive_cq).status == IBV_WC_SUCCESS);
      CHECK(next(*all[0]->a.send_cq).status == IBV_WC_SUCCESS);
    }
  };
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t id = 0; id < 10; ++id) REQUIRE(pool.post(id) == 0);
    REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 5) == 0);
    REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 4) == 0);  // armed again
    CHECK(pool.query().srq_limit == 4);
    receive(6);
    CHECK_FALSE(next_event(*context, 0));
    CHECK(pool.query().srq_limit == 4);
    receive(1);
    CHECK(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));
    CHECK(pool.query().srq_limit == 0);
    receive(3);
    CHECK_FALSE(next_event(*context, 0));
  }
  CHECK(pool.srq->withdraw_events() == 3);
  // Armed beyond what is there: the next to take tells.
  REQUIRE(pool.post(1) == 0);
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 8) == 0);
  CHECK_FALSE(next_event(*context, 0));
  receive(1);
  CHECK(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));
  // And so does one who finds none, before the arming or after.
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 1) == 0);
  REQUIRE(all[0]->send(number++, 64) == 0);
  CHECK(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 1) == 0);
  CHECK(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));
  // Disarmed.
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 0) == 0);
  REQUIRE(pool.post(1) == 0);
  CHECK(next(*all[0]->b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK_FALSE(next_event(*context, 0));
  CHECK(pool.srq->withdraw_events() == 6);
  // What the program has not read is taken back.
  REQUIRE(pool.post(1) == 0);
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 1) == 0);
  receive(1);
  CHECK(pool.srq->withdraw_events() == 6);
  CHECK_FALSE(next_event(*context, 0));
}

TEST_CASE_METHOD(Loopback, "srq: another size, with receives in it and traffic", "[srq]") {
  Pool pool(*context, 4);
  auto all = pairs_of(pool, 2);
  for (std::uint64_t id = 0; id < 4; ++id) REQUIRE(pool.post(id) == 0);
  CHECK(pool.post(4) == ENOMEM);
  CHECK(pool.modify(IBV_SRQ_MAX_WR, 0, 0) == EINVAL);
  CHECK(pool.modify(IBV_SRQ_MAX_WR, provider::kMaxSrqWr + 1, 0) == EINVAL);
  CHECK(pool.modify(IBV_SRQ_MAX_WR, 3, 0) == EINVAL);  // four are in it
  CHECK(pool.modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 8, 9) == EINVAL);
  CHECK(pool.query().max_wr == 4);
  CHECK(pool.query().srq_limit == 0);
  REQUIRE(pool.modify(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, 6, 1) == 0);
  CHECK(pool.query().max_wr == 6);
  CHECK(pool.query().srq_limit == 1);
  REQUIRE(pool.post(4) == 0);
  REQUIRE(pool.post(5) == 0);
  CHECK(pool.post(6) == ENOMEM);
  // A message of which a part has come goes on, whatever becomes of the queue.
  Side half(*context, {.srq = pool.srq.get()});
  TcpStream peer = attach_raw(half);
  give(peer, send_segment(1, 0, 100, false));
  REQUIRE(eventually([&] {
    none(*half.receive_cq);
    return pool.modify(IBV_SRQ_MAX_WR, 5, 0) == 0;  // once one is taken
  }));
  REQUIRE(pool.modify(IBV_SRQ_MAX_WR, 64, 0) == 0);
  give(peer, send_segment(1, 100, 50, true));
  const ibv_wc completion = next(*half.receive_cq);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(completion.byte_len == 150);
  CHECK(completion.wr_id == 0);
  for (std::uint64_t id = 1; id < 6; ++id) {
    auto& couple = all[id % 2];
    REQUIRE(couple->send(static_cast<std::uint32_t>(id), 64) == 0);
    CHECK(next(*couple->b.receive_cq).wr_id == id);
    CHECK(number_at(pool, id) == id);
  }
  CHECK(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));
}

TEST_CASE_METHOD(Loopback, "srq: a message in progress is flushed with its queue pair, and nothing else", "[srq]") {
  const int how = GENERATE(range(0, 4));
  Pool pool(*context);
  auto all = pairs_of(pool, 1);
  auto dying = std::make_unique<Side>(*context, QueueSizes{.srq = pool.srq.get()});
  TcpStream peer = attach_raw(*dying);
  for (std::uint64_t id = 0; id < 3; ++id) REQUIRE(pool.post(id) == 0);
  give(peer, send_segment(1, 0, 40, true));
  CHECK(next(*dying->receive_cq).wr_id == 0);
  REQUIRE(pool.modify(IBV_SRQ_LIMIT, 0, 2) == 0);
  give(peer, send_segment(2, 0, 40, false));
  REQUIRE(event_is(next_event(*context), IBV_EVENT_SRQ_LIMIT_REACHED, pool.handle()));  // it is taken
  REQUIRE(pool.post(7) == 0);

  if (how == 0) {
    peer.close();
  } else if (how == 1) {
    CHECK(dying->to(IBV_QPS_ERR) == 0);
  } else if (how == 2) {
    give(peer, send_segment(2, 40, 4000, true));  // too long for it
  } else {
    CHECK(dying->to(IBV_QPS_RESET) == 0);
  }
  if (how < 3) {
    const ibv_wc completion = check_next(*dying->receive_cq, 1, how == 2 ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
    CHECK(completion.qp_num == dying->qp->number());
    CHECK(event_is(next_event(*context), IBV_EVENT_QP_LAST_WQE_REACHED, dying->handle()));
    CHECK(dying->to(IBV_QPS_ERR) == 0);  // no second event
    CHECK(dying->qp->state() == IBV_QPS_ERR);
  }
  CHECK(none(*dying->receive_cq));
  CHECK_FALSE(next_event(*context, 0));
  dying.reset();
  for (const std::uint64_t id : {2, 7}) {
    REQUIRE(all[0]->send(5, 64) == 0);
    check_next(*all[0]->b.receive_cq, id);
  }
  CHECK(all[0]->b.qp->state() == IBV_QPS_RTS);
}

TEST_CASE_METHOD(Loopback, "srq: the last-WQE event comes once for each time that a queue pair goes into error",
                 "[srq]") {
  Pool pool(*context);
  Side side(*context, {.srq = pool.srq.get()}), plain(*context);
  for (int round = 0; round < 2; ++round) {
    REQUIRE(side.to(IBV_QPS_INIT) == 0);
    CHECK_FALSE(next_event(*context, 0));
    REQUIRE(side.to(IBV_QPS_ERR) == 0);
    CHECK(event_is(next_event(*context, 0), IBV_EVENT_QP_LAST_WQE_REACHED, side.handle()));
    REQUIRE(side.to(IBV_QPS_ERR) == 0);
    CHECK_FALSE(next_event(*context, 0));
    REQUIRE(side.to(IBV_QPS_RESET) == 0);
  }
  CHECK(side.qp->events_reported() == 2);
  REQUIRE(plain.to(IBV_QPS_ERR) == 0);
  CHECK_FALSE(next_event(*context, 0));  // it has a receive queue of its own
  CHECK(none(*side.receive_cq));
}

TEST_CASE_METHOD(Loopback, "srq: the promised receive of a queue pair that is destroyed goes to the next in line",
                 "[srq]") {
  Pool pool(*context);
  rdmap::ReceiveBuffer buffer;
  SrqUser late(*pool.srq);
  {
    SrqUser one(*pool.srq), two(*pool.srq), three(*pool.srq);  // of no queue pair: nobody makes them go on
    CHECK_FALSE(one.take(buffer));
    CHECK_FALSE(two.take(buffer));
    CHECK_FALSE(one.take(buffer));  // keeps its place
    CHECK_FALSE(three.take(buffer));
    CHECK(pool.srq->waiting() == 3);
    REQUIRE(pool.post(1) == 0);
    CHECK(one.promised());
    CHECK_FALSE(two.promised());
    CHECK_FALSE(late.take(buffer));  // it is there, and not for everybody
    CHECK(pool.srq->waiting() == 3);
    one.leave();
    CHECK_FALSE(one.promised());
    CHECK(two.promised());
    two.leave();
    CHECK(three.promised());
    REQUIRE(three.take(buffer));
    CHECK(buffer.id == 1);
    CHECK(buffer.sges.size() == 1);
    CHECK_FALSE(three.promised());
    CHECK_FALSE(three.take(buffer));
    REQUIRE(pool.post(2) == 0);
    CHECK(late.promised());
    REQUIRE(pool.post(3) == 0);
    CHECK(three.promised());
    REQUIRE(pool.post(4) == 0);
    CHECK(pool.srq->waiting() == 0);
    // One more than those in line: for anybody.
    REQUIRE(one.take(buffer));
    CHECK(buffer.id == 2);
    CHECK_FALSE(one.take(buffer));
    REQUIRE(late.take(buffer));
    CHECK(buffer.id == 3);
  }
  // Those that went have left one behind.
  CHECK(pool.srq->waiting() == 0);
  REQUIRE(late.take(buffer));
  CHECK(buffer.id == 4);
  CHECK_FALSE(late.take(buffer));
}

TEST_CASE_METHOD(Loopback, "srq: a queue pair in line that goes away wakes the next", "[srq]") {
  Pool pool(*context);
  auto all = pairs_of(pool, 3);
  for (auto& couple : all) REQUIRE(couple->send(3, 64) == 0);
  REQUIRE(eventually([&] { return pool.srq->waiting() == 3; }));
  all[1]->b.qp.reset();
  CHECK(pool.srq->waiting() == 2);
  CHECK(all[0]->b.to(IBV_QPS_ERR) == 0);
  CHECK(pool.srq->waiting() == 1);
  REQUIRE(pool.post(9) == 0);
  CHECK(next(*all[2]->b.receive_cq).wr_id == 9);
  CHECK(none(*all[0]->b.receive_cq));
}
