// SPDX-License-Identifier: MIT
// Queue pairs that are connected with ibv_modify_qp: in which order, with whom, and what callers are told.
#include "provider/connect/manual/greeting_format.h"

#include <chrono>
#include <thread>

#include "provider/connect/local_address.h"
#include "provider/connect/qp_port.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"
#include "tests/unit/provider/connect/manual/manual_caller.h"

using namespace uiw;
using namespace uiw::test;
using provider::PairGreeting;
using provider::PairRefusal;
using provider::port_of;

TEST_CASE_METHOD(ManualPair, "manual: two queue pairs of a process, in either order", "[manual]") {
  const bool a_first = GENERATE(true, false);
  Side& first = a_first ? a : b;
  Side& second = a_first ? b : a;
  REQUIRE(to_rtr(first, second) == 0);
  CHECK(first.qp->state() == IBV_QPS_RTR);
  REQUIRE(to_rts(first) == 0);
  // Work waits for a peer that is not there yet.
  Registered out(first, pattern(10)), in(second, Bytes(10), kLocal);
  REQUIRE(first.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
  REQUIRE(second.post_receive(2, {in.sge()}) == 0);
  CHECK(none(*first.send_cq));
  REQUIRE(to_rtr(second, first) == 0);
  CHECK(next(*second.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*first.send_cq).status == IBV_WC_SUCCESS);
  CHECK(in == out);
  CHECK(second.qp->state() == IBV_QPS_RTR);
  REQUIRE(to_rts(second) == 0);
  exchange(a, b);
  // What the program has said is what it is told.
  const ibv_qp_attr attributes = a.query();
  CHECK(attributes.dest_qp_num == b.qp->number());
  CHECK(attributes.max_rd_atomic == 2);
  CHECK(attributes.max_dest_rd_atomic == 2);
}

TEST_CASE_METHOD(Single, "manual: a queue pair is its own peer", "[manual]") {
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(a, a) == 0);
  REQUIRE(to_rts(a) == 0);
  Registered out(a, pattern(5000));
  Registered in(a, Bytes(5000), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(a.post_receive(1, {in.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {out.sge()}) == 0);
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(in == out);
  in.assign(in.size(), std::byte{0});
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 3, {out.sge()}, in) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  CHECK(in == out);  // the remote rule: it is there
}

TEST_CASE_METHOD(Single,
                 "manual: what does not name a peer is refused, and changes nothing (manual page of ibv_modify_qp)",
                 "[manual]") {
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  const ibv_qp_attr good = rtr(gid(*context), 2000U << 8);
  const auto refused = [&](ibv_qp_attr attributes, int mask = kRtr) {
    CHECK(a.qp->modify(attributes, mask) == EINVAL);
    CHECK(a.qp->state() == IBV_QPS_INIT);
  };
  for (const int one : {IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER}) {
    refused(good, kRtr & ~one);
  }
  ibv_qp_attr other = good;
  other.ah_attr.is_global = 0;  // a LID alone
  refused(other);
  other = good;
  other.ah_attr.port_num = 2;
  refused(other);
  other = good;
  other.ah_attr.grh.sgid_index = 77;
  refused(other);
  for (const std::uint32_t number : {0U, (1024U << 8) - 1, 1U << 24}) {
    other = good;
    other.dest_qp_num = number;
    refused(other);
  }
  for (const Gid& peer : {Gid{}, Gid{0xFF, 0x02}, Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 1},
                          Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 224, 0, 0, 1}}) {
    refused(rtr(peer, 2000U << 8));
  }
  // Another family than that of the GID it is to call from.
  refused(rtr(provider::is_ipv4(gid(*context)) ? Gid{0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
                                               : Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1},
              2000U << 8));
  // From RTR on all that InfiniBand asks for is asked for.
  REQUIRE(a.qp->modify(good, kRtr) == 0);
  CHECK(a.to(IBV_QPS_RTS) == EINVAL);
  CHECK(a.qp->state() == IBV_QPS_RTR);
  CHECK(to_rts(a) == 0);
}

