// SPDX-License-Identifier: MIT
// The engine with queue pairs that only note who drives them: a poll of the program, or the thread on an event.
#include "provider/progress/engine.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/grace_period.h"
#include "provider/progress/clock.h"

using namespace uiw;
using provider::Driven;
using provider::Driver;
using provider::Engine;

namespace {

constexpr std::size_t kMost = 16;
std::array<std::atomic<Driven*>, kMost + 1> numbered;  // by number; 0 is none

Driven* find(std::uint32_t number) { return number < numbered.size() ? numbered[number].load() : nullptr; }

// Its socket is one end of a pair, so that the test can make it readable.
class FakeQp final : public Driven {
 public:
  FakeQp(Engine& engine, std::uint32_t number) : engine_(engine), number_(number) {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends_) == 0);
    numbered[number] = this;
  }
  ~FakeQp() {
    engine_.remove(*this);
    numbered[number_] = nullptr;
    wait_for_readers();
    for (const int end : ends_) ::close(end);
  }
  std::uint32_t number() const override { return number_; }
  bool has_deferred() const override { return deferred; }
  bool posts_wait() const override { return waiting; }
  void send_waiting_posts() override {
    if (short_of_memory) throw std::bad_alloc();
    if (waiting.exchange(false)) ++sent_at_poll;
  }
  void send_all_deferred() override {
    waiting = false;
    ++sent_in_vain;
  }
  void send_overdue_posts() override {
    if (waiting.exchange(false)) ++sent_by_thread;
  }
  bool progress(Driver driver) noexcept override {
    if (busy) work_on();
    driver_ = pthread_self();
    char octet;
    const bool octet_came = ::recv(ends_[0], &octet, 1, 0) == 1;
    if (octet_came) ++octets;
    ++(driver == Driver::poll ? polls : events);
    if (driver == Driver::event) ++looks_for_end;
    return octet_came || (driver == Driver::poll && has_work);
  }
  void no_memory() noexcept override { ++failures; }
  bool watch_socket(bool on) override {
    if (on && no_memory_to_watch) return false;
    watched = on;
    if (channel < 0) return true;
    if (!on) engine_.release(fd());
    return !on || engine_.watch_again(number_, fd());
  }

  int fd() const { return ends_[0]; }
  bool driven_by(pthread_t thread) const { return pthread_equal(driver_, thread) != 0; }
  void give() const { REQUIRE(::send(ends_[1], "", 1, 0) == 1); }
  void end() const { REQUIRE(::shutdown(ends_[1], SHUT_WR) == 0); }

  std::atomic<bool> deferred{false}, waiting{false}, short_of_memory{false};
  std::atomic<unsigned> sent_at_poll{0}, sent_in_vain{0}, sent_by_thread{0};
  std::atomic<unsigned> polls{0}, events{0}, octets{0}, failures{0};
  std::atomic<unsigned> looks_for_end{0};  // of the events
  std::atomic<bool> has_work{false};       // for polls
  std::atomic<bool> watched{true}, no_memory_to_watch{false};
  // With each turn the next octet comes, and a turn takes as long as that of a large message.
  std::atomic<bool> busy{false};
  std::atomic<unsigned> turns_at_once{0};  // the most so far
  static inline std::atomic<unsigned> busy_qps{0}, busy_at_once{0};

 private:
  static void note_most(std::atomic<unsigned>& most, unsigned now) {
    unsigned before = most;
    while (before < now && !most.compare_exchange_weak(before, now)) continue;
  }
  void work_on() {
    note_most(turns_at_once, ++turns_);
    note_most(busy_at_once, ++busy_qps);
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (::send(ends_[1], "", 1, 0) != 1) ++failures;  // assertions belong to the thread of the test
    --busy_qps;
    --turns_;
  }

  std::atomic<unsigned> turns_{0};
  std::atomic<pthread_t> driver_{};
  Engine& engine_;
  const std::uint32_t number_;
  int ends_[2];
};

// The thread is to do something: the test gives it as long as a loaded machine may take.
template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// A new socket is reported to the thread as writable: that is over when this returns.
std::unique_ptr<FakeQp> added(Engine& engine, std::uint32_t number, int channel = provider::ChannelSets::kNone) {
  auto qp = std::make_unique<FakeQp>(engine, number);
  qp->channel = channel;
  REQUIRE(engine.add(*qp, qp->fd()) == 0);
  REQUIRE(eventually([&] { return qp->events > 0; }));
  return qp;
}

