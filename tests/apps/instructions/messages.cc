// SPDX-License-Identifier: MIT
// uiw_messages ADDRESS: runs under callgrind and makes it count the instructions of one call at a time: of the posts
// and of the polls of both ends of connections, for each kind of work. Both ends are in this thread, which posts to
// each connection in turn and then polls for all of them. After each count it makes callgrind write a file with the
// count and its name: "fetch-and-add; posted; 100; 500" are 500 posts on 100 connections.
//
// callgrind makes the program some fifty times slower, and uiw would take that for pauses of the program and let its
// own thread move the octets. So uiw gets a clock of its own here, which goes on by the same short time whenever it is
// read. This makes the counts the same each time, too.
#include <dlfcn.h>
#include <link.h>
#include <sys/syscall.h>
#include <valgrind/callgrind.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "tests/apps/support/manual_pair.h"

namespace {

// The addresses of the code of libuiw.so.1.
std::uintptr_t g_library = 0, g_library_end = 0;
std::atomic<std::uint64_t> g_clock{0};  // nanoseconds; 0: the library gets the time of the system

void start_clock() {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void*) {
        if (std::string(info->dlpi_name).find("/libuiw.so") == std::string::npos) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          g_library = info->dlpi_addr + part.p_vaddr;
          g_library_end = g_library + part.p_memsz;
        }
        return 1;
      },
      nullptr);
  if (g_library == 0) apps::die("libuiw.so.1 is not loaded");
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  g_clock = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

// In place of that of libc, for the program and all its libraries.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* time) noexcept {
  constexpr std::uint64_t kStepNs = 50;
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  if (clock != CLOCK_MONOTONIC || g_clock == 0 || caller < g_library || caller >= g_library_end)
    return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  const std::uint64_t now = g_clock.fetch_add(kStepNs) + kStepNs;
  *time = {static_cast<time_t>(now / 1'000'000'000), static_cast<long>(now % 1'000'000'000)};
  return 0;
}

namespace apps {
namespace {

constexpr std::uint32_t kMemory = 64 * 1024;

enum class Call { receive, post, poll_far, poll_near };
struct NamedCall {
  Call call;
  const char* name;
};
constexpr NamedCall kCalls[] = {{Call::receive, "receive posted"},
                                {Call::post, "posted"},
                                {Call::poll_far, "polled by the target"},
                                {Call::poll_near, "polled by the initiator"}};

// Counts what `run` does if this is the call that is counted now.
Call g_counted;
template <typename Run>
void counted(Call call, Run run) {
  if (call == g_counted) CALLGRIND_TOGGLE_COLLECT;
  run();
  if (call == g_counted) CALLGRIND_TOGGLE_COLLECT;
}

// One end of all connections.
struct End {
  Rnic rnic{g_host};
  Cq cq{rnic, 4096};
  std::vector<std::byte> memory = std::vector<std::byte>(kMemory);
  ibv_mr* mr =
      reg(rnic.pd(), memory.data(), kMemory,
          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  std::deque<ManualQp> queue_pairs;

  ~End() {
    queue_pairs.clear();
    expect_error("ibv_dereg_mr", ibv_dereg_mr(mr), 0);
  }
  // Polls once. How many completions there were.
  int poll(Call call) {
    ibv_wc wc{};
    int found = 0;
    counted(call, [&] { found = ibv_poll_cq(cq.get(), 1, &wc); });
    if (found > 0 && wc.status != IBV_WC_SUCCESS) die("%s", ibv_wc_status_str(wc.status));
    return found;
  }
};

struct Ends {
  End near, far;

  explicit Ends(std::size_t connections) {
    for (std::size_t i = 0; i < connections; ++i) {
      near.queue_pairs.emplace_back(near.rnic, near.cq, Capacity{});
      far.queue_pairs.emplace_back(far.rnic, far.cq, Capacity{});
      connect(near.queue_pairs.back(), far.queue_pairs.back());
      run({IBV_WR_SEND, 8, IBV_SEND_INLINE}, i);
    }
  }

