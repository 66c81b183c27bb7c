// SPDX-License-Identifier: MIT
// Queue pairs connected without rdma_cm, in any order: RTR, RTS and the first work of both sides, one side slow, gone
// or never there. Whatever happens, work completes or fails with a completion, in time.
//
//   uiw_any_order HOST here|apart TRIALS SEED     both sides in one process, or in two
//
// Many players at a time, two by two. What a pair plays follows from the seed and the number of the trial, so both
// sides know it; who is how slow at which step, each knows alone. Says "as documented" where all is well.
#include <algorithm>
#include <atomic>
#include <optional>
#include <random>

#include "tests/apps/support/manual.h"
#include "tests/apps/support/process.h"

namespace {

using apps::Clock;
using apps::die;
using apps::Place;
using Random = std::mt19937_64;
using std::chrono::milliseconds;

constexpr unsigned kPairs = 128;
constexpr milliseconds kInTime{40'000};
constexpr apps::Capacity kSmall{8, 8, 1, 1, 32};
// In time units of the attribute: four seconds, the least; and half a minute, where it must not come to that.
constexpr std::uint8_t kSoon = 14, kLate = 20;

enum class Kind {
  both,     // both come, and all arrives
  alone,    // each is its own peer
  gone,     // one of them ends at any moment after INIT, by destroying its queue pair or with RESET
  absent,   // one of them never comes
  nobody,   // each calls a number that no queue pair has
  another,  // each calls a queue pair that is not for it
};
constexpr const char* kNames[] = {"both", "alone", "gone", "absent", "nobody", "another"};

struct Plan {
  Kind kind;
  unsigned sends[2];  // of side 0 and 1
  unsigned who;       // the side that is gone or absent
  bool leaves[2];     // when all has arrived: at once, with what it has sent confirmed or not
};

unsigned below(Random& random, unsigned bound) { return static_cast<unsigned>(random() % bound); }
bool one_in(Random& random, unsigned count) { return below(random, count) == 0; }

Plan plan_of(std::uint64_t seed, unsigned trial) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), trial};
  Random random(sequence);
  Plan plan{};
  const unsigned dice = below(random, 1000);
  plan.kind = dice < 880   ? Kind::both
              : dice < 910 ? Kind::alone
              : dice < 970 ? Kind::gone
              : dice < 980 ? Kind::absent
              : dice < 990 ? Kind::nobody
                           : Kind::another;
  plan.who = below(random, 2);
  for (unsigned side = 0; side < 2; ++side) {
    plan.sends[side] = below(random, 5);
    if (plan.kind != Kind::both && plan.sends[side] == 0) plan.sends[side] = 1;
    plan.leaves[side] = one_in(random, 2);
  }
  return plan;
}

struct Counts {
  std::atomic<unsigned> played[std::size(kNames)]{}, failed{0};
} g_counts;

// One of the two sides, for all trials of its pair.
class Player {
 public:
  Player(const apps::Rnic& rnic, int other, unsigned side, std::uint64_t seed, unsigned first, unsigned end)
      : rnic_(rnic),
        other_(other),
        side_(side),
        seed_(seed),
        first_(first),
        end_(end),
        mr_(apps::reg(rnic.pd(), heard_, sizeof heard_, IBV_ACCESS_LOCAL_WRITE)) {}
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  ~Player() {
    before_.reset();
    pool_.clear();
    apps::expect_error("ibv_dereg_mr", ibv_dereg_mr(mr_), 0);
  }

  void play() {
    for (trial_ = first_; trial_ < end_; trial_ += kPairs) play_one();
    meet({});  // the last queue pair is kept until then
  }

 private:
  struct Seat {
    apps::Cq cq;
    apps::ManualQp qp;
    Seat(const apps::Rnic& rnic, bool sleeps) : cq(rnic, 32, sleeps), qp(rnic, cq, kSmall) {}
  };

  void play_one() {
    plan_ = plan_of(seed_, trial_);
    std::seed_seq sequence{static_cast<std::uint32_t>(seed_), trial_, side_};
    random_.seed(sequence);
    std::unique_ptr<Seat> seat = take();
    const apps::ManualQp& qp = seat->qp;
    const Place peer = meet(qp.place());

    const bool my_part = plan_.who == side_;
    if (plan_.kind == Kind::absent && my_part) {
      if (one_in(random_, 2)) qp.to_init();
      keep(std::move(seat));
      return;
    }
    go_through_states(*seat, peer_to_name(qp.place(), peer));
    if (plan_.kind == Kind::gone && my_part) {
      leave(std::move(seat));
    } else {
      finish(*seat);
      if (plan_.leaves[side_])
        leave(std::move(seat));
      else
        keep(std::move(seat));
    }
    if (side_ == 0) ++g_counts.played[static_cast<unsigned>(plan_.kind)];
  }