// As a program that polls all the time while octets come, until the thread leaves the sockets to it.
void poll_until_parked(Engine& engine, FakeQp& qp) {
  unsigned given = qp.octets;
  REQUIRE(eventually([&] {
    if (qp.octets == given) {
      qp.give();
      ++given;
    }
    engine.drive();
    return engine.program().watched && qp.octets == given;
  }));
}

struct WithEngine {
  Engine engine{find};
};
struct DrivenQp : WithEngine {
  std::unique_ptr<FakeQp> qp = added(engine, 1);
};

}  // namespace

TEST_CASE_METHOD(WithEngine, "engine: nothing happens before the first queue pair is added", "[engine]") {
  FakeQp qp(engine, 1);
  engine.drive();
  CHECK(qp.polls == 0);
}

TEST_CASE_METHOD(DrivenQp, "engine: the thread drives a queue pair whose program does not poll", "[engine]") {
  qp->give();
  CHECK(eventually([&] { return qp->octets == 1; }));
  CHECK(qp->polls == 0);
}

TEST_CASE_METHOD(WithEngine, "engine: once a socket has reported its end, each event of it looks for the end",
                 "[engine]") {
  std::vector<std::unique_ptr<FakeQp>> all;
  const bool polled = GENERATE(false, true);  // with many queue pairs, polls take events, too
  for (std::uint32_t number = 1; number <= (polled ? 9U : 1U); ++number) all.push_back(added(engine, number));
  FakeQp& qp = *all.front();
  const auto comes = [&](auto condition) {
    return eventually([&] {
      if (polled) engine.drive();
      return condition();
    });
  };
  qp.give();
  CHECK(comes([&] { return qp.octets == 1; }));
  // The thread looks at everything when it takes over from a program that has polled.
  if (!polled) CHECK(qp.looks_for_end == 0);
  qp.give();
  qp.end();
  CHECK(comes([&] { return qp.looks_for_end > 0; }));
  const unsigned looks = qp.looks_for_end;
  engine.take_over(1);
  CHECK(comes([&] { return qp.looks_for_end > looks; }));
}

TEST_CASE_METHOD(WithEngine, "engine: a poll drives each of a few queue pairs by itself", "[engine]") {
  const auto a = added(engine, 1), b = added(engine, 2);
  engine.drive();
  CHECK(a->polls == 1);
  CHECK(b->polls == 1);
}

TEST_CASE_METHOD(WithEngine, "engine: a poll asks the kernel which of many queue pairs have octets", "[engine]") {
  std::vector<std::unique_ptr<FakeQp>> all;
  for (std::uint32_t number = 1; number <= 9; ++number) all.push_back(added(engine, number));
  CHECK(engine.drives_many());
  all[4]->give();
  CHECK(eventually([&] {
    engine.drive();
    return all[4]->octets == 1;
  }));
  for (const auto& qp : all) CHECK(qp->polls == 0);
  engine.remove(*all[8]);
  CHECK_FALSE(engine.drives_many());
}

TEST_CASE_METHOD(WithEngine, "engine: an idle queue pair is tried in every 8th poll, a busy one in each", "[engine]") {
  const auto busy = added(engine, 1), idle = added(engine, 2);
  busy->has_work = true;
  for (int i = 0; i < 64; ++i) engine.drive();  // from here on the other one is known to be idle
  const unsigned busy_before = busy->polls, idle_before = idle->polls;
  for (int i = 0; i < 32; ++i) engine.drive();
  CHECK(busy->polls - busy_before == 32);
  CHECK(idle->polls - idle_before == 4);
  // Work makes it busy again.
  idle->has_work = true;
  for (int i = 0; i < 8; ++i) engine.drive();
  const unsigned found = idle->polls;
  for (int i = 0; i < 32; ++i) engine.drive();
  CHECK(idle->polls - found == 32);
}

TEST_CASE_METHOD(WithEngine, "engine: a queue pair that was removed is driven no more", "[engine]") {
  const auto kept = added(engine, 1), removed = added(engine, 2);
  engine.remove(*removed);
  engine.drive();
  CHECK(kept->polls == 1);
  CHECK(removed->polls == 0);
}

