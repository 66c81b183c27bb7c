// SPDX-License-Identifier: MIT
// A connection's life, both sides in this process.
#include "provider/connect/call.h"

#include <deque>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/grace_period.h"
#include "base/stream/shared_memory.h"
#include "provider/connect/attachable.h"
#include "provider/connect/numbered.h"
#include "provider/connect/qp_table.h"
#include "tests/unit/provider/connect/called_pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(ServedPair, "connection: call, accept, traffic, orderly end", "[connection]") {
  REQUIRE(call(pattern(20, 1), 3) == 0);
  auto [in, said] = server.calls->next();
  CHECK(said.private_data == pattern(20, 1));
  CHECK(said.responder_resources == 3);
  CHECK(said.initiator_depth == 3);
  REQUIRE(in->accept({b.qp->number(), 2, 2, pattern(30, 2)}, callee) == 0);
  CHECK(in->accept({b.qp->number(), 2, 2, {}}, callee) == EINVAL);
  CHECK(in->reject({}) == EINVAL);
  const auto reply = caller->wait_established();
  REQUIRE(reply);
  CHECK(reply->private_data == pattern(30, 2));
  REQUIRE(callee->wait_established());
  CHECK(a.qp->state() == IBV_QPS_RTS);
  CHECK(b.qp->state() == IBV_QPS_RTS);
  const auto local = in->local_address(), remote = out->remote_address();
  CHECK(std::memcmp(&local, &remote, sizeof(sockaddr_in)) == 0);
  const auto there = in->remote_address(), here = out->local_address();
  CHECK(std::memcmp(&there, &here, sizeof(sockaddr_in)) == 0);
  // Both ways.
  CHECK(talk(a, b));
  CHECK(talk(b, a));
  const bool active = GENERATE(false, true);
  CHECK((active ? out : in)->disconnect() == 0);
  CHECK(caller->wait_disconnected());
  CHECK(callee->wait_disconnected());
  CHECK(a.qp->state() == IBV_QPS_ERR);
  CHECK(b.qp->state() == IBV_QPS_ERR);
  CHECK(out->disconnect() == ENOTCONN);
  CHECK(in->disconnect() == ENOTCONN);
}

namespace {

// What a server hears of its callers, one after the other: "r" a request, "e" established, "d" disconnected.
class Diary final : public provider::ListenObserver, Awaitable {
 public:
  class Entry final : public provider::CallObserver {
   public:
    explicit Entry(Diary& diary) : diary_(diary) {}
    void established(const CallParameters&) override { diary_.note('e'); }
    void failed(int, const CallParameters*) override { diary_.note('f'); }
    void disconnected() override { diary_.note('d'); }

   private:
    Diary& diary_;
  };
  explicit Diary(std::vector<std::unique_ptr<Side>>& sides) : sides_(sides) {}
  // Accepted by another thread, as by a program.
  void requested(std::shared_ptr<Call> call, const CallParameters&) override {
    note('r');
    change([&] { calls_.push_back(std::move(call)); });
  }
  void accept_all() {
    for (const auto& side : sides_) {
      if (!wait([&] { return !calls_.empty(); })) return;
      const std::shared_ptr<Call> call = look([&] {
        auto first = std::move(calls_.front());
        calls_.pop_front();
        return first;
      });
      entries_.push_back(std::make_shared<Entry>(*this));
      call->accept({side->qp->number(), 2, 2, {}}, entries_.back());
    }
  }
  bool wait_size(std::size_t size) {
    return wait([&] { return text_.size() >= size; });
  }
  std::string text() {
    return look([&] { return text_; });
  }

