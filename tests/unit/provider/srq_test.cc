// SPDX-License-Identifier: MIT
#include "provider/srq.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>

#include "provider/limits.h"
#include "tests/unit/provider/rnic.h"

using namespace uiw;
using namespace uiw::test;
using provider::Srq;
using provider::SrqUser;

namespace {

// A shared receive queue and its buffers, in a protection domain of its own (Verbs draft section 6.3.5). A receive's
// id is its buffer's number.
struct Pool {
  explicit Pool(Context& in, std::uint32_t depth = 16, std::size_t size = 256, std::size_t count = 64)
      : context(in), pd(in), slot(size), memory(size * count) {
    ibv_srq_attr attributes{depth, 2, 0};
    srq = Srq::create(pd, attributes, false, handle());
    REQUIRE(srq);
    mr = Mr::create(pd, memory.data(), memory.size(), address_of(memory), IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(mr);
  }
  ibv_srq* handle() { return reinterpret_cast<ibv_srq*>(this); }

  int post(std::uint64_t id) {
    ibv_sge sge{address_of(memory) + id * slot, static_cast<std::uint32_t>(slot), mr->key()};
    return post(id, &sge, 1);
  }
  int post(std::uint64_t id, ibv_sge* sges, int count) {
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = sges;
    request.num_sge = count;
    ibv_recv_wr* bad = nullptr;
    const int error = srq->post(&request, &bad);
    if (bad != (error != 0 ? &request : nullptr)) return -1;
    return error;
  }
  int modify(int mask, std::uint32_t max_wr, std::uint32_t limit) {
    return srq->modify(ibv_srq_attr{max_wr, 0, limit}, mask);
  }
  ibv_srq_attr query() {
    ibv_srq_attr attributes{};
    srq->query(attributes);
    return attributes;
  }
  const std::byte* at(std::uint64_t id) const { return memory.data() + id * slot; }

  Context& context;
  Pd pd;
  std::size_t slot;
  Bytes memory;
  std::unique_ptr<Srq> srq;
  std::unique_ptr<Mr> mr;
};

// One that sends, and one that takes from the pool.
struct Couple {
  Couple(Pool& pool, std::size_t size)
      : a(pool.context), b(pool.context, 16, 4, 64, true, pool.srq.get()), memory(size) {
    mr = a.expose(memory, 0);
  }
  void connect() { attach(a, b); }
  // `number` in the first octets, so that the receiver can tell. No check in it: threads use it.
  int send(std::uint32_t number, std::uint32_t size) {
    std::memcpy(memory.data(), &number, sizeof number);
    ibv_sge sge{address_of(memory), size, mr->key()};
    ibv_send_wr request{};
    request.wr_id = number;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    return a.qp->post_send(&request, &bad);
  }
  Side a, b;
  Bytes memory;
  std::unique_ptr<Mr> mr;
};

std::vector<std::unique_ptr<Couple>> couples(Pool& pool, std::size_t count) {
  std::vector<std::unique_ptr<Couple>> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.push_back(std::make_unique<Couple>(pool, 64));
    made.back()->connect();
  }
  return made;
}

std::uint32_t number_at(const Pool& pool, std::uint64_t id) {
  std::uint32_t number;
  std::memcpy(&number, pool.at(id), sizeof number);
  return number;
}

// The next completion of any of them, and whose.
std::pair<std::size_t, ibv_wc> next(std::vector<std::unique_ptr<Couple>>& all) {
  std::size_t who = 0;
  ibv_wc completion{};
  REQUIRE(eventually([&] {
    who = (who + 1) % all.size();
    return all[who]->b.receive_cq->poll(1, &completion) == 1;
  }));
  return {who, completion};
}

bool event_is(const std::optional<ib_uverbs_async_event_desc>& event, ibv_event_type type, const void* about) {
  return event && event->event_type == static_cast<unsigned>(type) &&
         event->element == reinterpret_cast<std::uintptr_t>(about);
}

}  // namespace

