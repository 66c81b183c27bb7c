// SPDX-License-Identifier: MIT
// Connections where memory cannot be had at some moment: whatever was begun ends one way or the other, and takes no
// descriptor along. One allocation after the other fails, of one thread alone.
#include <atomic>
#include <future>

#include "provider/connect/call.h"
#include "provider/connect/listener.h"
#include "provider/connect/socket_owner.h"
#include "provider/connect/startup/incoming_call.h"
#include "provider/connect/startup/outgoing_call.h"
#include "provider/process/cm_loop.h"
#include "provider/progress/io_scratch.h"
#include "tests/unit/provider/awaitable.h"
#include "tests/unit/provider/connect/loopback.h"
#include "tests/unit/provider/connect/manual/manual_pair.h"
#include "tests/unit/provider/process/refusing_new.h"
#include "tests/unit/provider/verbs/pool_pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::Call;
using provider::CallParameters;
using provider::CmLoop;
using provider::Listener;
using provider::SrqUser;

namespace {

// Of this thread: so many allocations succeed, then so many fail.
struct Plan {
  unsigned succeed = 0, fail = 0;
};
thread_local Plan plan;
std::atomic<bool> failed_once{false};

}  // namespace

bool uiw::test::refuses_allocation() {
  if (plan.fail == 0) return false;
  if (plan.succeed > 0) {
    --plan.succeed;
    return false;
  }
  --plan.fail;
  failed_once.store(true);
  return true;
}

namespace {

// While it lives, memory is short for the thread that made it.
class Short {
 public:
  explicit Short(unsigned succeed, unsigned fail = 1) {
    failed_once.store(false);
    plan = {succeed, fail};
  }
  ~Short() { plan = {}; }
};

// The same for the thread of CmLoop.
void plan_for_loop(Plan planned) {
  std::promise<void> done;
  REQUIRE(CmLoop::instance().post([&] {
    plan = planned;
    done.set_value();
  }) == 0);
  done.get_future().wait();
}
class ShortOnLoop {
 public:
  explicit ShortOnLoop(unsigned succeed, unsigned fail = 1) {
    failed_once.store(false);
    plan_for_loop({succeed, fail});
  }
  ~ShortOnLoop() { plan_for_loop({}); }
};

// With what its thread opens first.
void start_loop() {
  REQUIRE(CmLoop::instance().start() == 0);
  plan_for_loop({});
}

// Every one is tried, until none is left to fail.
template <typename Attempt>
void try_each(Attempt attempt) {
  constexpr unsigned kMost = 200;
  unsigned at = 0;
  do {
    REQUIRE(at < kMost);
    INFO("allocation " << at);
    attempt(at++);
  } while (failed_once.load());
  CHECK(at > 1);
}

class Observer final : public provider::CallObserver, Awaitable {
 public:
  void established(const CallParameters&) override {
    change([&] { established_ = true; });
  }
  void failed(int, const CallParameters*) override {
    change([&] { failed_ = true; });
  }
  void disconnected() override {
    change([&] { disconnected_ = true; });
  }
  bool wait_outcome() {
    return wait([&] { return established_ || failed_; });
  }
  bool wait_over() {
    return wait([&] { return failed_ || disconnected_; });
  }
  bool stands() {
    return look([&] { return established_; });
  }

 private:
  bool established_ = false, failed_ = false, disconnected_ = false;
};

// Accepts each call for one side.
class Server final : public provider::ListenObserver {
 public:
  static constexpr unsigned kBacklog = 16;
  static std::shared_ptr<Server> make(Side& side) {
    auto made = std::make_shared<Server>();
    made->side_ = &side;
    const int fd = bound_socket(made->address);
    REQUIRE(provider::listen(fd, kBacklog, made, made->listener_) == 0);
    return made;
  }
  void requested(std::shared_ptr<Call> call, const CallParameters&) override {
    if (call->accept({side_->qp->number(), 4, 4, {}}, observer) == 0) call_ = std::move(call);
  }
  sockaddr_storage address{};
  std::shared_ptr<Observer> observer = std::make_shared<Observer>();