TEST_CASE_METHOD(DrivenQp, "engine: after stop() nothing is driven, and nothing can be added", "[engine]") {
  engine.stop();
  engine.drive();
  CHECK(qp->polls == 0);
  FakeQp late(engine, 2);
  CHECK(engine.add(late, late.fd()) == ENODEV);
}

TEST_CASE_METHOD(DrivenQp, "engine: a poll sends the posts that wait, and one in vain also what else is deferred",
                 "[engine]") {
  poll_until_parked(engine, *qp);
  qp->waiting = qp->deferred = true;
  engine.note_deferred(1, true);
  engine.drive();
  CHECK(qp->sent_at_poll + qp->sent_by_thread == 1);
  CHECK(qp->sent_in_vain == 1);
  // A poll that finds work is not in vain.
  qp->has_work = true;
  qp->idle_rounds = 0;  // so that this poll tries it
  engine.drive();
  CHECK(qp->sent_in_vain == 1);
}

TEST_CASE_METHOD(WithEngine, "engine: polls send what many queue pairs have deferred, some of them at a time",
                 "[engine]") {
  constexpr std::uint32_t kAll = 15;
  std::vector<std::unique_ptr<FakeQp>> all;
  for (std::uint32_t number = 1; number <= kAll; ++number) all.push_back(added(engine, number));
  REQUIRE(engine.drives_many());
  engine.begin_posting();  // the thread leaves the queue pairs alone, or sends what is overdue
  for (const auto& qp : all) {
    qp->waiting = qp->deferred = true;
    engine.note_deferred(qp->number(), true);
  }
  const auto sent = [&] {
    unsigned count = 0;
    for (const auto& qp : all) count += qp->waiting ? 0U : 1U;
    return count;
  };
  engine.drive();
  CHECK(sent() >= provider::DrivenList::kFew);
  engine.drive();
  CHECK(sent() == kAll);
  // Those that have nothing left are not visited again.
  for (const auto& qp : all) {
    qp->deferred = false;
    engine.note_deferred(qp->number(), false);
  }
  all[3]->deferred = true;
  engine.note_deferred(all[3]->number(), true);
  const unsigned before = all[3]->sent_in_vain;
  CHECK(eventually([&] {
    engine.drive();
    return all[3]->sent_in_vain > before || all[3]->events > 0;
  }));
  engine.end_posting(0);
}

TEST_CASE_METHOD(WithEngine, "engine: a queue pair that has no memory to send in a poll ends, and the poll goes on",
                 "[engine]") {
  const auto other = added(engine, 1);
  const auto poor = added(engine, 2);
  poor->short_of_memory = poor->waiting = poor->deferred = true;
  engine.note_deferred(2, true);
  engine.drive();
  CHECK(poor->failures == 1);
  CHECK(other->polls == 1);
}

TEST_CASE_METHOD(DrivenQp, "engine: while the program polls, arrivals do not wake the thread", "[engine]") {
  poll_until_parked(engine, *qp);
  // The program must not pause for so long that the thread takes over, which a loaded machine may force: then the
  // octet is the thread's, and the test tries again.
  CHECK(eventually([&] {
    poll_until_parked(engine, *qp);
    const unsigned events = qp->events, octets = qp->octets;
    qp->give();
    while (qp->octets == octets) engine.drive();
    return qp->events == events;
  }));
}

TEST_CASE_METHOD(WithEngine, "engine: sockets that polls look at are not watched meanwhile", "[engine]") {
  std::vector<std::unique_ptr<FakeQp>> qps;
  qps.push_back(added(engine, 1));
  // On a loaded machine the program may pause for so long that the thread takes over: then it polls again.
  const auto poll_until_unwatched = [&] {
    REQUIRE(eventually([&] {
      poll_until_parked(engine, *qps[0]);
      engine.drive();
      return !qps[0]->watched;
    }));
  };
  poll_until_unwatched();
  SECTION("until the program stops polling") {
    CHECK(eventually([&] { return qps[0]->watched.load(); }));
    CHECK(qps[0]->failures == 0);
  }
  SECTION("and one that cannot be watched again ends its stream") {
    qps[0]->no_memory_to_watch = true;
    CHECK(eventually([&] {
      if (qps[0]->watched) poll_until_unwatched();  // it was watched again before there was no memory
      return qps[0]->failures > 0;
    }));
  }
  SECTION("until there are so many that polls ask the kernel") {
    for (std::uint32_t number = 2; number <= provider::DrivenList::kFew + 1; ++number) {
      qps.push_back(std::make_unique<FakeQp>(engine, number));
      REQUIRE(engine.add(*qps.back(), qps.back()->fd()) == 0);
    }
    CHECK(eventually([&] {
      engine.drive();
      return qps[0]->watched.load();
    }));
    poll_until_parked(engine, *qps[0]);
    for (int i = 0; i < 1000; ++i) engine.drive();
    for (const auto& qp : qps) CHECK(qp->watched);
  }
}