 private:
  void note(char what) {
    change([&] { text_ += what; });
  }
  std::vector<std::unique_ptr<Side>>& sides_;
  std::string text_;
  std::deque<std::shared_ptr<Call>> calls_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace

TEST_CASE("connection: what a caller does on one connection after the other is reported in that order",
          "[connection]") {
  constexpr std::size_t kConnections = 100;
  const bool ends = GENERATE(false, true);  // each before the next one
  const auto context = open_loopback(), others = open_loopback();
  std::vector<std::unique_ptr<Side>> callers, called;
  for (std::size_t i = 0; i < kConnections; ++i) {
    callers.push_back(std::make_unique<Side>(*context));
    called.push_back(std::make_unique<Side>(*others));
    for (const auto* side : {&callers.back(), &called.back()}) REQUIRE((*side)->to(IBV_QPS_INIT) == 0);
  }
  const auto diary = std::make_shared<Diary>(called);
  sockaddr_storage address = loopback();
  std::shared_ptr<Listener> listener;
  REQUIRE(provider::listen(provider::bind_socket(address, false), 128, diary, listener) == 0);
  std::thread program([&] { diary->accept_all(); });
  std::vector<std::shared_ptr<Call>> connections(kConnections);
  std::vector<std::shared_ptr<Observer>> observers;
  std::string wanted;
  for (std::size_t i = 0; i < kConnections; ++i) {
    observers.push_back(std::make_shared<Observer>());
    CHECK(call(*callers[i], address, observers.back(), connections[i]) == 0);
    CHECK(observers.back()->wait_established());
    if (ends) {
      CHECK(connections[i]->disconnect() == 0);
      CHECK(observers.back()->wait_disconnected());
    }
    wanted += ends ? "red" : "re";
  }
  program.join();
  CHECK(diary->wait_size(wanted.size()));
  CHECK(diary->text() == wanted);
}

TEST_CASE_METHOD(ServedPair, "connection: rejected with private data", "[connection]") {
  REQUIRE(call() == 0);
  auto [in, said] = server.calls->next();
  CHECK(in->reject(pattern(77)) == 0);
  CHECK(caller->wait_failed() == ECONNREFUSED);
  REQUIRE(caller->rejection());
  CHECK(caller->rejection()->private_data == pattern(77));
  CHECK(in->disconnect() == ENOTCONN);
  CHECK(out->disconnect() == ENOTCONN);
  // The queue pair may call again.
  const auto again = std::make_shared<Observer>();
  REQUIRE(test::call(a, server.address, again, out) == 0);
  CHECK(server.calls->next().first->reject({}) == 0);
  CHECK(again->wait_failed() == ECONNREFUSED);
}

TEST_CASE_METHOD(CalledPair, "connection: nobody listens, or a moment later", "[connection]") {
  sockaddr_storage address = loopback();
  const int fd = provider::bind_socket(address, false);
  REQUIRE(call(address) == 0);  // and is refused right then
  const bool later = GENERATE(false, true);
  std::shared_ptr<Listener> listener;
  if (later) {
    const auto calls = std::make_shared<Calls>();
    REQUIRE(provider::listen(fd, 8, calls, listener) == 0);
    CHECK(calls->next().first->reject(pattern(1)) == 0);
  }
  CHECK(caller->wait_failed() == ECONNREFUSED);
  CHECK(caller->rejection().has_value() == later);
  if (!later) ::close(fd);
}

TEST_CASE_METHOD(ServedPair, "connection: a queue pair that cannot take a stream", "[connection]") {
  for (Side* side : {&a, &b}) REQUIRE(side->to(IBV_QPS_ERR) == 0);
  CHECK(call() == EINVAL);
  REQUIRE(a.to(IBV_QPS_RESET) == 0);
  REQUIRE(call() == 0);
  auto [in, said] = server.calls->next();
  CHECK(in->accept({b.qp->number(), 1, 1, {}}, caller) == EINVAL);
  CHECK(in->accept({12345, 1, 1, {}}, caller) == EINVAL);  // none
  CHECK(in->disconnect() == ENOTCONN);
  in.reset();  // dropped without an answer
  CHECK(caller->wait_failed() == ECONNRESET);
}

namespace {
// A queue pair that the program begins to destroy while a call asks whether it can be accepted.
class Leaving final : public provider::Numbered, public provider::Attachable {
 public:
  Leaving() : number(provider::take_qp_number(*this)) { REQUIRE(number != 0); }
  ~Leaving() override {
    provider::hide_qp(number);
    wait_for_readers();
    provider::free_qp_number(number);
  }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

