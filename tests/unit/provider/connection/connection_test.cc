// SPDX-License-Identifier: MIT
// A connection by itself, with a queue pair that only notes what it is told: how it ends, by whom, what the peer sees
// of it.
#include "provider/connection/connection.h"

#include <poll.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "provider/memory/memory.h"
#include "provider/process/cm_loop.h"
#include "provider/progress/engine.h"
#include "tests/unit/provider/pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::Connection;
using provider::Driver;
using Phase = provider::Connection::Phase;

namespace {

struct Owner final : provider::ConnectionOwner {
  void connection_established() noexcept override { established = true; }
  void connection_ended() noexcept override { ended = true; }
  bool established = false, ended = false;
};

// A queue pair that the engine knows; the test drives it.
struct Undriven final : provider::Driven {
  std::uint32_t number() const override { return 0; }
  bool progress(Driver) noexcept override { return false; }
  void no_memory() noexcept override {}
};

// A queue pair in RTS without receives.
struct Rig : provider::ConnectionWork, provider::ConnectionHost {
  struct Options {
    bool manual = false;
    bool initiator = true;
    rdmap::Completion completion = rdmap::Completion::local;
    bool crc = false;
  };
  Rig() : Rig(Options{}) {}
  explicit Rig(const Options& options) : queue(8, 1, 0) {
    connection.serve(*this, *this, queue, memory);
    rules.manual = options.manual;
    rules.crc = options.crc;
    rules.ord = rules.ird = rules.requests_out = rules.requests_in = 1;
    rules.initiator = options.initiator;
    rules.mulpdu = 1024;
    rules.completion = options.completion;
    connects = this;
    connect();
  }
  virtual ~Rig() {
    connects = nullptr;
    wait_for_readers();  // a timer of a session may be on its way
    const std::scoped_lock lock(locks.receive, locks.send);
    connection.abandon(false);
    engine.stop();
    driven = nullptr;
  }
  void connect() {
    auto [own, other] = tcp_pair();
    peer = std::move(other);
    const std::scoped_lock lock(locks.receive, locks.send);
    connection.prepare(0, rules, owner, std::move(own));
    connection.begin();
  }

  ibv_qp_state state() const override { return IBV_QPS_RTS; }
  bool follows_infiniband() const override { return rules.manual; }
  bool next_receive(rdmap::ReceiveBuffer&) override { return false; }
  void receive_complete(const rdmap::ReceiveBuffer&, rdmap::Status, const rdmap::ReceiveHost::Message&) override {}
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag) override { return std::nullopt; }
  void await_no_receive() override {}
  bool receive_there() const override { return false; }
  void give_back(const rdmap::ReceiveBuffer&, bool) override {}
  void flush_receives() override { flushed = true; }
  void report(ibv_event_type type) override { events.push_back(type); }
  void enter_error() override { error = true; }
  void peer_gone() override { gone = true; }
  void sent_all() override {}
  void sent_last() override {}
  void send_complete(const rdmap::SendWork& work, rdmap::Status status) override {
    completions.emplace_back(work.id, status);
  }

  // A Send of no octets, signaled.
  void post(std::uint64_t id) {
    const LockGuard lock(locks.send);
    rdmap::SendWork& work = queue.at(queue.tail());
    work = rdmap::SendWork{};
    work.id = id;
    work.signaled = true;
    queue.push();
    connection.send();
  }
  // Turns, until the condition holds.
  template <typename Condition>
  bool drive(Condition condition) {
    return eventually([&] {
      bool work = false, sends = false;
      {
        const LockGuard lock(locks.receive);
        sends = connection.receive_turn(Driver::event, work);
      }
      if (sends) {
        const LockGuard lock(locks.send);
        connection.send_turn(Driver::event);
      }
      return condition();
    });
  }
  bool comes_to(Phase phase) {
    return drive([&] { return connection.phase() == phase; });
  }

