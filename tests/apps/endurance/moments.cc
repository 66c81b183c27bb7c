// SPDX-License-Identifier: MIT
// What does a process see when its peer is killed or stopped at any moment? A survivor has a connection to a victim,
// and meanwhile two to friends, which must not notice.
//
//   uiw_moments survive HOST MOMENTS SEED     all of it; says "as documented"
//   uiw_moments befriend HOST KIND NAME       a victim or a friend, which the survivor starts: standard input is its
//   line
//
// Of each moment the seed decides how the two connect, and whether the victim gets SIGKILL, SIGSTOP and SIGKILL, or
// SIGSTOP and SIGCONT. Half of the moments lie between the start of the victim and somewhat after its first completion,
// half in the transfers. After SIGCONT the connection must go on; then the victim is killed too. What must come of it:
// the survivor's work fails in bounded time, with the statuses of a peer that is gone; with rdma_cm, DISCONNECTED
// comes. After the first fifty moments the survivor's descriptors and threads are counted, and at the end there are no
// more.
#include <spawn.h>
#include <sys/prctl.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <thread>

#include "tests/apps/endurance/moments_link.h"
#include "tests/apps/support/process.h"

extern char** environ;

namespace {

using namespace apps;
using moments::Kind;
using moments::kKinds;
using moments::Link;

constexpr unsigned kLanes = 6, kWarmUp = 50;
constexpr std::chrono::seconds kBound{40};       // from the death of the peer to the end of the connection
constexpr std::chrono::seconds kNotNoticed{60};  // without a completion of a friend
constexpr std::uint64_t kGoesOn = 20;            // completions after SIGCONT

enum class Blow : std::uint8_t { kill, stop_and_kill, stop_and_continue };
constexpr unsigned kBlows = 3;
constexpr const char* kBlowTexts[kBlows] = {"SIGKILL", "SIGSTOP and SIGKILL", "SIGSTOP and SIGCONT"};
constexpr const char* kKindTexts[kKinds] = {"connected by hand", "called by rdma_cm", "calling by rdma_cm"};

struct Moment {
  std::uint64_t name;
  Kind kind;
  Blow blow;
  bool in_transfers;
  double when;  // of the time that lies before it, a part of 0..1
  std::chrono::microseconds hold;
};

unsigned long long ull(std::uint64_t value) { return value; }

// ---- The other process -----------------------------------------------------------------------------------------

class Child {
 public:
  Child(const std::string& host, Kind kind, std::uint64_t name) {
    Pipe pipe;
    const std::string kind_word = std::to_string(static_cast<unsigned>(kind)), name_word = std::to_string(name);
    std::string words[] = {"uiw_moments", "befriend", host, kind_word, name_word};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe.ends[1], STDIN_FILENO);
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) die("posix_spawn: %s", std::strerror(error));
    close(pipe.ends[1]);
    line_ = std::make_unique<moments::Line>(pipe.ends[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const moments::Line& line() const { return *line_; }
  void signal(int number) const {
    if (::kill(pid_, number) != 0) die("kill: %s", std::strerror(errno));
  }
  // It must die of this alone.
  void end() const {
    signal(SIGKILL);
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) die("waitpid: %s", std::strerror(errno));
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) die("a peer ended with %#x before it was killed", status);
  }

 private:
  pid_t pid_ = 0;
  std::unique_ptr<moments::Line> line_;
};

int befriend(const std::string& host, Kind kind, std::uint64_t name) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  moments::Line line(dup(STDIN_FILENO));
  Link link(host, kind, false);
  std::atomic<std::uint64_t> done = 0;
  if (!link.connect(line, name)) die("not connected: %s", link.why().c_str());
  link.run(done, kNotNoticed);
  die("the survivor is gone");
}

// ---- A moment --------------------------------------------------------------------------------------------------