TEST_CASE("srq: creation checks sizes and the limit", "[srq]") {
  const auto context = open_loopback();
  Pd pd(*context);
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

TEST_CASE("srq: errno of ibv_post_srq_recv, and of ibv_post_recv to a queue pair that has one", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context, 3);
  Side side(*context, 16, 4, 64, true, pool.srq.get());
  Bytes other(64);
  const auto foreign = side.expose(other, IBV_ACCESS_LOCAL_WRITE);  // of the queue pair's domain, not the queue's
  ibv_sge sges[3] = {sge_of(other, *foreign), {}, {}};
  CHECK(pool.post(1, sges, 1) == EINVAL);
  CHECK(pool.post(1, sges, -1) == EINVAL);
  sges[0] = {address_of(pool.memory), 8, pool.mr->key()};
  sges[1] = sges[2] = sges[0];
  CHECK(pool.post(1, sges, 3) == EINVAL);
  sges[0].length = static_cast<std::uint32_t>(pool.memory.size() + 1);
  CHECK(pool.post(1, sges, 1) == EINVAL);
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

TEST_CASE("srq: not to be destroyed while a queue pair has it", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context);
  CHECK_FALSE(pool.srq->in_use());
  {
    Side one(*context, 16, 4, 64, true, pool.srq.get());
    CHECK(pool.srq->in_use());
    {
      Side two(*context, 16, 4, 64, true, pool.srq.get());
    }
    CHECK(pool.srq->in_use());
    CHECK(one.to(IBV_QPS_ERR) == 0);
    CHECK(pool.srq->in_use());
  }
  CHECK_FALSE(pool.srq->in_use());
  REQUIRE(pool.post(0) == 0);  // goes with it
}

TEST_CASE("srq: many queue pairs take in any order, each its own messages in order", "[srq]") {
  const auto context = open_loopback();
  const std::size_t many = GENERATE(3, 12);
  constexpr std::uint32_t kEach = 200;
  Pool pool(*context, 16);
  auto all = couples(pool, many);
  std::mt19937 random(7);
  std::vector<std::uint32_t> sent(many), received(many);
  std::vector<unsigned> flying(many);
  std::deque<std::uint64_t> idle;
  for (std::uint64_t id = 0; id < 64; ++id) idle.push_back(id);
  std::vector<bool> posted(64);
  for (std::size_t left = many * kEach; left > 0;) {
    // Sometimes more than are sent, sometimes none for a while.
    if (random() % 3 != 0) {
      for (unsigned n = random() % 5; n > 0; --n) {
        const std::uint64_t id = idle.front();
        if (pool.post(id) != 0) break;
        idle.pop_front();
        posted[id] = true;
      }
    }
    const std::size_t who = random() % many;
    if (sent[who] < kEach && all[who]->send(sent[who], 4 + random() % 60) == 0) ++sent[who];
    for (std::size_t i = 0; i < many; ++i) {
      ibv_wc completion{};
      all[i]->a.send_cq->poll(1, &completion);
      if (all[i]->b.receive_cq->poll(1, &completion) != 1) continue;
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      REQUIRE(completion.opcode == IBV_WC_RECV);
      REQUIRE(completion.qp_num == all[i]->b.qp->number());
      REQUIRE(completion.wr_id < 64);
      REQUIRE(posted[completion.wr_id]);
      posted[completion.wr_id] = false;
      REQUIRE(number_at(pool, completion.wr_id) == received[i]);
      ++received[i];
      idle.push_back(completion.wr_id);
      --left;
    }
  }
}

TEST_CASE("srq: those without a receive are served in turn, the program polling or not", "[srq]") {
  const auto context = open_loopback();
  const std::size_t many = GENERATE(1, 4, 12);
  constexpr std::uint32_t kEach = 8;
  Pool pool(*context);
  auto all = couples(pool, many);
  for (auto& couple : all) {
    for (std::uint32_t i = 0; i < kEach; ++i) REQUIRE(couple->send(i, 64) == 0);
  }
  REQUIRE(eventually([&] { return pool.srq->waiting() == many; }));
  std::vector<std::uint32_t> received(many);
  for (std::uint32_t round = 0; round < kEach; ++round) {
    std::vector<bool> served(many);
    for (std::size_t i = 0; i < many; ++i) {
      REQUIRE(pool.post(i) == 0);
      const auto [who, completion] = next(all);
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      CHECK_FALSE(served[who]);
      served[who] = true;
      CHECK(number_at(pool, completion.wr_id) == received[who]++);
      const std::size_t done = round + 1 < kEach ? 0 : i + 1;
      REQUIRE(eventually([&] { return pool.srq->waiting() == many - done; }));
    }
  }
  CHECK(pool.srq->waiting() == 0);
  // Enough for all at once, and nobody polls: what is posted comes all the same.
  std::fill(pool.memory.begin(), pool.memory.end(), std::byte{0});
  for (auto& couple : all) REQUIRE(couple->send(0xFFFFFFFF, 64) == 0);
  for (std::size_t i = 0; i < many; ++i) REQUIRE(pool.post(i) == 0);
  for (std::size_t i = 0; i < many; ++i) {
    CHECK(eventually([&] { return std::atomic_ref(pool.memory[i * pool.slot]).load() == std::byte{0xFF}; }));
  }
}