  // All that the peer gets, up to the end of the stream; "reset" where that is a reset.
  std::pair<Bytes, std::string> heard() {
    Bytes all;
    std::string end;
    REQUIRE(drive([&] {
      std::byte octets[512];
      const ssize_t n = ::recv(peer.fd(), octets, sizeof octets, MSG_DONTWAIT);
      if (n > 0) all.insert(all.end(), octets, octets + n);
      if (n == 0) end = "FIN";
      if (n < 0 && errno == ECONNRESET) end = "reset";
      return !end.empty();
    }));
    return {all, end};
  }
  void peer_resets() {
    const linger now{1, 0};
    ::setsockopt(peer.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    peer.close();
  }

  inline static std::atomic<provider::Driven*> driven{nullptr};  // the queue pair, for the engine
  provider::Engine engine{[](std::uint32_t) { return driven.load(); }};
  rdmap::SendQueue queue;
  const int domain = 0;
  const ddp::Accessor memory{provider::stag_table(), &domain, this};
  rdmap::ConnectionRules rules;
  const std::shared_ptr<Owner> owner = std::make_shared<Owner>();
  TcpStream peer;
  inline static std::atomic<Rig*> connects{nullptr};  // what timers find
  Connection connection{engine, [](std::uint32_t) {
                          Rig* const rig = connects.load();
                          return rig != nullptr ? &rig->connection : nullptr;
                        }};
  Connection::Locks& locks = connection.locks;

  bool error = false, flushed = false, gone = false;
  std::vector<ibv_event_type> events;
  std::vector<std::pair<std::uint64_t, rdmap::Status>> completions;
};

using Events = std::vector<ibv_event_type>;

// Where an FPDU carries the Terminate Control Field (RFC 5040 section 4.8): behind length and the untagged header.
constexpr std::size_t kTerminateControl = 2 + 18;

}  // namespace

TEST_CASE_METHOD(Rig, "connection: the peer closes an idle connection of rdma_cm", "[connection]") {
  peer.shutdown_send();
  CHECK(comes_to(Phase::ended));
  CHECK((error && flushed && owner->ended));
  CHECK(events.empty());
  CHECK(heard() == std::pair<Bytes, std::string>({}, "FIN"));
}

// One system call less for each event: what the socket has not reported needs no look.
TEST_CASE_METHOD(Rig, "connection: an arrival reads what is there, and an event finds the end behind it",
                 "[connection]") {
  const Bytes first = {std::byte{0}};  // of an FPDU
  REQUIRE(::send(peer.fd(), first.data(), first.size(), 0) == 1);
  peer.shutdown_send();
  pollfd end{connection.socket().fd(), POLLRDHUP, 0};
  REQUIRE(::poll(&end, 1, 10'000) == 1);
  const auto turn = [&](Driver driver) {
    bool work = false;
    const LockGuard lock(locks.receive);
    connection.receive_turn(driver, work);
    return work;
  };
  CHECK(turn(Driver::arrival));
  CHECK(connection.phase() == Phase::running);
  CHECK(turn(Driver::event));
  CHECK(connection.phase() == Phase::ended);
}

TEST_CASE("connection: a caller that has taken shared memory is connected, though its first message never comes",
          "[connection]") {
  Undriven undriven;
  Rig rig({.initiator = false});
  const bool place = GENERATE(true, false), doorbell = GENERATE(true, false);  // without one the memory is refused
  const bool usable = place && doorbell;
  int bells[2], memory = -1;
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) == 0);
  SharedOffer offer(false);
  offer.memory = SharedMemory::create(memory);
  REQUIRE(offer.memory);
  offer.own.fill(std::byte{0x22});
  offer.socket.reset(bells[0]);
  const Bytes callers(16, std::byte{0x11}), calleds(16, std::byte{0x22});
  REQUIRE(::send(bells[1], callers.data(), callers.size(), 0) == 16);
  offer.find_doorbell = [](DescriptorChange&, int, int) -> std::shared_ptr<PeerDoorbell> { return nullptr; };
  if (doorbell) {
    offer.find_doorbell = [](DescriptorChange&, int, int) {
      auto page = DoorbellPage::attach(provider::Doorbells::of_process().descriptor());
      return std::make_shared<PeerDoorbell>(std::move(page), OwnedDescriptor());
    };
  }
  rig.driven = place ? &undriven : nullptr;
  if (place) REQUIRE(rig.engine.add(undriven, rig.connection.socket().fd()) == 0);
  REQUIRE(rig.connection.share(std::move(offer)) == 0);
  CHECK_FALSE(rig.owner->established);
  Bytes frame = Wire().text("uiw shared rings");
  frame.insert(frame.end(), calleds.begin(), calleds.end());
  REQUIRE(::send(rig.peer.fd(), frame.data(), frame.size(), 0) == 32);
  rig.peer.shutdown_send();
  CHECK(rig.comes_to(Phase::ended));
  CHECK((rig.owner->established && rig.owner->ended));
  const Bytes answer = rig.heard().first;
  REQUIRE(answer.size() >= frame.size());
  CHECK(Bytes(answer.begin() + 16, answer.begin() + 32) == (usable ? callers : Bytes(16)));
  ::close(bells[1]);
  ::close(memory);
}

