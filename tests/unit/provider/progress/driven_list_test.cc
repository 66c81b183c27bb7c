// SPDX-License-Identifier: MIT
#include "provider/progress/driven_list.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using uiw::provider::Driven;
using uiw::provider::DrivenList;
using uiw::provider::Driver;

namespace {

constexpr std::size_t kAll = ~std::size_t{0};

class OneQp final : public Driven {
 public:
  std::uint32_t number() const override { return 0; }
  bool progress(Driver) noexcept override { return ++polls > 0; }
  void no_memory() noexcept override {}
  bool has_deferred() const override { return deferred.load(); }

  std::atomic<bool> deferred{false};
  unsigned polls = 0;
};

std::vector<Driven*> visited(DrivenList& list, std::size_t most = kAll) {
  std::vector<Driven*> found;
  list.visit_deferring(most, [&](Driven& qp) { found.push_back(&qp); });
  return found;
}

using Page = uiw::DoorbellPage;

// The page of this process as a peer has it.
std::unique_ptr<Page> peers_view() {
  auto page = Page::attach(uiw::provider::Doorbells::of_process().descriptor());
  REQUIRE(page);
  return page;
}

// A queue pair whose peer is on this host, with a set that watches the doorbell.
struct Sharing {
  Sharing() {
    list.add(qp);
    epoll_event event{};
    event.events = EPOLLIN;
    doorbell = list.doorbell(set.get(), event);
    REQUIRE(doorbell >= 0);
    CHECK(list.doorbell(set.get(), event) == doorbell);
    peer.emplace(peers_view(), uiw::OwnedDescriptor(::dup(doorbell)));
    bell = list.doorbell_of(qp);
  }
  // Whether the doorbell is reported in this time; -1: without end.
  bool called(int milliseconds = 0) const {
    epoll_event come{};
    return ::epoll_wait(set.get(), &come, 1, milliseconds) == 1;
  }

  DrivenList list;
  OneQp qp;
  const uiw::OwnedDescriptor set{::epoll_create1(EPOLL_CLOEXEC)};
  int doorbell = -1;
  std::optional<uiw::PeerDoorbell> peer;
  Page::Bell bell = Page::kNoBell;
};

}  // namespace

TEST_CASE("driven list: a queue pair is there once, until it is removed", "[engine]") {
  DrivenList list;
  OneQp one, other;
  CHECK(list.add(one) == 1);
  CHECK(list.add(one) == 1);
  CHECK(list.add(other) == 2);
  list.remove(one);
  list.remove(one);
  std::vector<Driven*> left;
  list.for_each([&](Driven& qp) { left.push_back(&qp); });
  CHECK(left == std::vector<Driven*>{&other});
  CHECK(list.poll_each());
  CHECK(one.polls == 0);
  CHECK(other.polls == 1);
}

TEST_CASE("driven list: those with deferred sends are visited until they have none", "[engine]") {
  DrivenList list;
  std::vector<std::unique_ptr<OneQp>> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(std::make_unique<OneQp>());
    REQUIRE(list.add(*all.back()) == all.size());
  }
  CHECK(list.many());
  CHECK(visited(list).empty());
  for (const unsigned at : {3U, 64U, 199U}) {
    all[at]->deferred = true;
    list.note_deferred(*all[at], true);
  }
  const std::vector<Driven*> three = {all[3].get(), all[64].get(), all[199].get()};
  CHECK(visited(list) == three);
  CHECK(visited(list).size() == 3);
  all[64]->deferred = false;
  list.note_deferred(*all[64], false);
  CHECK(visited(list).size() == 2);
  // One that is removed, and the next one in its place.
  list.remove(*all[3]);
  CHECK(visited(list) == std::vector<Driven*>{all[199].get()});
  OneQp late;
  list.add(late);
  CHECK(visited(list) == std::vector<Driven*>{all[199].get()});
}

TEST_CASE("driven list: a visit of a few goes on where the last one stopped", "[engine]") {
  DrivenList list;
  std::vector<std::unique_ptr<OneQp>> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(std::make_unique<OneQp>());
    list.add(*all.back());
    all.back()->deferred = true;
    list.note_deferred(*all.back(), true);
  }
  unsigned visits = 0;
  for (unsigned left = 200; left > 0; ++visits) {
    list.visit_deferring(DrivenList::kFew, [&](Driven& qp) {
      dynamic_cast<OneQp&>(qp).deferred = false;
      list.note_deferred(qp, false);
      --left;
    });
    REQUIRE(visits < 200);
  }
  CHECK(visits == 25);
}

TEST_CASE("driven list: nothing that is noted is lost to another thread's visit", "[engine]") {
  DrivenList list;
  OneQp qp;
  list.add(qp);
  std::atomic<bool> ends{false};
  unsigned lost = 0;
  std::thread other([&] {
    while (!ends) visited(list);
  });
  for (int i = 0; i < 20000; ++i) {
    qp.deferred = true;
    list.note_deferred(qp, true);
    lost += visited(list).size() == 1 ? 0U : 1U;
    qp.deferred = false;
    list.note_deferred(qp, false);
  }
  ends = true;
  other.join();
  CHECK(lost == 0);
}