 private:
  Side* side_ = nullptr;
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<Call> call_;
};

void listen_in_short_memory(unsigned at) {
  const std::size_t before = open_descriptors();
  std::shared_ptr<Listener> listener;
  const int fd = bound_socket();
  try {
    const Short memory(at);
    provider::listen(fd, 16, {}, listener);
  } catch (const std::bad_alloc&) {
  }
  listener.reset();
  CHECK(open_descriptors() == before);
}

void connect_in_short_memory(unsigned at, const sockaddr_storage& remote, const CallParameters& own) {
  const auto observer = std::make_shared<Observer>();
  const std::size_t before = open_descriptors();
  std::shared_ptr<Call> connection;
  const int fd = bound_socket();
  try {
    const Short memory(at);
    provider::connect(fd, remote, own, -1, observer, connection);
  } catch (const std::bad_alloc&) {
  }
  connection.reset();
  plan_for_loop({});  // the thread may have been at it
  CHECK(open_descriptors() == before);
}

void take_call_in_short_memory(unsigned at) {
  const std::size_t before = open_descriptors();
  const int fd = bound_socket();
  std::promise<void> done;
  REQUIRE(CmLoop::instance().post([&] {
    try {
      const Short memory(at);
      provider::take_call(
          TcpStream(fd), [](const auto&, const auto&) {}, [](const Call*) {});
    } catch (const std::bad_alloc&) {
    }
    done.set_value();
  }) == 0);
  done.get_future().wait();
  CHECK(open_descriptors() == before);
}

}  // namespace

TEST_CASE_METHOD(Single, "no memory: listening and calling lose no descriptor", "[memory]") {
  start_loop();
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  sockaddr_storage remote{};
  const TcpStream peer(bound_socket(remote));
  REQUIRE(::listen(peer.fd(), 128) == 0);
  SECTION("listen") { try_each(listen_in_short_memory); }
  SECTION("connect") {
    const CallParameters own{a.qp->number(), 4, 4, pattern(100)};
    REQUIRE(provider::is_local_address(remote));  // each call asks for it, by a socket that the first one opens
    try_each([&](unsigned at) { connect_in_short_memory(at, remote, own); });
  }
  SECTION("a call that is taken") { try_each(take_call_in_short_memory); }
}

TEST_CASE_METHOD(Loopback, "no memory: the making of a connection ends one way or the other, and the listener goes on",
                 "[memory]") {
  start_loop();
  const auto call = [&](Side& side, Server& server, const std::shared_ptr<Observer>& observer) {
    std::shared_ptr<Call> connection;
    const int fd = bound_socket();
    REQUIRE(provider::connect(fd, server.address, {side.qp->number(), 4, 4, {}}, -1, observer, connection) == 0);
    return connection;
  };
  try_each([&](unsigned at) {
    Side a(*context), b(*context), c(*context);
    for (Side* side : {&a, &b, &c}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
    const auto server = Server::make(b);
    const auto first = std::make_shared<Observer>(), second = std::make_shared<Observer>();
    {
      const ShortOnLoop memory(at);
      const auto connection = call(a, *server, first);
      REQUIRE(first->wait_outcome());
    }
    if (first->stands()) return;
    // What is left of the first attempt may be the end of the queue pair.
    Side d(*context);
    REQUIRE(d.to(IBV_QPS_INIT) == 0);
    const auto other = Server::make(d);
    const auto connection = call(c, *other, second);
    REQUIRE(second->wait_outcome());
    CHECK(second->stands());
  });
}

TEST_CASE_METHOD(InitPair, "no memory: a listener that is full looks again", "[memory]") {
  start_loop();
  const auto server = Server::make(b);
  const auto dial = [&] {
    TcpStream caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(caller.fd(), reinterpret_cast<const sockaddr*>(&server->address), sizeof(sockaddr_in)) == 0);
    return caller;
  };
  // As many as it holds that say nothing, and one more: there is a pause before the first of them gives way.
  const std::size_t before = open_descriptors();
  std::vector<TcpStream> silent;
  for (unsigned i = 0; i < Server::kBacklog; ++i) silent.push_back(dial());
  REQUIRE(eventually([&] { return open_descriptors() == before + 2 * Server::kBacklog; }));
  const auto observer = std::make_shared<Observer>();
  std::shared_ptr<Call> connection;
  {
    const ShortOnLoop memory(0, 10);
    silent.push_back(dial());
    REQUIRE(eventually([] { return failed_once.load(); }));
  }
  const int fd = bound_socket();
  REQUIRE(provider::connect(fd, server->address, {a.qp->number(), 4, 4, {}}, -1, observer, connection) == 0);
  REQUIRE(observer->wait_outcome());
  CHECK(observer->stands());
}