TEST_CASE("srq: a busy queue pair leaves receives to the others", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context, 4);
  auto all = couples(pool, 2);
  std::uint32_t busy = 0;
  std::uint64_t id = 0;
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (; busy < 8 + 3 * round; ++busy) {
      REQUIRE(all[0]->send(busy, 64) == 0);
      CHECK(next(*all[0]->a.send_cq).status == IBV_WC_SUCCESS);
    }
    REQUIRE(eventually([&] { return pool.srq->waiting() == 1; }));
    REQUIRE(all[1]->send(round, 64) == 0);
    CHECK(next(*all[1]->a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(eventually([&] { return pool.srq->waiting() == 2; }));
    // Four receives, and messages enough of the busy one, who also came first: one is for the other all the same.
    ibv_recv_wr list[4] = {};
    ibv_sge sges[4];
    for (int i = 0; i < 4; ++i) {
      sges[i] = {address_of(pool.memory) + id * pool.slot, 64, pool.mr->key()};
      list[i] = {id++ % 64, i < 3 ? &list[i + 1] : nullptr, &sges[i], 1};
      id %= 64;
    }
    ibv_recv_wr* bad = nullptr;
    REQUIRE(pool.srq->post(list, &bad) == 0);
    unsigned quiet = 0;
    for (int i = 0; i < 4; ++i) quiet += next(all).first == 1 ? 1 : 0;
    REQUIRE(quiet == 1);
  }
}

TEST_CASE("srq: the limit event comes once for each time it is armed", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context);
  auto all = couples(pool, 1);
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

TEST_CASE("srq: another size, with receives in it and traffic", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context, 4);
  auto all = couples(pool, 2);
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
  Side half(*context, 16, 4, 64, true, pool.srq.get());
  mpa::TcpStream peer = attach_raw(half);
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

TEST_CASE("srq: a message in progress is flushed with its queue pair, and nothing else", "[srq]") {
  const auto context = open_loopback();
  const int how = GENERATE(range(0, 4));
  Pool pool(*context);
  auto all = couples(pool, 1);
  auto dying = std::make_unique<Side>(*context, 16, 4, 64, true, pool.srq.get());
  mpa::TcpStream peer = attach_raw(*dying);
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
    const ibv_wc completion = next(*dying->receive_cq);
    CHECK(completion.wr_id == 1);
    CHECK(completion.status == (how == 2 ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR));
    CHECK(completion.qp_num == dying->qp->number());
    if (how == 2) CHECK(event_is(next_event(*context), IBV_EVENT_QP_REQ_ERR, dying->handle()));
    CHECK(event_is(next_event(*context), IBV_EVENT_QP_LAST_WQE_REACHED, dying->handle()));
    CHECK(dying->to(IBV_QPS_ERR) == 0);  // no second event
    CHECK(dying->qp->state() == IBV_QPS_ERR);
  }
  CHECK(none(*dying->receive_cq));
  CHECK_FALSE(next_event(*context, 0));
  dying.reset();
  for (const std::uint64_t id : {2, 7}) {
    REQUIRE(all[0]->send(5, 64) == 0);
    const ibv_wc completion = next(*all[0]->b.receive_cq);
    CHECK(completion.status == IBV_WC_SUCCESS);
    CHECK(completion.wr_id == id);
  }
  CHECK(all[0]->b.qp->state() == IBV_QPS_RTS);
}

TEST_CASE("srq: the last-WQE event comes once for each time that a queue pair goes into error", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context);
  Side side(*context, 16, 4, 64, true, pool.srq.get()), plain(*context);
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