  Place meet(const Place& own) {
    const Said said{own, trial_};
    Said heard{};
    apps::put(other_, &said, sizeof said);
    apps::get(other_, &heard, sizeof heard, "the other side", kInTime);
    if (heard.trial != trial_) fail("the other side plays trial " + std::to_string(heard.trial));
    before_.reset();  // from here on the other side is done with it
    return heard.end;
  }

  // A new queue pair, or one that was connected to others before.
  std::unique_ptr<Seat> take() {
    if (!pool_.empty() && one_in(random_, 2)) {
      const std::size_t which = below(random_, static_cast<unsigned>(pool_.size()));
      auto seat = std::move(pool_[which]);
      pool_.erase(pool_.begin() + static_cast<std::ptrdiff_t>(which));
      return seat;
    }
    return std::make_unique<Seat>(rnic_, !one_in(random_, 4));
  }
  // Now, whatever the other side is doing.
  void leave(std::unique_ptr<Seat> seat) {
    if (pool_.size() == 3 || one_in(random_, 2)) return;
    seat->qp.to_reset();
    pool_.push_back(std::move(seat));
  }
  // Until the other side has finished.
  void keep(std::unique_ptr<Seat> seat) { before_ = std::move(seat); }

  Place peer_to_name(const Place& own, const Place& peer) {
    if (plan_.kind == Kind::alone) return own;
    Place named = peer;
    // A port where nobody listens, or a slot whose queue pair has gone.
    if (plan_.kind == Kind::nobody) named.qp = one_in(random_, 2) ? 1024 << 8 | 1 : gone_number();
    // One thinks that the other is somebody else: it is called, and is not for the caller.
    if (plan_.kind == Kind::another && side_ == 1) named.qp = gone_number();
    return named;
  }
  std::uint32_t gone_number() const {
    const apps::Cq cq(rnic_, 1);
    return apps::ManualQp(rnic_, cq, kSmall).place().qp;
  }

  unsigned sends() const { return plan_.sends[side_]; }
  unsigned receives() const { return plan_.kind == Kind::alone ? sends() : plan_.sends[1 - side_]; }

  void wait_a_while() {
    const unsigned dice = below(random_, 100);
    if (dice < 60) return;
    const unsigned most_us = dice < 85 ? 200 : dice < 98 ? 5'000 : 300'000;
    std::this_thread::sleep_for(std::chrono::microseconds(below(random_, most_us)));
  }

  enum class Step { receives, rtr, more_receives, rts, sends };

  // Receives are posted at any time after INIT, sends after RTS; to an RNIC after RTR.
  std::vector<Step> steps() {
    std::vector<Step> order{Step::rtr, Step::rts};
    const bool early = rnic_.context()->device->transport_type == IBV_TRANSPORT_IWARP && one_in(random_, 4);
    order.insert(early ? order.end() - 1 : order.end(), Step::sends);
    order.insert(order.begin() + below(random_, 4), Step::receives);
    const auto receives = std::find(order.begin(), order.end(), Step::receives) + 1;
    order.insert(receives + below(random_, static_cast<unsigned>(order.end() - receives) + 1), Step::more_receives);
    return order;
  }

  // Who is to be gone stops at any step.
  void go_through_states(Seat& seat, const Place& peer) {
    const apps::ManualQp& qp = seat.qp;
    const unsigned early_receives = below(random_, receives() + 1);
    const bool all_arrives = plan_.kind == Kind::both || plan_.kind == Kind::alone;
    std::vector<Step> order = steps();
    if (plan_.kind == Kind::gone && plan_.who == side_) order.resize(below(random_, 6));
    bool posted = false;
    qp.to_init();
    for (const Step step : order) {
      wait_a_while();
      switch (step) {
        case Step::receives: post_receives(qp, 0, early_receives); break;
        case Step::more_receives: post_receives(qp, early_receives, receives()); break;
        case Step::rtr: qp.to_rtr(peer); break;
        case Step::rts:
          // What was sent before may have failed by now.
          if (posted && state_of(qp) == IBV_QPS_ERR) break;
          qp.to_rts(all_arrives ? kLate : kSoon);
          break;
        case Step::sends:
          post_sends(qp);
          posted = true;
          break;
      }
    }
    wait_a_while();
  }

  static ibv_qp_state state_of(const apps::ManualQp& qp) { return apps::query(qp.get(), IBV_QP_STATE).qp_state; }

  void post_sends(const apps::ManualQp& qp) {
    for (unsigned i = 0; i < sends(); ++i) {
      const std::uint64_t message = id(i);
      apps::expect_error("ibv_post_send", qp.send(&message, sizeof message, id(i)), 0);
      if (one_in(random_, 3)) wait_a_while();
    }
  }
  void post_receives(const apps::ManualQp& qp, unsigned from, unsigned to) {
    for (unsigned i = from; i < to; ++i) qp.receive(&heard_[i], sizeof heard_[i], mr_, id(kReceive + i));
  }

