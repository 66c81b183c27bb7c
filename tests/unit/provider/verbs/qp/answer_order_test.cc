// SPDX-License-Identifier: MIT
// A Send and the receive of its answer complete to one queue: the Send is found first, as with adapters. (RFC 5040
// section 5.5: it is complete once TCP has it, hence before the peer can answer. Where it is complete once it is
// placed, the peer says so in front of its answer.)
#include <atomic>
#include <thread>

#include "tests/unit/provider/connect/manual/manual_pair.h"
#include "tests/unit/provider/verbs/channel.h"

using namespace uiw;
using namespace uiw::test;

namespace {

struct OneQueue : Side {
  OneQueue(Context& in, const Channel& channel) : Side(in) {
    qp.reset();
    send_cq = Cq::create(in, 64, channel.fd(), nullptr);
    make_qp(pd, *send_cq, {.sges = 1});
  }
};

enum class Waits { asleep, polling };

// The next completion. No check in it: threads use it.
bool take(Cq& cq, const Channel& channel, Waits how, ibv_wc& completion) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (cq.poll(1, &completion) == 1) return completion.status == IBV_WC_SUCCESS;
    if (how == Waits::polling) continue;
    cq.request_notify(false);
    if (cq.poll(1, &completion) == 1) return completion.status == IBV_WC_SUCCESS;
    pollfd ready{channel.fd(), POLLIN, 0};
    ib_uverbs_comp_event_desc event{};
    if (::poll(&ready, 1, 1000) == 1 && ::read(channel.fd(), &event, sizeof event) != sizeof event) return false;
  }
  return false;
}

}  // namespace

TEST_CASE("answer order: the completion of a Send is found before the receive of its answer", "[completion]") {
  const Waits how = GENERATE(Waits::asleep, Waits::polling);
  enum class Rule { local, remote, remote_manual };
  const Rule rule = GENERATE(Rule::local, Rule::remote, Rule::remote_manual);
  const unsigned window = GENERATE(1U, 5U);  // Sends at a time
  constexpr std::uint64_t kRounds = 4000, kReceive = 1'000'000;
  const auto one = open_loopback(), two = open_loopback();
  const Channel channel, channel_b;
  OneQueue a(*one, channel), b(*two, channel_b);
  if (rule == Rule::remote_manual) {
    connect_manually(a, b);
  } else {
    attach(a, b, {.depth = 8, .peer = mpa::PeerKind::uiw, .remote = rule == Rule::remote});
  }
  Registered memory(a, Bytes(64), kLocal), memory_b(b, Bytes(64), kLocal);
  const ibv_sge sge = memory.sge(), sge_b = memory_b.sge();
  for (std::uint64_t id = 0; id < 8; ++id) {
    REQUIRE(a.post_receive(kReceive + id, {sge}) == 0);
    REQUIRE(b.post_receive(kReceive + id, {sge_b}) == 0);
  }
  std::atomic<bool> bad{false};
  std::thread answerer([&] {
    for (std::uint64_t received = 0; received < kRounds && !bad;) {
      ibv_wc completion{};
      if (!take(*b.send_cq, channel_b, how, completion)) {
        bad = true;
        return;
      }
      if (completion.wr_id < kReceive) continue;
      ++received;
      if (b.post_receive(completion.wr_id, {sge_b}) != 0 || b.post(IBV_WR_SEND, received, {sge_b}) != 0) bad = true;
    }
  });
  std::uint64_t overtaken = 0;
  for (std::uint64_t round = 0; round < kRounds && !bad; round += window) {
    for (unsigned i = 0; i < window; ++i) REQUIRE(a.post(IBV_WR_SEND, round + i, {sge}) == 0);
    unsigned sent = 0, answered = 0;
    for (unsigned i = 0; i < 2 * window && !bad; ++i) {
      ibv_wc completion{};
      if (!take(*a.send_cq, channel, how, completion)) bad = true;
      if (completion.wr_id < kReceive) {
        ++sent;
        continue;
      }
      if (++answered > sent) ++overtaken;
      REQUIRE(a.post_receive(completion.wr_id, {sge}) == 0);
    }
  }
  answerer.join();
  CHECK_FALSE(bad);
  INFO("window " << window << (rule == Rule::local ? ", local" : ", remote")
                 << (rule == Rule::remote_manual ? " manual" : "")
                 << (how == Waits::asleep ? ", asleep" : ", polling"));
  CHECK(overtaken == 0);
}