TEST_CASE_METHOD(WithEngine, "engine: once the program stops polling, the thread looks at each queue pair",
                 "[engine]") {
  const auto a = added(engine, 1), b = added(engine, 2);
  // On a loaded machine the thread may take over before the counters are read: then the test tries again.
  CHECK(eventually([&] {
    poll_until_parked(engine, *a);
    const unsigned events_a = a->events, events_b = b->events;
    return eventually([&] { return !engine.program().watched; }) && a->events > events_a && b->events > events_b;
  }));
}

TEST_CASE_METHOD(DrivenQp, "engine: a program that asks for an event ends the thread's sleep at once", "[engine]") {
  poll_until_parked(engine, *qp);
  engine.event_asked_for();
  CHECK(engine.program().awaits_event);
  const unsigned octets = qp->octets;
  qp->give();
  CHECK(eventually([&] { return qp->octets > octets; }));
  CHECK(eventually([&] { return !engine.program().watched; }));
  engine.event_given();
  CHECK_FALSE(engine.program().awaits_event);
}

TEST_CASE_METHOD(DrivenQp, "engine: the thread sends what a program has deferred and does not come back for",
                 "[engine]") {
  SECTION("a program that does not poll: at once, on an event of the queue pair") {
    const unsigned events = qp->events;
    qp->deferred = true;
    engine.note_deferred(1, true);
    CHECK(eventually([&] { return qp->events > events; }));
  }
  SECTION("a program that goes on to post elsewhere: posts that are overdue") {
    poll_until_parked(engine, *qp);
    qp->deferred = qp->waiting = true;
    engine.note_deferred(1, true);
    engine.watch_posts();
    // By begin_posting() it counts as active, so the thread goes on ticking.
    engine.begin_posting();
    CHECK(eventually([&] { return qp->sent_by_thread > 0 || !engine.program().watched; }));
    engine.end_posting(0);
  }
}

TEST_CASE_METHOD(DrivenQp, "engine: take_over() has the thread look at the socket, be it asleep or not", "[engine]") {
  const bool parked = GENERATE(false, true);
  if (parked) poll_until_parked(engine, *qp);
  const unsigned events = qp->events;
  engine.take_over(qp->number());
  CHECK(eventually([&] { return qp->events > events; }));
}

TEST_CASE("engine: a turn that is due is made, whether the program polls or the thread sleeps", "[engine]") {
  Engine engine(find);
  std::vector<std::unique_ptr<FakeQp>> all;
  const bool many = GENERATE(false, true);
  for (unsigned i = 1; i <= (many ? provider::DrivenList::kFew + 1 : 2); ++i) all.push_back(added(engine, i));
  FakeQp& qp = *all.front();
  // A poll drives a few queue pairs anyway.
  const bool parked = many && GENERATE(false, true);
  if (parked) poll_until_parked(engine, qp);
  const unsigned turns = qp.events + qp.polls;
  engine.request_turn(1);
  CHECK(eventually([&] {
    if (parked) engine.drive();
    return qp.events + qp.polls > turns;
  }));
}

namespace {

// A thread of the program that waits for an octet of a pipe.
class Waiter final : Engine::Awaited {
 public:
  explicit Waiter(Engine& engine, int of_channel = provider::ChannelSets::kNone) : Waiter(engine, of_channel, made()) {}
  ~Waiter() {
    end();
    ::close(both_[1].fd);
    ::close(write_end_);
  }
  void end() {
    if (!thread_.joinable()) return;
    REQUIRE(::write(write_end_, "", 1) == 1);
    CHECK(join() == Engine::Waited::done);
  }
  Engine::Waited join() {
    thread_.join();
    return waited_;
  }
  pthread_t thread() { return thread_.native_handle(); }
  bool done() override {
    char octet;
    return ::read(both_[1].fd, &octet, 1) == 1;
  }

