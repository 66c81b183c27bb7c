// SPDX-License-Identifier: MIT
// A full mesh of queue pairs connected without rdma_cm, between processes, or within one again and again.
//
//   uiw_mesh HOST mesh PROCESSES LAPS    each process starts a token; each hop of a lap takes it over another of its
//                                        queue pairs, so that a lap uses every pair in both directions once
//   uiw_mesh HOST rounds QPS ROUNDS      all queue pairs of one process to each other, a message each way, and
//   everything
//                                        undone; memory and descriptors may not grow
//
// Says "as documented" where all is well, before that what it took.
#include <algorithm>
#include <set>

#include "tests/apps/support/manual.h"
#include "tests/apps/support/process.h"

namespace {

using apps::Clock;
using apps::die;
using apps::Place;

constexpr std::chrono::seconds kLong{120};
// As programs with thousands of queue pairs set it: 2 s, and seven tries more. All of a large mesh connect at once, and
// two processors need seconds for that.
constexpr std::uint8_t kTimeout = 19;
constexpr apps::Capacity kSmall{4, 4, 1, 1, 32};

struct Token {
  std::uint32_t origin, hops;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// ---- What a process holds ----------------------------------------------------------------------------------------

// All queue pairs of one process to each other, and each first of a row to itself; a message each way.
void round(const std::string& host, std::size_t count) {
  const apps::Rnic rnic(host);
  const apps::Cq cq(rnic, static_cast<int>(2 * count * count));
  std::vector<Token> heard(count * count);
  ibv_mr* mr = apps::reg(rnic.pd(), heard.data(), heard.size() * sizeof(Token), IBV_ACCESS_LOCAL_WRITE);
  std::vector<apps::ManualQp> qps;
  for (std::size_t i = 0; i < count * count; ++i) qps.emplace_back(rnic, cq, kSmall);
  for (std::uint32_t i = 0; i < qps.size(); ++i) {
    qps[i].to_init();
    qps[i].receive(&heard[i], sizeof(Token), mr, i);
    qps[i].to_rtr(qps[i % count * count + i / count].place());
    qps[i].to_rts();
    const Token token{i, 0};
    apps::expect_error("ibv_post_send", qps[i].send(&token, sizeof token, i), 0);
  }
  for (std::size_t i = 0; i < 2 * qps.size(); ++i) {
    ibv_wc wc{};
    if (!cq.next(wc, kLong)) die("no completion in time");
    apps::expect_status("a message", wc, IBV_WC_SUCCESS);
    const std::size_t peer = wc.wr_id % count * count + wc.wr_id / count;
    if (wc.opcode == IBV_WC_RECV && heard[wc.wr_id].origin != peer) die("a message from another queue pair");
  }
  qps.clear();
  apps::expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
}

// What is made once and stays with the process is there afterwards.
void warm_up(const std::string& host) { round(host, 2); }

// Sockets go when their peers have closed too; one of the warm-up's may have been among those counted before.
void expect_descriptors(int count) {
  const auto end = Clock::now() + apps::kPatience;
  while (apps::open_descriptors() > count) {
    if (Clock::now() > end) die("%d descriptors, %d before", apps::open_descriptors(), count);
    sched_yield();
  }
}

void rounds(const std::string& host, std::size_t qps, unsigned count) {
  warm_up(host);
  const int descriptors = apps::open_descriptors();
  long first = 0, last = 0;
  const auto start = Clock::now();
  for (unsigned i = 0; i < count; ++i) {
    round(host, qps);
    expect_descriptors(descriptors);
    last = apps::memory_kib("VmRSS");
    if (i == count / 4) first = last;
  }
  std::printf("%u rounds of %zu queue pairs: %.0f us each; memory %ld KiB, at last %ld KiB\n", count, qps * qps,
              seconds_since(start) * 1e6 / (count * static_cast<double>(qps * qps)), first, last);
  if (last > first + first / 10) die("memory grows");
}

// What a child reports to its parent when a step is done.
struct StepReport {
  long rss_kib = 0;
  int descriptors = 0;
  std::uint32_t tokens = 0;
};

// ---- One process of the mesh -------------------------------------------------------------------------------------

class Member {
 public:
  Member(const std::string& host, int parent, std::uint32_t rank, std::uint32_t count, std::uint32_t laps)
      : parent_(parent), rank_(rank), count_(count), laps_(laps), host_(host), heard_(count) {}

