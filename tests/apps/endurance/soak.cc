// SPDX-License-Identifier: MIT
// Does anything go wrong, or grow, in hours of mixed work? Two processes with four pairs of threads, each of which has
// up to twenty connections, of rdma_cm and without it, and all operations on them; every octet is verified.
//
//   uiw_soak listen|call HOST PORT SECONDS SEED
//
// The work is made of laps, each of so many rounds of a plan that the seed decides (soak_plan.h). At the end of a lap
// nothing is connected, and resident memory, descriptors and threads are measured. The first laps warm up; afterwards
// descriptors and threads must stay as they are, and memory may not grow.
#include <atomic>
#include <barrier>
#include <thread>

#include "tests/apps/endurance/soak_exchange.h"
#include "tests/apps/support/process.h"

namespace {

using namespace apps;
using soak::Tally;

constexpr unsigned kThreads = 4, kRounds = 50;  // rounds of a lap
constexpr unsigned kWarmUp = 4, kFewest = 8;    // laps; of a long run, a tenth warms up
constexpr unsigned kAtATime = 64;               // connections
constexpr long kSlackKib = 3072;                // a page here and there, and what the allocator keeps

struct Measure {
  long resident, descriptors, threads;
};

// What ends with a connection may do so a moment after the program has destroyed it.
Measure measure(const Measure* before) {
  const auto end = Clock::now() + kPatience;
  for (;;) {
    const Measure now{memory_kib("VmRSS"), open_descriptors(), memory_kib("Threads")};
    if (before == nullptr || (now.descriptors <= before->descriptors && now.threads <= before->threads)) return now;
    if (Clock::now() > end) return now;
    poll(nullptr, 0, 10);
  }
}

class Soak {
 public:
  Soak(std::string role, std::string host, double seconds, std::uint64_t seed)
      : role_(std::move(role)), host_(std::move(host)), seconds_(seconds), seed_(seed) {}

  bool calls() const { return role_ == "call"; }

  void run(std::vector<manual::Line>& lines) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back([this, i, &lines] { work(i, lines[i]); });
    for (std::thread& thread : threads) thread.join();
    judge();
  }

 private:
  void work(unsigned number, manual::Line& line) {
    // Half of the threads poll, and half sleep.
    soak::Exchange exchange(host_, calls(), line, number % 2 == 1);
    soak::Planner planner(soak::mixed(seed_ * kThreads + number + 1));
    for (;;) {
      Tally tally;
      for (unsigned i = 0; i < kRounds; ++i) exchange.round(planner.next(), tally);
      exchange.round(planner.last(), tally);
      lap_tallies_[number] = tally;
      lap_.arrive_and_wait();
      line.meet('m');  // the other process has measured too, and calls from now on
      if (calls()) line.say(over_.load());
      if (calls() ? over_.load() : line.hear<bool>()) return;
    }
  }

  void end_lap() noexcept {
    Tally lap;
    for (const Tally& each : lap_tallies_) lap += each;
    total_ += lap;
    measures_.push_back(measure(measures_.empty() ? nullptr : &measures_.front()));
    const double passed = std::chrono::duration<double>(Clock::now() - began_).count();
    std::uint64_t requests = 0;
    for (const std::uint64_t each : total_.requests) requests += each;
    std::printf(
        "%s: lap %zu, %.0f s: %llu connections, at most %u at a time, %llu requests, %llu MiB; %ld KiB, "
        "%ld descriptors, %ld threads\n",
        role_.c_str(), measures_.size(), passed, ull(total_.connections), soak::g_open.most(), ull(requests),
        ull(total_.octets >> 20), measures_.back().resident, measures_.back().descriptors, measures_.back().threads);
    std::fflush(stdout);
    over_ = passed >= seconds_ && measures_.size() >= kFewest;
  }

  void judge() const {
    constexpr const char* kNames[soak::kOps] = {
        "Sends", "with immediate",    "with invalidate", "Writes", "Writes with immediate",
        "Reads", "compare-and-swaps", "fetch-and-adds"};
    for (unsigned i = 0; i < soak::kOps; ++i) {
      std::printf("%s: %llu %s\n", role_.c_str(), ull(total_.requests[i]), kNames[i]);
      if (total_.requests[i] == 0) die("an operation was never used");
    }
    if (soak::g_open.most() < kAtATime) die("at most %u connections at a time", soak::g_open.most());
    Measure warm{0, 0, 0};
    for (std::size_t i = 0; i < std::max<std::size_t>(kWarmUp, measures_.size() / 10); ++i) {
      warm.resident = std::max(warm.resident, measures_[i].resident);
      warm.descriptors = std::max(warm.descriptors, measures_[i].descriptors);
      warm.threads = std::max(warm.threads, measures_[i].threads);
    }
    const Measure& last = measures_.back();
    if (last.resident > warm.resident + kSlackKib)
      die("resident memory grew from %ld to %ld KiB", warm.resident, last.resident);
    if (last.descriptors > warm.descriptors) die("descriptors: %ld, now %ld", warm.descriptors, last.descriptors);
    if (last.threads > warm.threads) die("threads: %ld, now %ld", warm.threads, last.threads);
  }

  const std::string role_, host_;
  const double seconds_;
  const std::uint64_t seed_;
  const Clock::time_point began_ = Clock::now();
  std::array<Tally, kThreads> lap_tallies_;
  Tally total_;
  std::vector<Measure> measures_;
  std::atomic<bool> over_ = false;
  struct EndOfLap {
    Soak* soak;
    void operator()() noexcept { soak->end_lap(); }
  };
  std::barrier<EndOfLap> lap_{kThreads, EndOfLap{this}};
};

std::vector<manual::Line> meet(const std::string& role, const std::string& host, const std::string& port) {
  std::vector<manual::Line> lines;
  if (role == "listen") {
    manual::Door door(host, port, kThreads);
    for (unsigned i = 0; i < kThreads; ++i) lines.push_back(door.accept());
  } else {
    for (unsigned i = 0; i < kThreads; ++i) lines.push_back(manual::Line::call(host, port));
  }
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc == 6 ? argv[1] : "";
  if (role != "listen" && role != "call") die("usage: %s listen|call HOST PORT SECONDS SEED", argv[0]);
  std::printf("%s: seed %s\n", role.c_str(), argv[5]);
  std::fflush(stdout);
  std::vector<manual::Line> lines = meet(role, argv[2], argv[3]);
  for (manual::Line& line : lines) line.set_patience(soak::kLong);
  Soak(role, argv[2], std::strtod(argv[4], nullptr), std::strtoull(argv[5], nullptr, 0)).run(lines);
  std::puts("as documented");
  return 0;
}