 private:
  struct Ends {
    int ends[2];
  };
  static Ends made() {
    Ends made{};
    REQUIRE(::pipe2(made.ends, O_CLOEXEC | O_NONBLOCK) == 0);
    return made;
  }
  Waiter(Engine& engine, int of_channel, Ends pipe) : Awaited(both_), write_end_(pipe.ends[1]) {
    both_[1] = {pipe.ends[0], POLLIN, 0};
    channel = of_channel;
    thread_ = std::thread([this, &engine] { waited_ = engine.wait(*this); });
  }
  pollfd both_[2];
  const int write_end_;
  Engine::Waited waited_ = Engine::Waited::not_here;
  std::thread thread_;
};

bool several_wait(const Engine& engine) { return engine.activity().waiters().are_several(provider::raw_clock()); }

// Octets come until one has found this thread.
bool is_driven_by(FakeQp& qp, pthread_t thread) {
  return eventually([&] {
    const unsigned before = qp.octets;
    qp.give();
    return eventually([&] { return qp.octets > before; }) && qp.driven_by(thread);
  });
}

}  // namespace

TEST_CASE_METHOD(DrivenQp,
                 "engine: a thread that waits alone drives, and the engine's own thread again behind the wait",
                 "[engine]") {
  const bool parked = GENERATE(false, true);
  if (parked) poll_until_parked(engine, *qp);
  Waiter waiter(engine);
  CHECK(is_driven_by(*qp, waiter.thread()));
  CHECK(eventually([&] { return engine.program().watched && qp->watched; }));
  engine.event_asked_for();  // by a program that has been waiting: nothing changes
  CHECK(is_driven_by(*qp, waiter.thread()));
  engine.event_given();
  waiter.end();
  CHECK(eventually([&] { return !engine.program().watched; }));
  const unsigned octets = qp->octets;
  qp->give();
  CHECK(eventually([&] { return qp->octets > octets; }));
}