TEST_CASE_METHOD(Pair, "manual: in SQD later posts wait, and the queue pair can return to RTS", "[manual]") {
  connect_manually(a, b);
  exchange(a, b);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  REQUIRE(a.qp->modify(attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  const auto event = next_event(*context);
  REQUIRE(event);
  CHECK(event->event_type == IBV_EVENT_SQ_DRAINED);
  Registered out(a, pattern(10)), in(b, Bytes(10), kLocal);
  REQUIRE(b.post_receive(2, {in.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
  // The other way nothing is held: a round trip passes the message that would have come before it.
  Registered back(a, Bytes(10), kLocal);
  REQUIRE(a.post_receive(3, {back.sge()}) == 0);
  const auto send_back = b.expose(out, 0);
  REQUIRE(b.post(IBV_WR_SEND, 4, {sge_of(out, *send_back)}) == 0);
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*b.send_cq).status == IBV_WC_SUCCESS);
  CHECK(none(*b.receive_cq));
  CHECK(none(*a.send_cq));
  REQUIRE(a.to(IBV_QPS_RTS) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(Pair, "manual: back to RESET, and connected to another", "[manual]") {
  Side c(*context);
  connect_manually(a, b);
  exchange(a, b);
  REQUIRE(a.to(IBV_QPS_RESET) == 0);
  connect_manually(a, c);
  exchange(a, c);
}

TEST_CASE_METHOD(Single, "manual: work that the peer has received completes even if the peer is destroyed right then",
                 "[manual]") {
  for (int turn = 0; turn < 100; ++turn) {
    Side b(*context);
    connect_manually(a, b);
    Registered out(a, pattern(10)), in(b, Bytes(10), kLocal);
    for (int i = 0; i < 10; ++i) REQUIRE(b.post_receive(1, {in.sge()}) == 0);
    for (int i = 0; i < 10; ++i) REQUIRE(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
    for (int i = 0; i < 10; ++i) CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    b.qp->stop();
    b.qp.reset();
    INFO("turn " << turn);
    for (int i = 0; i < 10; ++i) REQUIRE(next(*a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(a.to(IBV_QPS_RESET) == 0);
  }
}

TEST_CASE_METHOD(Single,
                 "manual: a queue pair that does not exist is not reached: retry exceeded, and the rest is flushed",
                 "[manual]") {
  std::uint32_t number = 0;
  {
    const Side gone(*context);
    number = gone.qp->number();
  }
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(a, gid(*context), number) == 0);
  REQUIRE(to_rts(a) == 0);
  Registered out(a, pattern(10)), in(a, Bytes(10), kLocal);
  REQUIRE(a.post_receive(1, {in.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {out.sge()}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 3, {out.sge()}) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(a.qp->state() == IBV_QPS_ERR);
}

TEST_CASE_METHOD(Single, "manual: work for a peer that has left fails no sooner than an adapter gives up", "[manual]") {
  // Other work may complete meanwhile, and programs end on that: ibv_srq_pingpong does.
  std::optional<Side> b(*context);
  connect_manually(a, *b);
  exchange(a, *b);
  Registered out(a, pattern(10));
  REQUIRE(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
  const auto left = std::chrono::steady_clock::now();
  b.reset();
  CHECK(next(*a.send_cq).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(std::chrono::steady_clock::now() - left >= std::chrono::milliseconds(400));
}

TEST_CASE_METHOD(
    Loopback, "manual: work that could not be sent completes with its own error even if the peer leaves at that moment",
    "[manual]") {
  for (int turn = 0; turn < 20; ++turn) {
    INFO("turn " << turn);
    Side a(*context);
    REQUIRE(a.to(IBV_QPS_INIT) == 0);
    // Nobody calls: its number is the greater one, and the stream is given to it here.
    REQUIRE(to_rtr(a, gid(*context), provider::kFirstPort << 8) == 0);
    auto [peer, own] = tcp_pair();
    provider::Attachment attachment = attachment_of(kRaw, true);
    attachment.attempt = a.qp->attempt();
    REQUIRE(a.qp->attach(own, attachment) == 0);
    REQUIRE(to_rts(a) == 0);
    Registered gone(a, pattern(10));
    const ibv_sge sge = gone.sge();
    gone.mr.reset();
    // Mostly before the thread of the context has seen the error.
    REQUIRE(a.post(IBV_WR_SEND, 1, {sge}) == 0);
    a.qp->no_first_message(nullptr);
    CHECK(next(*a.send_cq).status == IBV_WC_LOC_PROT_ERR);
    CHECK(a.qp->state() == IBV_QPS_ERR);
  }
}

TEST_CASE_METHOD(Loopback, "manual: what this process needs to make its connections is not the silence of a peer",
                 "[manual][retry]") {
  using std::chrono::milliseconds;
  Side first(*context), first_peer(*context), a(*context), b(*context);
  const Registered out(b, pattern(10)), in(a, Bytes(10), kLocal);
  for (Side* side : {&first, &first_peer, &a, &b}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
  REQUIRE(a.post_receive(1, {in.sge()}) == 0);
  const auto ready = [](Side& side, const Side& peer) { return to_rtr(side, peer) == 0 && to_rts(side) == 0; };
  // Work of `b` fails half a second after it was posted if its peer has not come by then.
  REQUIRE(ready(first, first_peer));
  REQUIRE(ready(b, a));
  REQUIRE(b.post(IBV_WR_SEND, 2, {out.sge()}) == 0);
  auto& loop = provider::CmLoop::instance();
  bool all = true;
  SECTION("the thread of set-up is late") {
    loop.after(milliseconds(300), [&] {
      std::this_thread::sleep_for(milliseconds(500));
      all = ready(a, b);
    });
  }
  SECTION("a pair is connected that has begun before this one") {
    loop.after(milliseconds(400), [&] { all = ready(first_peer, first); });
    loop.after(milliseconds(750), [&] { all = all && ready(a, b); });
  }
  CHECK(next(*b.send_cq).status == IBV_WC_SUCCESS);
  CHECK(all);
  CHECK(next(*a.receive_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(ManualPair,
                 "manual: work posted in RTR waits for a receive until the step to RTS says how often to retry",
                 "[manual]") {
  REQUIRE(to_rtr(a, b) == 0);
  REQUIRE(to_rtr(b, a) == 0);
  REQUIRE(to_rts(b) == 0);
  Registered memory(a, pattern(16)), target(b, Bytes(16), kLocal);
  REQUIRE(a.post(IBV_WR_SEND, 1, {memory.sge()}) == 0);
  // Longer than the shortest time for which work waits for a receive.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ibv_wc completion{};
  CHECK(a.send_cq->poll(1, &completion) == 0);
  REQUIRE(to_rts(a) == 0);
  REQUIRE(b.post_receive(2, {target.sge()}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(CalledManually,
                 "manual: a port listens once a queue pair of it is connected, on the device's addresses alone",
                 "[manual]") {
  // Another test's queue pair of the same port may have made it listen.
  const bool before = caller.dial(gid(*context)) == 0;
  INFO("listens already: " << before);
  REQUIRE(to_rtr(a, gid(*context), 2000U << 8) == 0);
  for (const Gid& one : context->device().gids) CHECK(caller.dial(one) == 0);
  CHECK(caller.dial({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 99}) == ECONNREFUSED);
}

namespace {

constexpr std::size_t kReply = 20 + 4 + provider::kPairGreetingSize;

void check_rejected(Caller& caller, const Bytes& said, PairRefusal why) {
  caller.say(said);
  const Bytes reply = caller.hear(kReply);
  REQUIRE(reply.size() == kReply);
  CHECK(std::memcmp(reply.data(), "MPA ID Rep Frame", 16) == 0);
  CHECK((reply[16] & std::byte{0x20}) != std::byte{0});  // R: rejected
  CHECK(reply[24 + 9] == static_cast<std::byte>(why));
}

void check_held_until_destroyed(const Context& context, Side& a, Caller& caller, const PairGreeting& good) {
  caller.say(octets_of(good));
  // Seen by now, more often than not; refused in any case.
  Caller later(a);
  REQUIRE(later.dial(gid(context)) == 0);
  later.say(pattern(52));
  REQUIRE(later.hear(kReply).size() == kReply);
  a.qp.reset();
  const Bytes reply = caller.hear(kReply);
  REQUIRE(reply.size() == kReply);
  CHECK(reply[24 + 9] == static_cast<std::byte>(PairRefusal::no_such_qp));
}

void check_held_until_rtr(const Context& context, Side& a, Caller& caller, const PairGreeting& good) {
  caller.say(octets_of(good));
  CHECK(a.qp->state() == IBV_QPS_INIT);
  REQUIRE(to_rtr(a, gid(context), caller.own) == 0);
  const Bytes reply = caller.hear(kReply);
  REQUIRE(reply.size() == kReply);
  CHECK((reply[16] & std::byte{0x20}) == std::byte{0});
  CHECK(Bytes(reply.begin() + 24, reply.end()) == octets_of(good.reversed()));
  // IRD of the reply: what its program offers, and four more, for our confirmations; its own ORD keeps to
  // our IRD.
  CHECK((big_endian({reply.data() + 20, 2}) & 0x3FFF) == 6);
  CHECK((big_endian({reply.data() + 22, 2}) & 0x3FFF) == 1);
}

void check_held_for_another_peer(const Context& context, Side& a, Caller& caller, const PairGreeting& good) {
  caller.say(octets_of(good));
  REQUIRE(to_rtr(a, gid(context), caller.own + 1) == 0);
  const Bytes reply = caller.hear(kReply);
  REQUIRE(reply.size() == kReply);
  CHECK(reply[24 + 9] == static_cast<std::byte>(PairRefusal::other_peer));
}

}  // namespace

TEST_CASE_METHOD(CalledManually, "manual: a caller is accepted only as the user who holds its port", "[manual]") {
  // Listens, but for no peer yet.
  Side opener(*context);
  REQUIRE(opener.to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(opener, gid(*context), 2000U << 8) == 0);
  REQUIRE(port_of(opener.qp->number()) == port_of(a.qp->number()));
  REQUIRE(caller.dial(gid(*context)) == 0);
  const PairGreeting good = caller.greeting();

  const auto rejected = [&](const Bytes& said, PairRefusal why) { check_rejected(caller, said, why); };
  SECTION("no greeting") { rejected(pattern(52), PairRefusal::malformed); }
  SECTION("a rejection as a greeting") { rejected(octets_of(good, PairRefusal::no_such_qp), PairRefusal::malformed); }
  SECTION("another address than it says") {
    PairGreeting other = good;
    other.source[15] ^= 1;
    rejected(octets_of(other), PairRefusal::wrong_address);
  }
  SECTION("another address than is meant") {
    PairGreeting other = good;
    other.destination[15] ^= 1;
    rejected(octets_of(other), PairRefusal::wrong_address);
  }
  SECTION("a queue pair that is not there") {
    PairGreeting other = good;
    other.destination_qp = 65535U << 8 | 255;
    rejected(octets_of(other), PairRefusal::no_such_qp);
  }
  SECTION("one that is to be called") {
    PairGreeting other = good;
    other.source_qp = 0xFFFFFF;
    rejected(octets_of(other), PairRefusal::other_peer);
  }
  SECTION("a queue pair with another peer") {
    REQUIRE(to_rtr(a, gid(*context), caller.own + 1) == 0);
    rejected(octets_of(good), PairRefusal::other_peer);
  }
  SECTION("held, and then there is another peer") { check_held_for_another_peer(*context, a, caller, good); }
  SECTION("held, and then the queue pair goes") { check_held_until_destroyed(*context, a, caller, good); }
  SECTION("held until the queue pair is in RTR, then answered") { check_held_until_rtr(*context, a, caller, good); }
}

TEST_CASE_METHOD(Loopback, "manual: ports are reserved one at a time, and hold 256 numbers", "[manual]") {
  const std::uint16_t one = provider::reserve_port(), two = provider::reserve_port();
  REQUIRE(one >= provider::kFirstPort);
  REQUIRE(two >= provider::kFirstPort);
  CHECK(one != two);
  // Nobody else gets it.
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(one);
  const TcpStream socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0);
  CHECK(errno == EADDRINUSE);

  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 600; ++i) {
    sides.push_back(std::make_unique<Side>(*context, QueueSizes{.depth = 1}));
    numbers.push_back(sides.back()->qp->number());
  }
  std::sort(numbers.begin(), numbers.end());
  CHECK(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
  CHECK(port_of(numbers.front()) != port_of(numbers.back()));
}