// The end decides for TCP in the middle of the octets that have come, of which there is one event.
TEST_CASE("connection: a caller that has not taken shared memory is read to the end", "[connection]") {
  Rig rig({.initiator = false, .crc = true});  // so that nothing happens before the FPDU is there as a whole
  int memory = -1;
  SharedOffer offer(false);
  offer.memory = SharedMemory::create(memory);
  REQUIRE(offer.memory);
  REQUIRE(rig.connection.share(std::move(offer)) == 0);
  const Bytes octets = Wire().u16(2000).zeros(998);  // the first part of an FPDU
  REQUIRE(::send(rig.peer.fd(), octets.data(), octets.size(), 0) == 1000);
  const int own = rig.connection.socket().fd();
  pollfd come{own, POLLIN, 0};
  REQUIRE(::poll(&come, 1, 10'000) == 1);
  bool work = false;
  {
    const LockGuard lock(rig.locks.receive);
    rig.connection.receive_turn(Driver::arrival, work);
  }
  CHECK(work);
  CHECK(rig.connection.phase() == Phase::running);
  char octet;
  CHECK(::recv(own, &octet, 1, MSG_PEEK | MSG_DONTWAIT) == -1);
  ::close(memory);
}

TEST_CASE_METHOD(Rig, "connection: the peer resets a connection of rdma_cm", "[connection]") {
  peer_resets();
  CHECK(comes_to(Phase::ended));
  CHECK((error && flushed && owner->ended));
  CHECK(events == Events{IBV_EVENT_QP_FATAL});
}

TEST_CASE("connection: the peer of a manual connection leaves, which only the next work detects", "[connection]") {
  Rig rig({.manual = true});
  SECTION("by a FIN") { rig.peer.shutdown_send(); }
  SECTION("by a reset") { rig.peer_resets(); }
  CHECK(rig.comes_to(Phase::gone));
  CHECK((rig.gone && rig.owner->ended));
  CHECK_FALSE((rig.error || rig.flushed));
  CHECK(rig.events.empty());
}

TEST_CASE("connection: a manual connection whose caller closes before its first message is dropped", "[connection]") {
  Rig rig({.manual = true, .initiator = false});
  rig.peer.shutdown_send();
  CHECK(rig.comes_to(Phase::idle));
  CHECK(rig.owner->ended);
  CHECK_FALSE((rig.error || rig.gone || rig.flushed));
}

TEST_CASE_METHOD(Rig, "connection: the program flushes its work", "[connection]") {
  {
    const LockGuard lock(locks.receive);
    connection.flush_work();
  }
  CHECK((error && flushed && owner->ended));
  CHECK(heard().second == "FIN");
  CHECK(events.empty());
}

TEST_CASE_METHOD(Rig, "connection: what is posted is sent before an orderly end", "[connection]") {
  post(1);
  {
    const LockGuard lock(locks.receive);
    CHECK(connection.disconnect() == 0);
    CHECK(connection.disconnect() == 0);
  }
  CHECK(connection.phase() == Phase::closing);
  CHECK(completions == std::vector<std::pair<std::uint64_t, rdmap::Status>>{{1, rdmap::Status::success}});
  const auto [octets, end] = heard();
  CHECK(octets.size() == 2 + 18 + 4);  // length, untagged header, CRC
  CHECK(end == "FIN");
  peer.shutdown_send();
  CHECK(comes_to(Phase::ended));
  const LockGuard lock(locks.receive);
  CHECK(connection.disconnect() == ENOTCONN);
}

TEST_CASE_METHOD(Rig, "connection: a completion queue without room ends it by a Terminate", "[connection]") {
  {
    const LockGuard lock(locks.receive);
    connection.completion_lost();
  }
  const auto [octets, end] = heard();
  REQUIRE(octets.size() > kTerminateControl + 1);
  CHECK(octets[3] == std::byte{0x47});                      // RDMAP version 1, opcode 7: Terminate
  CHECK(octets[kTerminateControl] == std::byte{0x02});      // RDMAP, remote operation error
  CHECK(octets[kTerminateControl + 1] == std::byte{0x07});  // catastrophic, localized to the stream
  CHECK(end == "FIN");
  CHECK(events == Events{IBV_EVENT_QP_FATAL});
}

TEST_CASE_METHOD(Rig, "connection: without memory it ends by a reset", "[connection]") {
  {
    const LockGuard lock(locks.receive);
    connection.end_without_memory();
  }
  CHECK(connection.phase() == Phase::ended);
  CHECK((error && flushed && owner->ended));
  CHECK(events == Events{IBV_EVENT_QP_FATAL});
  CHECK(heard().second == "reset");
}

TEST_CASE("connection: work fails for lack of an answer: the rest is flushed, and nothing more is sent",
          "[connection]") {
  Rig rig({.manual = true, .completion = rdmap::Completion::remote});
  rig.post(1);
  rig.post(2);
  REQUIRE(rig.completions.empty());
  {
    const LockGuard lock(rig.locks.receive);
    {
      const LockGuard send_lock(rig.locks.send);
      rig.connection.stop_for_good();
    }
    rig.connection.fail_work(0, rdmap::Status::retry_exceeded);
  }
  CHECK(rig.completions == std::vector<std::pair<std::uint64_t, rdmap::Status>>{{1, rdmap::Status::retry_exceeded},
                                                                                {2, rdmap::Status::flushed}});
  CHECK(rig.heard().second == "reset");
  CHECK(rig.events.empty());
}

TEST_CASE_METHOD(Rig, "connection: once abandoned it does nothing more", "[connection]") {
  {
    const std::scoped_lock lock(locks.receive, locks.send);
    connection.abandon(true);
  }
  CHECK(connection.is_idle());
  CHECK(owner->ended);
  CHECK_FALSE((error || flushed));
  post(1);
  CHECK(completions.empty());
  bool work = false;
  const LockGuard lock(locks.receive);
  CHECK_FALSE(connection.receive_turn(Driver::event, work));
  connection.completion_lost();
  connection.end_without_memory();
  CHECK(events.empty());
}

TEST_CASE("connection: a timer of an earlier session does nothing in the next one", "[connection]") {
  Rig rig({.initiator = false});
  const auto may_speak_soon = [&] {
    const std::scoped_lock lock(rig.locks.receive, rig.locks.send);
    rig.connection.wait_for_first_message(false);
  };
  may_speak_soon();
  const bool same = GENERATE(false, true);
  if (!same) {
    {
      const std::scoped_lock lock(rig.locks.receive, rig.locks.send);
      rig.connection.abandon(true);
    }
    rig.connect();
  }
  rig.post(1);
  std::byte octet;
  const auto has_come = [&] { return ::recv(rig.peer.fd(), &octet, 1, MSG_PEEK | MSG_DONTWAIT) == 1; };
  if (same) {
    CHECK(eventually(has_come));
    return;
  }
  // Behind the two times that the timer needs.
  std::atomic<bool> late{false};
  provider::CmLoop::instance().after(std::chrono::milliseconds(200), [&] { late = true; });
  REQUIRE(eventually([&] { return late.load(); }));
  CHECK_FALSE(has_come());
}