  Attachable* attachable() override { return this; }
  void after_fork_in_child() override {}
  int attach(TcpStream&, const provider::Attachment&) override { return EISCONN; }
  bool can_attach(const provider::manual::Attempt*) override {
    provider::hide_qp(number);
    return true;
  }
  bool is_for(std::uint32_t) override { return true; }
  int disconnect(const provider::ConnectionOwner*) override { return ENOTCONN; }
  void arrived(const provider::ConnectionOwner*) override {}
  void no_first_message(const provider::ConnectionOwner*) override {}
  bool check_retry_timer(std::chrono::nanoseconds) override { return false; }
  void restart_retry_timer() override {}

  const std::uint32_t number;
};
}  // namespace

TEST_CASE_METHOD(ServedPair, "connection: accepted for a queue pair that is being destroyed", "[connection]") {
  REQUIRE(call() == 0);
  const auto in = server.calls->next().first;
  const Leaving leaving;
  CallParameters own{leaving.number, 1, 1, {}};
  if (GENERATE(false, true)) own.attempt = std::make_shared<provider::manual::Attempt>();
  CHECK(in->accept(own, std::make_shared<Observer>()) == EISCONN);  // what attach() says
}

TEST_CASE_METHOD(ServedPair, "connection: dropping a call or a listener", "[connection]") {
  REQUIRE(call() == 0);
  auto [in, said] = server.calls->next();
  SECTION("a call that is not established: no callback") {
    out.reset();
    CHECK_FALSE(caller->rejection());
    // Accepted or not: the caller is gone, and that ends it.
    if (in->accept({b.qp->number(), 1, 1, {}}, callee) == 0) CHECK(callee->wait_failed() != 0);
  }
  SECTION("a listener: calls handed out live on") {
    server.listener.reset();
    CHECK(in->reject({}) == 0);
    CHECK(caller->wait_failed() == ECONNREFUSED);
    CHECK(caller->rejection());
    const auto again = std::make_shared<Observer>();
    REQUIRE(test::call(a, server.address, again, out) == 0);
    CHECK(again->wait_failed() == ECONNREFUSED);
    CHECK_FALSE(again->rejection());
  }
}

TEST_CASE("connection: sockets and addresses", "[connection]") {
  sockaddr_storage address{};
  address.ss_family = AF_UNIX;
  CHECK(provider::bind_socket(address, false) == -EAFNOSUPPORT);
  address = loopback();
  reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1
  CHECK(provider::bind_socket(address, false) == -EADDRNOTAVAIL);
  const Server server;
  sockaddr_storage same = server.address;
  CHECK(provider::bind_socket(same, false) == -EADDRINUSE);

  sockaddr_storage source{};
  const sockaddr_storage destination = loopback(80);
  const auto* to = reinterpret_cast<const sockaddr*>(&destination);
  REQUIRE(provider::choose_source(to, nullptr, source) == 0);
  CHECK(reinterpret_cast<sockaddr_in&>(source).sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  CHECK(reinterpret_cast<sockaddr_in&>(source).sin_port == 0);
  sockaddr_storage wanted = loopback(99);
  reinterpret_cast<sockaddr_in&>(wanted).sin_addr.s_addr = htonl(0x7F000005);
  REQUIRE(provider::choose_source(to, reinterpret_cast<sockaddr*>(&wanted), source) == 0);
  CHECK(reinterpret_cast<sockaddr_in&>(source).sin_addr.s_addr == htonl(0x7F000005));
  reinterpret_cast<sockaddr_in&>(wanted).sin_addr.s_addr = htonl(0xC0000201);
  CHECK(provider::choose_source(to, reinterpret_cast<sockaddr*>(&wanted), source) == EADDRNOTAVAIL);
  wanted.ss_family = AF_INET6;
  CHECK(provider::choose_source(to, reinterpret_cast<sockaddr*>(&wanted), source) == EAFNOSUPPORT);
  wanted.ss_family = AF_UNIX;
  CHECK(provider::choose_source(reinterpret_cast<sockaddr*>(&wanted), nullptr, source) == EAFNOSUPPORT);
}

TEST_CASE_METHOD(Loopback,
                 "connection: an end in shared memory has one descriptor, and maps the doorbells of each peer once",
                 "[connection]") {
  const Server server;
  constexpr std::size_t kCount = 20;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::shared_ptr<Call>> connections(kCount);
  std::size_t with_first = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    Side& out = *sides.emplace_back(std::make_unique<Side>(*context));
    Side& in = *sides.emplace_back(std::make_unique<Side>(*context));
    for (Side* side : {&out, &in}) {
      REQUIRE(side->to(IBV_QPS_INIT) == 0);
      REQUIRE(side->post_receive(1, {}) == 0);
    }
    const auto caller = std::make_shared<Observer>(), callee = std::make_shared<Observer>();
    REQUIRE(call(out, server.address, caller, connections[i]) == 0);
    REQUIRE(server.calls->next().first->accept({in.qp->number(), 4, 4, {}}, callee) == 0);
    REQUIRE((caller->wait_established() && callee->wait_established()));
    for (Side* side : {&out, &in}) REQUIRE(side->post(IBV_WR_SEND, 1, {}) == 0);
    for (Side* side : {&out, &in}) CHECK(next(*side->receive_cq).status == IBV_WC_SUCCESS);
    if (i == 0) with_first = open_descriptors();
  }
  CHECK(SharedMemory::count() == 2 * kCount);
  CHECK(open_descriptors() == with_first + 2 * (kCount - 1));
  std::ifstream maps("/proc/self/maps");
  const std::string text(std::istreambuf_iterator<char>(maps), {});
  std::size_t pages = 0;
  for (std::size_t at = text.find("uiw doorbells"); at != std::string::npos; at = text.find("uiw doorbells", at + 1))
    ++pages;
  CHECK(pages == 2);  // the process's own, and, as it is its own peer, the same
}

TEST_CASE_METHOD(Loopback, "connection: many at once", "[connection]") {
  const Server server;
  constexpr std::size_t kCount = 30;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::shared_ptr<Observer>> observers;
  std::vector<std::shared_ptr<Call>> connections(kCount);
  for (std::size_t i = 0; i < 2 * kCount; ++i) {
    sides.push_back(std::make_unique<Side>(*context));
    observers.push_back(std::make_shared<Observer>());
    REQUIRE(sides.back()->to(IBV_QPS_INIT) == 0);
    REQUIRE(sides.back()->post_receive(1, {}) == 0);
  }
  for (std::size_t i = 0; i < kCount; ++i) REQUIRE(call(*sides[i], server.address, observers[i], connections[i]) == 0);
  for (std::size_t i = kCount; i < 2 * kCount; ++i) {
    auto [in, said] = server.calls->next();
    REQUIRE(in->accept({sides[i]->qp->number(), 4, 4, {}}, observers[i]) == 0);
  }
  for (auto& observer : observers) REQUIRE(observer->wait_established());
  for (auto& side : sides) REQUIRE(side->post(IBV_WR_SEND, 1, {}) == 0);
  for (auto& side : sides) CHECK(next(*side->receive_cq).status == IBV_WC_SUCCESS);
  for (auto& connection : connections) CHECK(connection->disconnect() == 0);
  for (auto& observer : observers) CHECK(observer->wait_disconnected());
}