  struct Kind {
    ibv_wr_opcode opcode;
    std::uint32_t size;
    unsigned flags;
  };
  // Work of this kind on all connections, or on one of them, and all its completions.
  void run(const Kind& kind) { run(kind, 0, near.queue_pairs.size()); }
  void run(const Kind& kind, std::size_t one) { run(kind, one, one + 1); }

 private:
  void run(const Kind& kind, std::size_t first, std::size_t end) {
    const bool received = kind.opcode == IBV_WR_SEND;
    for (std::size_t i = first; received && i < end; ++i) {
      ibv_sge piece{number(far.memory.data()), kind.size, far.mr->lkey};
      ibv_recv_wr request{i, nullptr, &piece, 1}, *bad = nullptr;
      counted(Call::receive, [&] { good("ibv_post_recv", ibv_post_recv(far.queue_pairs[i].get(), &request, &bad)); });
    }
    for (std::size_t i = first; i < end; ++i) {
      ibv_sge piece{number(near.memory.data()), kind.size, near.mr->lkey};
      ibv_send_wr request{.wr_id = i, .sg_list = &piece, .num_sge = 1, .opcode = kind.opcode};
      request.send_flags = kind.flags | IBV_SEND_SIGNALED;
      if (kind.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic = {number(far.memory.data()), 1, 0, far.mr->rkey};
      } else {
        request.wr.rdma = {number(far.memory.data()), far.mr->rkey};
      }
      ibv_send_wr* bad = nullptr;
      counted(Call::post, [&] { good("ibv_post_send", ibv_post_send(near.queue_pairs[i].get(), &request, &bad)); });
    }
    // A target that has nothing to complete polls as often as the initiator, and moves octets with each poll.
    std::size_t to_receive = received ? end - first : 0, to_complete = end - first;
    while (to_receive > 0 || to_complete > 0) {
      if (to_receive > 0 || !received) to_receive -= static_cast<std::size_t>(far.poll(Call::poll_far));
      if (to_receive > 0) continue;
      if (near.poll(Call::poll_near) > 0) {
        --to_complete;
      } else if (received) {
        far.poll(Call::poll_far);
      }
    }
  }
};

void count() {
  const struct {
    const char* name;
    Ends::Kind kind;
    int times;
  } kinds[] = {{"Send of 8 octets, inline", {IBV_WR_SEND, 8, IBV_SEND_INLINE}, 500},
               {"Write of 8 octets", {IBV_WR_RDMA_WRITE, 8, 0}, 500},
               {"Write of 64 KiB", {IBV_WR_RDMA_WRITE, kMemory, 0}, 20},
               {"fetch-and-add", {IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0}, 500}};
  for (const std::size_t connections : {1U, 100U}) {
    Ends ends(connections);
    if (g_clock == 0) start_clock();
    for (const auto& [kind, what, times] : kinds) {
      for (const auto& [call, name] : kCalls) {
        if (call == Call::receive && what.opcode != IBV_WR_SEND) continue;
        const int rounds = connections == 1 ? times : std::max(times / 50, 2);
        g_counted = call;
        ends.run(what);
        CALLGRIND_ZERO_STATS;
        for (int i = 0; i < rounds; ++i) ends.run(what);
        const std::string title = std::string(kind) + "; " + name + "; " + std::to_string(connections) + "; " +
                                  std::to_string(static_cast<std::size_t>(rounds) * connections);
        CALLGRIND_DUMP_STATS_AT(title.c_str());
      }
    }
  }
}

}  // namespace
}  // namespace apps

int main(int argc, char** argv) {
  if (argc != 2) apps::die("usage: %s ADDRESS", argv[0]);
  apps::g_host = argv[1];
  apps::count();
  return 0;
}