// How long it takes until a victim has its first completion.
class Typical {
 public:
  void add(std::chrono::microseconds sample) { value_ = (7 * value_ + sample.count()) / 8; }
  std::chrono::microseconds get() const { return std::chrono::microseconds(value_); }

 private:
  std::atomic<std::int64_t> value_ = 50'000;
};
Typical g_typical;

struct Seen {
  std::atomic<std::uint64_t> moments = 0, unconnected = 0, connected = 0, went_on = 0;
  std::array<std::atomic<std::uint64_t>, kBlows> blows{};
  std::atomic<std::int64_t> longest_us = 0;
};
Seen g_seen;

class Trial {
 public:
  Trial(const std::string& host, const Moment& moment)
      : moment_(moment), link_(host, moment.kind, true), began_(Clock::now()), child_(host, moment.kind, moment.name) {}

  void run() {
    std::thread striker([this] { strike(); });
    const bool connected = link_.connect(child_.line(), moment_.name);
    if (connected) link_.run(done_, kNotNoticed);
    if (connected || link_.was_established()) link_.finish();
    const auto over = Clock::now();
    why_ = link_.why();
    given_up_ = true;
    striker.join();
    const auto late = std::chrono::duration_cast<std::chrono::microseconds>(over - died_at_);
    if (late > kBound + (connected ? std::chrono::seconds(0) : moments::kConnecting))
      die("moment %llu: %lld ms after the death of the peer", ull(moment_.name),
          static_cast<long long>(late.count() / 1000));
    ++(done_ > 0 ? g_seen.connected : g_seen.unconnected);
    ++g_seen.blows[static_cast<unsigned>(moment_.blow)];
    ++g_seen.moments;
    for (auto most = g_seen.longest_us.load();
         late.count() > most && !g_seen.longest_us.compare_exchange_weak(most, late.count());)
      continue;
  }

 private:
  void strike() {
    if (moment_.in_transfers) {
      await(1);
      g_typical.add(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began_));
      pause(std::chrono::microseconds(static_cast<int>(moment_.when * 5000)));
    } else {
      pause(std::chrono::duration_cast<std::chrono::microseconds>(1.3 * moment_.when * g_typical.get()));
    }
    if (moment_.blow != Blow::kill) {
      child_.signal(SIGSTOP);
      pause(moment_.hold);
    }
    if (moment_.blow == Blow::stop_and_continue) {
      child_.signal(SIGCONT);
      await(done_ + kGoesOn);
      ++g_seen.went_on;
    }
    died_at_ = Clock::now();
    child_.end();
  }
  static void pause(std::chrono::microseconds time) { std::this_thread::sleep_for(time); }
  void await(std::uint64_t completions) const {
    const auto end = Clock::now() + kNotNoticed;
    while (done_ < completions) {
      if (given_up_)
        die("moment %llu (%s; %s): the connection has ended though its peer lives: %s", ull(moment_.name),
            kKindTexts[static_cast<unsigned>(moment_.kind)], kBlowTexts[static_cast<unsigned>(moment_.blow)],
            why_.c_str());
      if (Clock::now() > end) die("moment %llu: a living peer does not work", ull(moment_.name));
      pause(std::chrono::microseconds(200));
    }
  }

  const Moment moment_;
  Link link_;
  const Clock::time_point began_;
  Child child_;
  std::atomic<std::uint64_t> done_ = 0;
  std::string why_;  // of the end; written before `given_up_`
  std::atomic<bool> given_up_ = false;
  Clock::time_point died_at_;
};

// ---- The survivor ----------------------------------------------------------------------------------------------

// A connection that must not notice.
class Friend {
 public:
  Friend(const std::string& host, Kind kind) : link_(host, kind, true), child_(host, kind, name(kind)) {
    if (!link_.connect(child_.line(), name(kind))) die("a friend is not connected");
    thread_ = std::thread([this] {
      link_.run(done_, kNotNoticed);
      if (!over_) die("the connection to a friend has failed");
      link_.finish();
    });
  }
  std::uint64_t done() const { return done_; }
  void part() {
    over_ = true;
    child_.end();
    thread_.join();
  }

