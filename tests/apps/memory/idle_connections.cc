// SPDX-License-Identifier: MIT
// How much memory an idle connection takes: two processes, and many queue pairs of one that are connected with those of
// the other without rdma_cm.
//
//   uiw_idle_connections HOST CONNECTIONS MESSAGES OCTETS RECEIVES
//
// Each queue pair has 16 sends and 16 receives of one element. Over each connection go so many messages of so many
// octets in either direction, or none, after which so many receives stay posted. Some connections come first, and stay,
// so that what is made once does not count. Memory is read once it has ceased to shrink.
//
// Says how much memory each connection takes, in KiB, and how many descriptors; and "as documented".
#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "tests/apps/support/manual.h"
#include "tests/apps/support/process.h"

namespace {

using apps::Clock;
using apps::die;
using apps::Place;

constexpr std::chrono::seconds kLong{120};
constexpr apps::Capacity kDepth16{16, 16, 1, 1, 0};
constexpr std::uint8_t kTimeout = 19;  // see mesh.cc
// So many connections are made at a time. The first of them fill what is shared by all: completion queue and heap.
constexpr std::size_t kLot = 50;
// A process gives memory back once nothing has come for a second, and looks for that once a second.
constexpr std::chrono::milliseconds kCalm{3500}, kBetweenLooks{250}, kCalmAtLast{60'000};
constexpr std::chrono::milliseconds kBetweenCounts{20};
constexpr int kLooks = 4;  // that count the same

struct Wanted {
  std::size_t connections;
  std::uint32_t messages, octets, receives;
};

// Memory of this process in KiB. The kernel divides shared memory among the processes that map it: what two processes
// say of it, added, counts each page once.
struct Memory {
  long anonymous = 0, shared = 0, tables = 0;  // `tables` are those of pages, and belong to the kernel
  int descriptors = 0;

  static Memory now() {
    std::FILE* rollup = std::fopen("/proc/self/smaps_rollup", "r");
    if (rollup == nullptr) die("/proc/self/smaps_rollup: %s", std::strerror(errno));
    Memory memory;
    bool complete = false;
    char line[256];
    while (std::fgets(line, sizeof line, rollup) != nullptr) {
      std::sscanf(line, "Anonymous: %ld", &memory.anonymous);
      complete |= std::sscanf(line, "Pss_Shmem: %ld", &memory.shared) == 1;
    }
    std::fclose(rollup);
    if (!complete) die("/proc/self/smaps_rollup has no Pss_Shmem");
    memory.tables = apps::memory_kib("VmPTE");
    memory.descriptors = apps::open_descriptors();
    return memory;
  }
  Memory operator-(const Memory& other) const {
    return {anonymous - other.anonymous, shared - other.shared, tables - other.tables, descriptors - other.descriptors};
  }
};

Memory once_calm() {
  const auto give_up = Clock::now() + kCalmAtLast;
  Memory last = Memory::now();
  for (auto since = Clock::now(); Clock::now() - since < kCalm;) {
    poll(nullptr, 0, static_cast<int>(kBetweenLooks.count()));
    const Memory memory = Memory::now();
    if (memory.anonymous + memory.shared < last.anonymous + last.shared) since = Clock::now();
    last = memory;
    if (Clock::now() > give_up) die("memory does not cease to shrink");
  }
  return last;
}

// ---- One of the two processes --------------------------------------------------------------------------------------

class End {
 public:
  End(const std::string& host, int peer, bool first, const Wanted& wanted)
      : peer_(peer), first_(first), wanted_(wanted), rnic_(host), octets_(std::max(1U, wanted.octets)) {
    mr_ = apps::reg(rnic_.pd(), octets_.data(), octets_.size(), IBV_ACCESS_LOCAL_WRITE);
    qps_.reserve(kLot + wanted.connections);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    qps_.clear();
    apps::expect_error("ibv_dereg_mr", ibv_dereg_mr(mr_), 0);
  }

  Memory grow() {
    connect(kLot);
    const Memory before = once_calm();
    for (std::size_t left = wanted_.connections; left > 0;) {
      const std::size_t lot = std::min(left, kLot);
      connect(lot);
      left -= lot;
    }
    const Memory after = once_calm();
    char met = 0;
    exchange(&met, &met, 1);
    return after - before;
  }

 private:
  // Both do the same, in opposite order, so that neither waits for room while the other does too.
  void exchange(const void* own, void* others, std::size_t size) const {
    if (first_) apps::put(peer_, own, size);
    std::vector<char> heard(size);
    apps::get(peer_, heard.data(), size, "the other process", kLong);
    if (!first_) apps::put(peer_, own, size);
    std::memcpy(others, heard.data(), size);
  }

  // Without messages only the descriptors tell that all are connected: what a start-up needs is closed at its end.
  static void await_connected() {
    int last = apps::open_descriptors();
    for (int same = 0; same < kLooks;) {
      poll(nullptr, 0, static_cast<int>(kBetweenCounts.count()));
      const int now = apps::open_descriptors();
      same = now == last ? same + 1 : 0;
      last = now;
    }
  }

  void connect(std::size_t count) {
    const std::size_t begin = qps_.size();
    std::array<Place, kLot> own{}, peers{};
    for (std::size_t i = 0; i < count; ++i) own[i] = qps_.emplace_back(rnic_, cq_, kDepth16).place();
    exchange(own.data(), peers.data(), count * sizeof(Place));
    for (std::size_t i = 0; i < count; ++i) {
      const apps::ManualQp& qp = qps_[begin + i];
      qp.to_init();
      for (std::uint32_t each = 0; each < wanted_.messages; ++each) receive(qp);
      qp.to_rtr(peers[i]);
      qp.to_rts(kTimeout);
      for (std::uint32_t each = 0; each < wanted_.messages; ++each) send(qp);
    }
    for (std::size_t left = 2 * wanted_.messages * count; left > 0; --left) {
      ibv_wc wc{};
      if (!cq_.next(wc, kLong)) die("process %d: no completion in time", getpid());
      apps::expect_status("a message", wc, IBV_WC_SUCCESS);
    }
    if (wanted_.messages == 0) await_connected();
    for (std::size_t i = 0; i < count; ++i)
      for (std::uint32_t each = 0; each < wanted_.receives; ++each) receive(qps_[begin + i]);
  }

  void receive(const apps::ManualQp& qp) { qp.receive(octets_.data(), wanted_.octets, mr_, 0); }
  void send(const apps::ManualQp& qp) {
    apps::SendRequest(IBV_WR_SEND, {apps::number(octets_.data()), wanted_.octets, mr_->lkey}).post(qp.get());
  }

  const int peer_;
  const bool first_;
  const Wanted wanted_;
  const apps::Rnic rnic_;
  const apps::Cq cq_{rnic_, static_cast<int>(2 * std::max(1U, wanted_.messages) * kLot)};
  std::vector<char> octets_;
  ibv_mr* mr_ = nullptr;
  std::vector<apps::ManualQp> qps_;
};

// Each connection has a descriptor, so this allows as many descriptors as the system does.
void allow_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("setrlimit: %s", std::strerror(errno));
}

std::uint32_t number_of(const char* word) { return static_cast<std::uint32_t>(std::strtoul(word, nullptr, 10)); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) die("usage: %s HOST CONNECTIONS MESSAGES OCTETS RECEIVES", argv[0]);
  const Wanted wanted{number_of(argv[2]), number_of(argv[3]), number_of(argv[4]), number_of(argv[5])};
  if (wanted.connections == 0 || std::max(wanted.messages, wanted.receives) > kDepth16.recv_wr)
    die("there are connections, and at most 16 messages and 16 receives");
  allow_descriptors();
  const apps::Pipe line, report;
  const pid_t child = apps::in_child([&] {
    close(line.ends[0]);
    const Memory grown = End(argv[1], line.ends[1], false, wanted).grow();
    apps::put(report.ends[1], &grown, sizeof grown);
  });
  close(line.ends[1]);
  const Memory own = End(argv[1], line.ends[0], true, wanted).grow();
  Memory other;
  apps::get(report.ends[0], &other, sizeof other, "its memory", kLong);
  apps::join(child, kLong);
  const auto each = [&](long kib) { return static_cast<double>(kib) / static_cast<double>(wanted.connections); };
  std::printf("a connection: %.2f KiB at one end, %.2f KiB at the other, %.2f KiB that both share\n",
              each(own.anonymous), each(other.anonymous), each(own.shared + other.shared));
  std::printf("page tables: %.2f KiB and %.2f KiB; descriptors: %.2f and %.2f\n", each(own.tables), each(other.tables),
              each(own.descriptors), each(other.descriptors));
  std::puts("as documented");
  return 0;
}