  void live() {
    warm_up(host_);
    const int before = apps::open_descriptors();
    const long rss_before = apps::memory_kib("VmRSS");
    {
      const apps::Rnic rnic(host_);
      const apps::Cq cq(rnic, static_cast<int>(8 * count_));
      ibv_mr* mr = apps::reg(rnic.pd(), heard_.data(), heard_.size() * sizeof(Token), IBV_ACCESS_LOCAL_WRITE);
      cq_ = &cq;
      mr_ = mr;
      step({apps::memory_kib("VmRSS") - rss_before, 0, 0});
      {
        make(rnic);
        step({apps::memory_kib("VmRSS") - rss_before, 0, 0});
        connect();
        step({apps::memory_kib("VmRSS") - rss_before, apps::open_descriptors() - before, 0});
        pass_tokens();
        step({apps::memory_kib("VmRSS") - rss_before, 0, tokens_});
        qps_.clear();
      }
      if (ibv_dereg_mr(mr) != 0) die("ibv_dereg_mr");
    }
    expect_descriptors(before);
    step({apps::memory_kib("VmRSS") - rss_before, apps::open_descriptors() - before, 0});
  }

 private:
  void step(const StepReport& report) {
    apps::put(parent_, &report, sizeof report);
    char go;
    apps::get(parent_, &go, 1, "the parent", kLong);
  }

  void make(const apps::Rnic& rnic) {
    std::vector<Place> own(count_), peers(count_);
    for (std::uint32_t peer = 0; peer < count_; ++peer) {
      qps_.emplace_back(rnic, *cq_, kSmall);  // one of them, to itself
      own[peer] = qps_[peer].place();
    }
    apps::put(parent_, own.data(), own.size() * sizeof(Place));
    apps::get(parent_, peers.data(), peers.size() * sizeof(Place), "the numbers of the others", kLong);
    peers_ = peers;
  }

  // Each one's order is another. A message each way tells that the pair stands.
  void connect() {
    for (std::uint32_t i = 0; i < count_; ++i) {
      const std::uint32_t peer = (rank_ + i) % count_;
      qps_[peer].to_init();
      qps_[peer].receive(&heard_[peer], sizeof(Token), mr_, peer);
      qps_[peer].to_rtr(peers_[peer]);
      qps_[peer].to_rts(kTimeout);
      const Token hello{rank_, 0};
      apps::expect_error("ibv_post_send", qps_[peer].send(&hello, sizeof hello, peer), 0);
    }
    std::uint32_t sent = 0, received = 0;
    while (sent < count_ || received < count_) {
      const ibv_wc wc = next();
      if (wc.opcode == IBV_WC_SEND) {
        ++sent;
        continue;
      }
      ++received;
      if (heard_[wc.wr_id].origin != wc.wr_id) die("a message of %u came from %lu", heard_[wc.wr_id].origin, wc.wr_id);
      qps_[wc.wr_id].receive(&heard_[wc.wr_id], sizeof(Token), mr_, wc.wr_id);
    }
  }

  // Hop h of every token goes h % (count - 1) + 1 members on. So from each of the others comes one token a lap.
  std::uint32_t stride(std::uint32_t hop) const { return hop % (count_ - 1) + 1; }

  void pass(Token token) {
    const std::uint32_t peer = (rank_ + stride(token.hops)) % count_;
    ++token.hops;
    apps::expect_error("ibv_post_send", qps_[peer].send(&token, sizeof token, peer), 0);
    ++in_flight_;
  }
  void pass_tokens() {
    const std::uint32_t hops = laps_ * (count_ - 1);
    pass({rank_, 0});
    while (tokens_ < hops || in_flight_ > 0) {
      const ibv_wc wc = next();
      if (wc.opcode == IBV_WC_SEND) {
        --in_flight_;
        continue;
      }
      const Token token = heard_[wc.wr_id];
      qps_[wc.wr_id].receive(&heard_[wc.wr_id], sizeof(Token), mr_, wc.wr_id);
      if (token.hops == 0 || token.hops > hops || (wc.wr_id + stride(token.hops - 1)) % count_ != rank_)
        die("process %u: hop %u of the token of %u comes from %lu", rank_, token.hops, token.origin, wc.wr_id);
      if (!seen_.emplace(token.origin, token.hops).second)
        die("process %u: hop %u of the token of %u comes twice", rank_, token.hops, token.origin);
      ++tokens_;
      if (token.hops < hops) pass(token);
    }
  }

  ibv_wc next() const {
    ibv_wc wc{};
    if (!cq_->next(wc, kLong)) die("process %u: no completion in time", rank_);
    apps::expect_status("a message of the mesh", wc, IBV_WC_SUCCESS);
    return wc;
  }

  const int parent_;
  const std::uint32_t rank_, count_, laps_;
  const std::string host_;
  const apps::Cq* cq_ = nullptr;
  const ibv_mr* mr_ = nullptr;
  std::vector<Token> heard_;  // what each of the others has sent last
  std::vector<apps::ManualQp> qps_;
  std::vector<Place> peers_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen_;
  std::uint32_t tokens_ = 0, in_flight_ = 0;
};

// ---- Their parent --------------------------------------------------------------------------------------------------

long available_kib() {
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  char line[256];
  long value = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "MemAvailable: %ld", &value) == 1) break;
  std::fclose(file);
  return value;
}