 private:
  static std::uint64_t name(Kind kind) { return std::uint64_t{1} << 32 | static_cast<unsigned>(kind); }

  Link link_;
  Child child_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

class Survivor {
 public:
  Survivor(const std::string& host, std::uint64_t moments, std::uint64_t seed)
      : host_(host), moments_(moments), random_(seed) {}

  void run() {
    Friend by_hand(host_, Kind::by_hand), by_cm(host_, Kind::cm_calls);
    lanes(std::min<std::uint64_t>(kWarmUp, moments_));
    const int descriptors = open_descriptors();
    const long threads = memory_kib("Threads");
    const long resident = memory_kib("VmRSS");
    std::uint64_t before[] = {by_hand.done(), by_cm.done()};
    for (std::uint64_t goal = kWarmUp; goal < moments_;) {
      goal = std::min(moments_, goal + 500);
      lanes(goal);
      report();
      const std::uint64_t now[] = {by_hand.done(), by_cm.done()};
      if (now[0] == before[0] || now[1] == before[1]) die("a friend has not been served");
      std::copy(now, now + 2, before);
    }
    settle(descriptors, threads);
    std::printf("resident memory: %ld KiB, then %ld KiB\n", resident, memory_kib("VmRSS"));
    std::printf("friends: %llu and %llu requests\n", ull(by_hand.done()), ull(by_cm.done()));
    by_hand.part();
    by_cm.part();
  }

 private:
  // Several moments at a time, until so many were.
  void lanes(std::uint64_t goal) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kLanes; ++i)
      threads.emplace_back([this, goal] {
        while (const auto moment = next(goal)) Trial(host_, *moment).run();
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::optional<Moment> next(std::uint64_t goal) {
    const std::lock_guard lock(mutex_);
    if (begun_ == goal) return std::nullopt;
    Moment moment{};
    moment.name = ++begun_;
    moment.kind = static_cast<Kind>(random_() % kKinds);
    moment.blow = static_cast<Blow>(random_() % kBlows);
    moment.in_transfers = random_() % 2 == 0;
    moment.when = static_cast<double>(random_() % 10'000) / 10'000;
    moment.hold = std::chrono::microseconds(random_() % (random_() % 10 == 0 ? 200'000 : 10'000));
    return moment;
  }

  static void settle(int descriptors, long threads) {
    for (const auto end = Clock::now() + kPatience;
         open_descriptors() > descriptors || memory_kib("Threads") > threads;) {
      if (Clock::now() > end)
        die("descriptors: %d, then %d; threads: %ld, then %ld", descriptors, open_descriptors(), threads,
            memory_kib("Threads"));
      poll(nullptr, 0, 10);
    }
  }

  static void report() {
    std::printf(
        "%llu moments: %llu before the first completion, %llu after it; SIGKILL %llu, SIGSTOP and SIGKILL %llu, "
        "SIGSTOP and SIGCONT %llu; the latest end %lld ms after the death\n",
        ull(g_seen.moments), ull(g_seen.unconnected), ull(g_seen.connected), ull(g_seen.blows[0]), ull(g_seen.blows[1]),
        ull(g_seen.blows[2]), static_cast<long long>(g_seen.longest_us / 1000));
    std::fflush(stdout);
  }

  const std::string host_;
  const std::uint64_t moments_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::uint64_t begun_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 5 ? argv[1] : "";
  const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 0); };
  if (role == "befriend") return befriend(argv[2], static_cast<Kind>(number(3)), number(4));
  if (role != "survive") die("usage: %s survive HOST MOMENTS SEED", argv[0]);
  Survivor(argv[2], number(3), number(4)).run();
  std::puts("as documented");
  return 0;
}