TEST_CASE_METHOD(Loopback, "no memory: both sides hear of the end of a stream", "[memory]") {
  start_loop();
  try_each([&](unsigned at) {
    Side a(*context), b(*context);
    for (Side* side : {&a, &b}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
    const auto server = Server::make(b);
    const auto observer = std::make_shared<Observer>();
    std::shared_ptr<Call> connection;
    const int fd = bound_socket();
    REQUIRE(provider::connect(fd, server->address, {a.qp->number(), 4, 4, {}}, -1, observer, connection) == 0);
    REQUIRE(observer->wait_outcome());
    REQUIRE(server->observer->wait_outcome());
    static_cast<void>(provider::io_scratch());  // each thread has its own, from the first time on
    bool threw = false;
    try {
      const Short memory(at, 4);
      a.to(IBV_QPS_ERR);
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    CHECK_FALSE(threw);
    CHECK(observer->wait_over());
    CHECK(server->observer->wait_over());
    if (at == 0) failed_once.store(true);  // be it that the first one needs none
  });
}

TEST_CASE_METHOD(Loopback, "no memory: queue pairs that are connected without rdma_cm find each other all the same",
                 "[memory]") {
  start_loop();
  const unsigned fails = GENERATE(1U, 6U);
  try_each([&](unsigned at) {
    INFO("fails " << fails);
    Side a(*context), b(*context);
    Registered out(a, pattern(10)), in(b, Bytes(10), kLocal);
    for (Side* side : {&a, &b}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
    REQUIRE(b.post_receive(1, {in.sge()}) == 0);
    const ShortOnLoop memory(at, fails);
    REQUIRE(to_rtr(a, b) == 0);
    REQUIRE(to_rtr(b, a) == 0);
    for (Side* side : {&a, &b}) REQUIRE(to_rts(*side) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 2, {out.sge()}) == 0);
    REQUIRE(next(*a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  });
}

TEST_CASE_METHOD(Loopback, "no memory: who is next in line for a shared receive is woken when another leaves",
                 "[memory][srq]") {
  Pool pool(*context);
  SrqUser first(*pool.srq);  // of no queue pair: nobody comes for what it is promised
  rdmap::ReceiveBuffer buffer;
  REQUIRE_FALSE(first.take(buffer));
  auto all = pairs_of(pool, 1);
  constexpr std::uint32_t kNumber = 4711;
  REQUIRE(all[0]->send(kNumber, 64) == 0);
  REQUIRE(eventually([&] { return pool.srq->waiting() == 2; }));
  REQUIRE(pool.post(7) == 0);
  REQUIRE(first.promised());
  try {
    const Short memory(0, 10);
    first.leave();
  } catch (const std::bad_alloc&) {
  }
  // The message comes without any poll, which would drive the queue pair.
  auto& octets = *reinterpret_cast<std::uint32_t*>(pool.memory.data() + 7 * pool.slot);
  CHECK(eventually([&] { return std::atomic_ref(octets).load() == kNumber; }));
  CHECK(next(*all[0]->b.receive_cq).wr_id == 7);
}