struct Child {
  pid_t pid;
  int pipe;
};

// All have done a step.
std::vector<StepReport> receive_reports(const std::vector<Child>& children, const char* what) {
  std::vector<StepReport> reports(children.size());
  for (std::size_t i = 0; i < children.size(); ++i)
    apps::get(children[i].pipe, &reports[i], sizeof reports[i], what, kLong);
  return reports;
}
void go(const std::vector<Child>& children) {
  for (const Child& child : children) apps::put(child.pipe, "", 1);
}

std::vector<Child> start_members(const std::string& host, std::uint32_t count, std::uint32_t laps) {
  std::vector<Child> children;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const apps::Pipe pipe;
    const pid_t pid = apps::in_child([&] {
      for (const Child& other : children) close(other.pipe);
      close(pipe.ends[0]);
      Member(host, pipe.ends[1], rank, count, laps).live();
    });
    close(pipe.ends[1]);
    children.push_back({pid, pipe.ends[0]});
  }
  return children;
}

// Tells each member of the queue pairs that the others have made for it. Returns their ports.
std::set<std::uint16_t> exchange_places(const std::vector<Child>& children,
                                        const std::vector<std::vector<Place>>& made) {
  std::set<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < children.size(); ++i) {
    std::vector<Place> places(children.size());
    for (std::uint32_t peer = 0; peer < children.size(); ++peer) {
      places[peer] = made[peer][i];
      ports.insert(apps::port_of(made[i][peer].qp));
    }
    apps::put(children[i].pipe, places.data(), places.size() * sizeof(Place));
  }
  return ports;
}

void print_ports(const std::set<std::uint16_t>& ports) {
  std::string text = "ports:";
  for (const std::uint16_t port : ports) text += " " + std::to_string(port);
  std::puts(text.c_str());
}

void mesh(const std::string& host, std::uint32_t count, std::uint32_t laps) {
  const std::vector<Child> children = start_members(host, count, laps);
  const double qps = static_cast<double>(count) * count;
  receive_reports(children, "opening the device");
  const long memory_before = available_kib();
  const auto start = Clock::now();
  go(children);

  std::vector<std::vector<Place>> made(count, std::vector<Place>(count));
  for (std::uint32_t i = 0; i < count; ++i)
    apps::get(children[i].pipe, made[i].data(), count * sizeof(Place), "making queue pairs", kLong);
  const double making = seconds_since(start);
  const std::set<std::uint16_t> ports = exchange_places(children, made);
  const long memory_made = available_kib();
  receive_reports(children, "the exchange of numbers");
  const auto connecting = Clock::now();
  go(children);
  const std::vector<StepReport> connected = receive_reports(children, "connecting");
  const double took = seconds_since(connecting);
  const long memory_connected = available_kib();
  const auto passing = Clock::now();
  go(children);
  std::uint64_t tokens = 0;
  for (const StepReport& report : receive_reports(children, "passing tokens")) tokens += report.tokens;
  const double passed = seconds_since(passing);
  if (tokens != std::uint64_t{laps} * count * (count - 1)) die("%lu tokens arrived", tokens);
  const auto undoing = Clock::now();
  go(children);
  const std::vector<StepReport> undone = receive_reports(children, "destroying");
  const double undid = seconds_since(undoing);

  print_ports(ports);
  long most_rss = 0;
  int most_descriptors = 0, left = 0;
  for (const StepReport& report : connected) {
    most_rss = std::max(most_rss, report.rss_kib);
    most_descriptors = std::max(most_descriptors, report.descriptors);
  }
  for (const StepReport& report : undone) left = std::max(left, report.descriptors);
  std::printf(
      "%u processes, %.0f queue pairs: made in %.2f s, connected in %.2f s (%.0f us each), %lu hops in %.2f s, "
      "undone in %.2f s\n",
      count, qps, making, took, took * 1e6 / qps, tokens, passed, undid);
  std::printf(
      "memory: %ld KiB a process at most, %.1f KiB a queue pair of the whole host (%.1f before it is connected); "
      "descriptors: %d a process at most, %d afterwards\n",
      most_rss, static_cast<double>(memory_before - memory_connected) / qps,
      static_cast<double>(memory_before - memory_made) / qps, most_descriptors, left);
  std::fflush(stdout);
  go(children);
  for (const Child& child : children) apps::join(child.pid, kLong);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) die("usage: %s HOST mesh PROCESSES LAPS | rounds QPS ROUNDS", argv[0]);
  const std::string host = argv[1], what = argv[2];
  const auto first = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
  const auto second = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  if (what == "mesh")
    mesh(host, first, second);
  else if (what == "rounds")
    rounds(host, first, second);
  else
    die("no case %s", what.c_str());
  std::puts("as documented");
  return 0;
}