TEST_CASE("driven list: peers ring for queue pairs, each of which is then visited once", "[engine]") {
  DrivenList list, others;
  std::vector<std::unique_ptr<OneQp>> all;
  for (int i = 0; i < 130; ++i) {
    all.push_back(std::make_unique<OneQp>());
    list.add(*all.back());
  }
  OneQp other, stranger;
  others.add(other);
  CHECK(list.doorbell_of(stranger) == Page::kNoBell);
  const auto page = peers_view();
  CHECK_FALSE(list.rung());
  for (const unsigned at : {129U, 5U, 5U, 70U}) CHECK(page->ring(list.doorbell_of(*all[at])));
  CHECK(page->ring(others.doorbell_of(other)));
  CHECK(list.rung());
  std::vector<Driven*> found;
  const auto note = [&](Driven& qp) { found.push_back(&qp); };
  CHECK(list.visit_rung(2, note) == 2);
  CHECK(list.visit_rung(kAll, note) == 1);
  CHECK(found == std::vector<Driven*>{all[5].get(), all[70].get(), all[129].get()});
  CHECK_FALSE(list.rung());
  CHECK(others.rung());
  // Places of none, and of one that is gone.
  const Page::Bell last = list.doorbell_of(*all[129]);
  page->ring(last + 1);
  list.remove(*all[129]);
  page->ring(last);
  CHECK(list.visit_rung(kAll, note) == 0);
  CHECK_FALSE(list.rung());
}

TEST_CASE("driven list: a queue pair whose turn is due again and again leaves the others their turns", "[engine]") {
  DrivenList list;
  std::vector<std::unique_ptr<OneQp>> all;
  for (int i = 0; i < 70; ++i) {
    all.push_back(std::make_unique<OneQp>());
    list.add(*all.back());
  }
  for (const unsigned at : {0U, 1U, 66U}) list.request_turn(*all[at]);
  std::vector<Driven*> found;
  for (int i = 0; i < 5; ++i) {
    list.visit_rung(1, [&](Driven& qp) {
      found.push_back(&qp);
      if (&qp != all[66].get()) list.request_turn(qp);
    });
  }
  Driven *const first = all[0].get(), *const second = all[1].get(), *const third = all[66].get();
  CHECK(found == std::vector<Driven*>{first, second, third, first, second});
}

TEST_CASE("driven list: while a thread sleeps, peers hear that they have to wake it", "[engine]") {
  DrivenList list;
  OneQp qp;
  list.add(qp);
  const Page::Bell bell = list.doorbell_of(qp);
  const auto page = peers_view();
  CHECK(page->ring(bell));
  list.begin_sleep();
  CHECK(list.rung());
  CHECK_FALSE(page->ring(bell));
  list.begin_sleep();
  list.end_sleep();
  CHECK_FALSE(page->ring(bell));
  list.end_sleep();
  CHECK(page->ring(bell));
  CHECK(list.visit_rung(kAll, [](Driven&) {}) == 1);
}

TEST_CASE_METHOD(Sharing, "driven list: who leaves something that rang wakes another thread", "[engine]") {
  list.begin_sleep();
  list.pass_doorbell_on();  // nothing is left
  CHECK_FALSE(called());
  CHECK(peer->ring(bell));
  CHECK(called());
  list.answer_doorbell();
  CHECK_FALSE(called());
  list.pass_doorbell_on();
  CHECK(called());
  list.answer_doorbell();
  list.end_sleep();
  list.pass_doorbell_on();  // nobody sleeps
  CHECK_FALSE(called());
}

TEST_CASE_METHOD(Sharing, "driven list: a doorbell that a peer has shut calls nobody, and peers are told", "[engine]") {
  REQUIRE(::shutdown(doorbell, SHUT_RDWR) == 0);
  REQUIRE(called());
  list.answer_doorbell();
  CHECK_FALSE(called());
  CHECK(list.doorbell(set.get(), {}) == -1);
  CHECK(peer->ring(bell));  // somebody looks
  list.begin_sleep();
  CHECK_FALSE(peer->ring(bell));
  list.end_sleep();
}

TEST_CASE_METHOD(Sharing,
                 "driven list: no ring is missed by threads that go to sleep and wake, or poll, at the same time",
                 "[engine]") {
  std::atomic<unsigned> rung{0}, taken{0}, asleep{2};
  std::atomic<bool> ends{false};
  const auto look = [&](int milliseconds) {
    if (called(milliseconds)) list.answer_doorbell();
  };
  const auto take = [&] { list.visit_rung(kAll, [&](Driven&) { taken = rung.load(); }); };
  const auto sleeper = [&] {
    while (!ends) {
      list.begin_sleep();
      look(list.rung() ? 0 : -1);
      list.end_sleep();
      take();
    }
    --asleep;
  };
  std::thread one(sleeper), other(sleeper);
  // Takes wake-ups away from those that sleep.
  std::thread poller([&] {
    while (!ends) {
      look(0);
      take();
      std::this_thread::yield();
    }
  });
  unsigned late = 0;
  const auto ring = [&](unsigned i) {
    rung = i;
    peer->ring(bell);
    for (unsigned looks = 0; taken != i && late == 0; ++looks) {
      std::this_thread::yield();
      late += looks > 50'000'000 ? 1U : 0U;
    }
  };
  for (unsigned i = 1; i <= 20000; ++i) ring(i);
  ends = true;
  poller.join();
  while (asleep > 0) {
    ::send(doorbell, "", 1, MSG_DONTWAIT);
    std::this_thread::yield();
  }
  one.join();
  other.join();
  CHECK(late == 0);
}

TEST_CASE("driven list: the child of a fork begins without any", "[engine]") {
  DrivenList list;
  OneQp parents, own;
  list.add(parents);
  list.after_fork_in_child();
  list.remove(parents);
  CHECK_FALSE(list.poll_each());
  CHECK(list.add(own) == 1);
}