TEST_CASE_METHOD(DrivenQp, "engine: what is deferred is sent while a thread waits", "[engine]") {
  Waiter waiter(engine);
  REQUIRE(is_driven_by(*qp, waiter.thread()));
  for (int i = 0; i < 3; ++i) {
    const unsigned sent = qp->sent_in_vain;
    const unsigned events = qp->events;
    qp->deferred = true;
    engine.note_deferred(1, true);
    CHECK(eventually([&] { return qp->sent_in_vain > sent || qp->events > events; }));
    qp->deferred = false;
    engine.note_deferred(1, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the next one comes in a long wait
  }
}

TEST_CASE_METHOD(DrivenQp, "engine: where several threads wait, the engine's own drives for all of them", "[engine]") {
  Waiter first(engine);
  REQUIRE(is_driven_by(*qp, first.thread()));
  Waiter second(engine);
  REQUIRE(eventually([&] { return several_wait(engine); }));
  first.end();
  for (int i = 0; i < 20; ++i) {
    const unsigned before = qp->octets;
    qp->give();
    REQUIRE(eventually([&] { return qp->octets > before; }));
    CHECK_FALSE(qp->driven_by(second.thread()));
  }
}

TEST_CASE_METHOD(WithEngine, "engine: of several threads that wait each drives what completes to its channel",
                 "[engine]") {
  std::vector<std::unique_ptr<FakeQp>> qps;
  const bool many = GENERATE(false, true);
  for (std::uint32_t number = 1; number <= (many ? kMost : 4); ++number) {
    qps.push_back(added(engine, number, number <= 2 ? static_cast<int>(number) : provider::ChannelSets::kNone));
  }
  Waiter before(engine, 1);
  REQUIRE(is_driven_by(*qps[0], before.thread()));
  Waiter second(engine, 2);
  REQUIRE(eventually([&] { return several_wait(engine); }));
  before.end();
  Waiter first(engine, 1);
  CHECK(is_driven_by(*qps[0], first.thread()));
  CHECK(is_driven_by(*qps[1], second.thread()));
  const auto is_driven_by_others = [&](FakeQp& qp) {
    const unsigned octets = qp.octets;
    qp.give();
    return eventually([&] { return qp.octets > octets; }) && !qp.driven_by(first.thread()) &&
           !qp.driven_by(second.thread());
  };
  CHECK(is_driven_by_others(*qps[2]));
  SECTION("one that is added later is in the set of its channel from the start") {
    qps[3] = nullptr;
    qps[3] = added(engine, 4, 2);
    const unsigned octets = qps[3]->octets;
    qps[3]->give();
    CHECK(eventually([&] { return qps[3]->octets > octets; }));
    CHECK(qps[3]->driven_by(second.thread()));
  }
  SECTION("a second thread that waits for the same channel sleeps") {
    Waiter beside(engine, 1);
    CHECK(is_driven_by(*qps[0], first.thread()));
    beside.end();
    CHECK(is_driven_by(*qps[0], first.thread()));
  }
  SECTION("the engine's own drives what nobody waits for any more, and so do polls") {
    first.end();
    for (int i = 0; i < 20; ++i) CHECK(is_driven_by_others(*qps[0]));
    second.end();
    for (auto* qp : {qps[0].get(), qps[1].get(), qps[2].get()}) {
      CHECK(eventually([&] {
        const unsigned octets = qp->octets;
        qp->give();
        engine.drive();
        return qp->octets > octets && qp->driven_by(pthread_self());
      }));
    }
  }
  SECTION("what takes part in shared memory is not in the set") {
    auto page = uiw::DoorbellPage::attach(uiw::provider::Doorbells::of_process().descriptor());
    const int socket = engine.doorbell();
    REQUIRE((page && socket >= 0));
    CHECK(engine.doorbell() == socket);
    const uiw::PeerDoorbell peer(std::move(page), uiw::OwnedDescriptor(::dup(socket)));
    const auto bell = engine.begin_sharing(1);
    REQUIRE(bell != uiw::DoorbellPage::kNoBell);
    for (int i = 0; i < 100; ++i) {
      const unsigned events = qps[0]->events;
      peer.ring(bell);
      // The thread may still see an event of the socket from before, once.
      CHECK(eventually([&] { return qps[0]->events > events && !qps[0]->driven_by(first.thread()); }));
    }
  }
}

TEST_CASE_METHOD(DrivenQp, "engine: behind the end of the engine a thread waits by itself", "[engine]") {
  Waiter waiter(engine);
  REQUIRE(is_driven_by(*qp, waiter.thread()));
  engine.stop();
  CHECK(waiter.join() == Engine::Waited::not_here);
}

namespace {

void make_busy(std::vector<std::unique_ptr<FakeQp>>& qps, Engine& engine, std::uint32_t count) {
  for (std::uint32_t number = 1; number <= count; ++number) qps.push_back(added(engine, number));
  for (const auto& qp : qps) {
    qp->busy = true;
    qp->give();
  }
}

bool all_go_on(const std::vector<std::unique_ptr<FakeQp>>& qps) {
  std::vector<unsigned> before;
  for (const auto& qp : qps) before.push_back(qp->octets);
  return eventually([&] {
    for (std::size_t i = 0; i < qps.size(); ++i) {
      if (qps[i]->octets < before[i] + 20) return false;
    }
    return true;
  });
}

}  // namespace

TEST_CASE("engine: a thread that is always busy is helped, and no queue pair has two turns at once", "[engine]") {
  FakeQp::busy_at_once = 0;
  Engine engine(find, provider::port_counters(""), 3);
  std::vector<std::unique_ptr<FakeQp>> qps;
  make_busy(qps, engine, 4);
  CHECK(eventually([] { return FakeQp::busy_at_once >= 2; }));
  CHECK(all_go_on(qps));
  // A program that polls does not keep the queue pairs from going on, and neither does a stop.
  for (unsigned i = 0; i < 1000; ++i) engine.drive();
  CHECK(all_go_on(qps));
  for (const auto& qp : qps) CHECK((qp->turns_at_once <= 2 && qp->failures == 0));  // a poll drives by itself
  CHECK(FakeQp::busy_at_once <= 4);
  engine.stop();
}

TEST_CASE_METHOD(WithEngine, "engine: alone, the thread drives all queue pairs in turn", "[engine]") {
  FakeQp::busy_at_once = 0;
  std::vector<std::unique_ptr<FakeQp>> qps;
  make_busy(qps, engine, 4);
  CHECK(all_go_on(qps));
  CHECK(FakeQp::busy_at_once == 1);
  engine.stop();
}