TEST_CASE("srq: what one was promised that goes away is the next one's", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context);
  rdmap::Landing landing;
  SrqUser late(*pool.srq);
  {
    SrqUser one(*pool.srq), two(*pool.srq), three(*pool.srq);  // of no queue pair: nobody makes them go on
    CHECK_FALSE(one.take(landing));
    CHECK_FALSE(two.take(landing));
    CHECK_FALSE(one.take(landing));  // keeps its place
    CHECK_FALSE(three.take(landing));
    CHECK(pool.srq->waiting() == 3);
    REQUIRE(pool.post(1) == 0);
    CHECK(one.promised());
    CHECK_FALSE(two.promised());
    CHECK_FALSE(late.take(landing));  // it is there, and not for everybody
    CHECK(pool.srq->waiting() == 3);
    one.leave();
    CHECK_FALSE(one.promised());
    CHECK(two.promised());
    two.leave();
    CHECK(three.promised());
    REQUIRE(three.take(landing));
    CHECK(landing.id == 1);
    CHECK(landing.pieces.size() == 1);
    CHECK_FALSE(three.promised());
    CHECK_FALSE(three.take(landing));
    REQUIRE(pool.post(2) == 0);
    CHECK(late.promised());
    REQUIRE(pool.post(3) == 0);
    CHECK(three.promised());
    REQUIRE(pool.post(4) == 0);
    CHECK(pool.srq->waiting() == 0);
    // One more than those in line: for anybody.
    REQUIRE(one.take(landing));
    CHECK(landing.id == 2);
    CHECK_FALSE(one.take(landing));
    REQUIRE(late.take(landing));
    CHECK(landing.id == 3);
  }
  // Those that went have left one behind.
  CHECK(pool.srq->waiting() == 0);
  REQUIRE(late.take(landing));
  CHECK(landing.id == 4);
  CHECK_FALSE(late.take(landing));
}

TEST_CASE("srq: a queue pair in line that goes away wakes the next", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context);
  auto all = couples(pool, 3);
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

TEST_CASE("srq: queue pairs come and go under traffic", "[srq]") {
  const auto context = open_loopback();
  Pool pool(*context, 8);
  auto lasting = couples(pool, 1);
  std::uint32_t sent = 0, received = 0;
  std::uint64_t id = 0;
  for (int round = 0; round < 30; ++round) {
    auto fleeting = couples(pool, 3);
    for (auto& couple : fleeting) {
      for (std::uint32_t i = 0; i < 8; ++i) REQUIRE(couple->send(i, 64) == 0);
    }
    while (sent - received < 8) REQUIRE(lasting[0]->send(sent++, 64) == 0);
    for (int i = 0; i < 8; ++i) pool.post(id++ % 64);
    fleeting[0]->b.qp.reset();
    fleeting[1]->a.qp.reset();
    for (int i = 0; i < 8; ++i) pool.post(id++ % 64);
    fleeting.clear();
    // Whatever the others have taken: with receives posted, the one that stays gets its messages.
    while (received < sent) {
      ibv_wc completion{};
      lasting[0]->a.send_cq->poll(1, &completion);
      if (lasting[0]->b.receive_cq->poll(1, &completion) != 1) {
        pool.post(id++ % 64);
        continue;
      }
      REQUIRE(completion.status == IBV_WC_SUCCESS);
      ++received;
    }
  }
}

TEST_CASE("srq: threads post and others take", "[srq]") {
  const auto context = open_loopback();
  constexpr std::size_t kPairs = 4;
  constexpr std::uint32_t kEach = 400;
  Pool pool(*context, 6);
  auto all = couples(pool, kPairs);
  std::mutex mutex;
  std::deque<std::uint64_t> idle;
  for (std::uint64_t id = 0; id < 64; ++id) idle.push_back(id);
  std::atomic<unsigned> wrong{0}, received{0};
  std::vector<std::thread> threads;
  const auto working = [&] { return received < kPairs * kEach && wrong == 0; };
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (working()) {
        std::uint64_t id;
        {
          const std::lock_guard lock(mutex);
          if (idle.empty()) continue;
          id = idle.front();
          idle.pop_front();
        }
        const int error = pool.post(id);
        if (error == 0) continue;
        if (error != ENOMEM) ++wrong;
        {
          const std::lock_guard lock(mutex);
          idle.push_back(id);
        }
        std::this_thread::yield();
      }
    });
  }
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::uint32_t sent[kPairs] = {}, next_number[kPairs] = {};
      while (working()) {
        for (std::size_t i = t; i < kPairs; i += 2) {
          Couple& couple = *all[i];
          if (sent[i] < kEach && couple.send(sent[i], 64) == 0) ++sent[i];
          ibv_wc completion{};
          if (couple.a.send_cq->poll(1, &completion) == 1 && completion.status != IBV_WC_SUCCESS) ++wrong;
          if (couple.b.receive_cq->poll(1, &completion) != 1) continue;
          if (completion.status != IBV_WC_SUCCESS || number_at(pool, completion.wr_id) != next_number[i]++) ++wrong;
          {
            const std::lock_guard lock(mutex);
            idle.push_back(completion.wr_id);
          }
          ++received;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(received == kPairs * kEach);
}