  // All that must complete does.
  void finish(Seat& seat) {
    const bool all_arrives = plan_.kind == Kind::both || plan_.kind == Kind::alone;
    unsigned sent = 0, received = 0;
    std::optional<ibv_wc_status> failed;
    while (sent < sends() || (all_arrives && received < receives())) {
      ibv_wc wc{};
      if (!seat.cq.next(wc, kInTime))
        fail(std::to_string(sent) + " sends and " + std::to_string(received) + " receives complete, no more in time");
      if (wc.wr_id >> 8 != trial_) continue;  // of another time
      const auto which = static_cast<unsigned>(wc.wr_id & 0xFF);
      if (which >= kReceive) {
        if (wc.status == IBV_WC_WR_FLUSH_ERR && !all_arrives) continue;
        if (wc.status != IBV_WC_SUCCESS) fail(std::string("a receive: ") + ibv_wc_status_str(wc.status));
        if (wc.byte_len != 8) fail("a message of another length");
        ++received;
        continue;
      }
      if (which != sent) fail("a send completes out of turn");
      ++sent;
      const bool good = wc.status == IBV_WC_SUCCESS;
      if (all_arrives && !good) fail(std::string("a send: ") + ibv_wc_status_str(wc.status));
      if (plan_.kind != Kind::gone && !all_arrives && good) fail("a send succeeds");
      if (good && failed) fail("a send succeeds after one that has failed");
      if (!good && wc.status != (failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR))
        fail(std::string("a send fails with ") + ibv_wc_status_str(wc.status));
      if (!good && !failed) ++g_counts.failed;
      if (!good) failed = wc.status;
    }
    for (unsigned i = 0; all_arrives && i < receives(); ++i)
      if (heard_[i] != id(i)) fail("another message");
  }

  std::uint64_t id(unsigned which) const { return std::uint64_t{trial_} << 8 | which; }

  [[noreturn]] void fail(const std::string& why) const {
    const auto at_once = [this](unsigned side) { return plan_.leaves[side] ? ", leaves at once" : ""; };
    die("seed %lu, trial %u: %s, side 0 sends %u%s, side 1 sends %u%s; side %u: %s", seed_, trial_,
        kNames[static_cast<unsigned>(plan_.kind)], plan_.sends[0], at_once(0), plan_.sends[1], at_once(1), side_,
        why.c_str());
  }

  struct Said {
    Place end;
    unsigned trial;
  };
  static constexpr unsigned kReceive = 128;

  const apps::Rnic& rnic_;
  const int other_;
  const unsigned side_;
  const std::uint64_t seed_;
  const unsigned first_, end_;
  unsigned trial_ = 0;
  Plan plan_{};
  Random random_;
  std::vector<std::unique_ptr<Seat>> pool_;
  std::unique_ptr<Seat> before_;
  std::uint64_t heard_[8]{};
  ibv_mr* const mr_;
};

struct Side {
  unsigned number;
  int pipe;
  unsigned pair;
};

void play(const std::string& host, const std::vector<Side>& sides, std::uint64_t seed, unsigned trials) {
  const apps::Rnic rnic(host);
  std::vector<std::thread> threads;
  for (const Side& side : sides)
    threads.emplace_back([&, side] { Player(rnic, side.pipe, side.number, seed, side.pair, trials).play(); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) die("usage: %s HOST here|apart TRIALS SEED", argv[0]);
  const bool apart = std::string(argv[2]) == "apart";
  const auto trials = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
  const std::uint64_t seed = std::strtoul(argv[4], nullptr, 10);
  std::printf("seed %lu\n", seed);
  std::fflush(stdout);
  std::vector<Side> near, far;
  for (unsigned pair = 0; pair < std::min(kPairs, trials); ++pair) {
    const apps::Pipe pipe;
    near.push_back({0, pipe.ends[0], pair});
    far.push_back({1, pipe.ends[1], pair});
  }
  pid_t child = 0;
  if (apart) {
    child = apps::in_child([&] {
      for (const Side& side : near) close(side.pipe);
      play(argv[1], far, seed, trials);
    });
    for (const Side& side : far) close(side.pipe);  // its end shows
  } else {
    near.insert(near.end(), far.begin(), far.end());
  }
  play(argv[1], near, seed, trials);
  if (apart) apps::join(child, std::chrono::seconds(60));
  for (unsigned kind = 0; kind < std::size(kNames); ++kind)
    std::printf("%s: %u\n", kNames[kind], g_counts.played[kind].load());
  std::printf("work that failed: %u\nas documented\n", g_counts.failed.load());
  return 0;
}
