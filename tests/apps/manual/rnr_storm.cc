// SPDX-License-Identifier: MIT
// A sender that is 10,000 messages ahead of a receiver that posts one receive at a time, on a manual connection:
// nothing is lost, nothing comes out of order, nothing ends, and neither end grows. The sender calls
// (two_programs.h).
#include <endian.h>

#include <algorithm>
#include <fstream>

#include "tests/apps/support/two_programs.h"

namespace {

using apps::die;
using apps::SendRequest;
using apps::ull;
using namespace apps::manual;

constexpr std::uint64_t kCount = 30'000, kAhead = 10'000;
constexpr std::uint64_t kOneByOne = 30;
constexpr std::uint32_t kSlot = 2048;
constexpr unsigned kSignalEvery = 50;
constexpr std::size_t kGrowth = std::size_t{12} << 20;  // octets that a process may grow by, once its memory is in use

struct Target {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

ibv_wr_opcode kind_of(std::uint64_t number) {
  constexpr ibv_wr_opcode kKinds[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM};
  return kKinds[number % 4];
}
std::uint32_t size_of(std::uint64_t number) {
  return 8 + static_cast<std::uint32_t>(number * 2654435761U >> 7) % (kSlot - 8);
}

// Octets in memory.
std::size_t resident() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0, pages = 0;
  statm >> total >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
class Growth {
 public:
  void look() { most_ = std::max(most_, resident()); }
  void check() {
    look();
    std::printf("grew by %zu KiB\n", (most_ - std::min(first_, most_)) >> 10);
    if (most_ > first_ + kGrowth) die("it grew by %zu octets", most_ - first_);
  }

 private:
  std::size_t first_ = resident(), most_ = first_;
};

void receive(const std::string& host, Line& line, bool shared) {
  Wanted wanted;
  wanted.capacity.recv_wr = 1;
  wanted.shared = shared;
  std::vector<unsigned char> inbox(kSlot), window(kSlot);
  End end(host, wanted);
  const ibv_mr* in = end.reg(inbox.data(), inbox.size(), IBV_ACCESS_LOCAL_WRITE);
  const ibv_mr* open = end.reg(window.data(), window.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  end.connect(line);
  line.say(Target{reinterpret_cast<std::uint64_t>(window.data()), open->rkey});
  line.meet('g');  // the sender is ahead
  Growth growth;
  for (std::uint64_t number = 0; number < kCount; ++number) {
    end.post_receive(number, {reinterpret_cast<std::uint64_t>(inbox.data()), kSlot, in->lkey});
    const ibv_wc wc = end.received();
    const bool write = kind_of(number) == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != number)
      die("message %llu: %s", ull(number), ibv_wc_status_str(wc.status));
    if (wc.opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV)) die("message %llu: opcode", ull(number));
    if (wc.byte_len != size_of(number)) die("message %llu: %u octets", ull(number), wc.byte_len);
    if (((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != (kind_of(number) != IBV_WR_SEND))
      die("message %llu: flags", ull(number));
    if (kind_of(number) != IBV_WR_SEND && be32toh(wc.imm_data) != number) die("message %llu: immediate", ull(number));
    std::uint64_t told = 0;
    std::memcpy(&told, inbox.data(), sizeof told);
    if (!write && told != number) die("message %llu comes in place of %llu", ull(told), ull(number));
    if (!write && inbox[wc.byte_len - 1] != (wc.byte_len > 8 ? number % 251 : 0))
      die("message %llu: octets", ull(number));
    if (number % 1000 == 0) growth.look();
  }
  growth.check();
  line.meet('d');
  check_state(end, IBV_QPS_RTS);
  check_no_event(end);
}

void send(const std::string& host, Line& line) {
  Wanted wanted;
  wanted.capacity.send_wr = kAhead + kSignalEvery;
  std::vector<unsigned char> memory(std::size_t{kSlot} * wanted.capacity.send_wr, 1);
  End end(host, wanted);
  const ibv_mr* mr = end.reg(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  end.connect(line);
  const auto target = line.hear<Target>();
  Growth growth;
  std::uint64_t posted = 0, done = 0;
  const auto note = [&](const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) die("message %llu: %s", ull(wc.wr_id), ibv_wc_status_str(wc.status));
    if (wc.wr_id != done + kSignalEvery - 1)
      die("completion of %llu, not %llu", ull(wc.wr_id), ull(done + kSignalEvery - 1));
    done = wc.wr_id + 1;
  };
  while (done < kCount) {
    if (posted == kCount || posted - done == wanted.capacity.send_wr) {
      note(end.sent());
      continue;
    }
    unsigned char* at = memory.data() + posted % wanted.capacity.send_wr * kSlot;
    const std::uint32_t size = size_of(posted);
    std::memset(at, static_cast<int>(posted % 251), size);
    std::memcpy(at, &posted, sizeof posted);
    SendRequest(kind_of(posted), {reinterpret_cast<std::uint64_t>(at), size, mr->lkey}, posted,
                posted % kSignalEvery == kSignalEvery - 1 ? unsigned{IBV_SEND_SIGNALED} : 0U)
        .at(target.address, target.rkey)
        .immediate(htobe32(static_cast<std::uint32_t>(posted)))
        .post(end.qp());
    if (++posted == kAhead) line.meet('g');
    if (posted % 1000 == 0) growth.look();
    ibv_wc wc{};
    if (ibv_poll_cq(end.send_cq(), 1, &wc) == 1) note(wc);
  }
  growth.check();
  line.meet('d');
  check_state(end, IBV_QPS_RTS);
  check_no_event(end);
}

// The receiver posts its next receive when it has heard that the Send before has completed: a Send that was
// received completes, be there a receive for the next one or not.
void receive_one_by_one(const std::string& host, Line& line) {
  std::vector<unsigned char> inbox(kSlot);
  End end(host, {});
  const ibv_mr* in = end.reg(inbox.data(), inbox.size(), IBV_ACCESS_LOCAL_WRITE);
  end.connect(line);
  for (std::uint64_t number = 0; number < kOneByOne; ++number) {
    line.meet('n');
    end.post_receive(number, {reinterpret_cast<std::uint64_t>(inbox.data()), kSlot, in->lkey});
    const ibv_wc wc = end.received();
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != number)
      die("message %llu: %s", ull(number), ibv_wc_status_str(wc.status));
  }
  line.meet('d');
}
void send_one_by_one(const std::string& host, Line& line) {
  std::vector<unsigned char> memory(kSlot);
  End end(host, {});
  const ibv_mr* mr = end.reg(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  end.connect(line);
  for (std::uint64_t number = 0; number < kOneByOne; ++number)
    end.post_send(number, {reinterpret_cast<std::uint64_t>(memory.data()), kSlot, mr->lkey});
  for (std::uint64_t number = 0; number < kOneByOne; ++number) {
    line.meet('n');
    const ibv_wc wc = end.sent();
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != number)
      die("message %llu: %s", ull(number), ibv_wc_status_str(wc.status));
  }
  line.meet('d');
  check_no_event(end);
}

const apps::manual::Cases kCases = {
    {"one_by_one", {send_one_by_one, receive_one_by_one}},
    {"storm", {send, [](const std::string& host, Line& line) { receive(host, line, false); }}},
    {"storm_shared", {send, [](const std::string& host, Line& line) { receive(host, line, true); }}},
};

}  // namespace

int main(int argc, char** argv) { return apps::manual::run_case(argc, argv, kCases); }
