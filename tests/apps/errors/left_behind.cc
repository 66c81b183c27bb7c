// SPDX-License-Identifier: MIT
// One end of a manual connection is killed; what the other one sees of it: its work fails within its
// retry time, first with IBV_WC_RETRY_EXC_ERR, the rest flushes, and all its objects can be destroyed.
//
// The survivor listens on the line, the victim calls (two_programs.h). The victim kills itself, at a moment
// that it chooses.
#include <csignal>

#include "tests/apps/support/two_programs.h"

namespace {

using apps::Clock;
using apps::die;
using apps::Place;
using apps::SendRequest;
using apps::ull;
using namespace apps::manual;

constexpr std::uint32_t kSize = 1U << 20, kDepth = 64;
constexpr std::uint64_t kReceives = 3;  // of the survivor; nothing comes for them
constexpr unsigned kAlive = 300;        // messages that the victim takes before it dies
// With these attributes work may wait for about 1.2 s, which is less than uiw gives a connection.
constexpr std::chrono::seconds kRetryTime{4}, kMore{3};

Wanted wanted() {
  Wanted wanted;
  wanted.timeout = 15;
  wanted.retries = 7;
  wanted.capacity.send_wr = wanted.capacity.recv_wr = kDepth;
  return wanted;
}

struct Peer {
  Place place;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

[[noreturn]] void end_here(Line& line) {
  line.say(Clock::now());
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

struct Rig {
  explicit Rig(const std::string& host) : end(host, wanted()) { end.to_init(); }

  Peer self() const { return {end.place(), number(0), mr->rkey}; }
  std::uint64_t number(std::size_t at) const { return reinterpret_cast<std::uint64_t>(memory.data()) + at; }
  ibv_sge sge(std::uint32_t size) const { return {number(0), size, mr->lkey}; }
  Peer connect(Line& line) {
    line.say(self());
    const auto peer = line.hear<Peer>();
    end.to_rtr(peer.place);
    end.to_rts();
    return peer;
  }

  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize);
  End end;
  ibv_mr* mr = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
};

// ---- The survivor -----------------------------------------------------------------------------------------

class Survivor : Rig {
 public:
  explicit Survivor(const std::string& host) : Rig(host) {}

  void begin(Line& line) {
    for (std::uint64_t id = 0; id < kReceives; ++id) end.post_receive(id, sge(64));
    peer_ = connect(line);
  }
  void post(ibv_wr_opcode opcode, std::uint32_t size) {
    SendRequest(opcode, sge(size), posted_++).at(peer_.address, peer_.rkey).post(end.qp());
  }
  void succeed() {
    while (done_ < posted_) take();
    if (failed_) die("it failed");
  }
  // Keeps the queue full with what `next` posts, until something fails.
  void work(const std::function<void(std::uint64_t)>& next) {
    while (!failed_) {
      while (posted_ - done_ < kDepth) next(posted_);
      take();
    }
  }
  // Everything that was posted has an end, in order, with one failure, soon after this time. `waits`: and not
  // at once, for the peer may yet come.
  void finish(Clock::time_point since, bool waits = false) {
    while (done_ < posted_) take();
    if (!failed_) die("nothing failed");
    if (failed_at_ > since + kRetryTime + kMore) die("too late");
    if (waits && failed_at_ < since + kRetryTime) die("too soon");
    for (std::uint64_t id = 0; id < kReceives; ++id) check_flushed(end.received(), id);
    check_no_event(end);
    check_dead(end, sge(16));
  }
  // The peer has died, and nothing asks for it.
  void check_unmoved() const {
    check_state(end, IBV_QPS_RTS);
    check_no_event(end);
    ibv_wc wc{};
    if (ibv_poll_cq(end.recv_cq(), 1, &wc) != 0) die("a receive completes: %s", ibv_wc_status_str(wc.status));
  }

 private:
  void take() {
    const ibv_wc wc = end.sent();
    if (wc.wr_id != done_++) die("completion of %llu, not %llu", ull(wc.wr_id), ull(done_ - 1));
    if (!failed_ && wc.status == IBV_WC_SUCCESS) return;
    if (wc.status != (failed_ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR))
      die("request %llu: %s", ull(wc.wr_id), ibv_wc_status_str(wc.status));
    if (!failed_) failed_at_ = Clock::now();
    failed_ = true;
  }

  Peer peer_;
  std::uint64_t posted_ = 0, done_ = 0;
  bool failed_ = false;
  Clock::time_point failed_at_;
};

// ---- The victim -------------------------------------------------------------------------------------------

// Takes so many messages.
void take_messages(Rig& rig, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const ibv_wc wc = rig.end.received();
    if (wc.status != IBV_WC_SUCCESS) die("a receive: %s", ibv_wc_status_str(wc.status));
    rig.end.post_receive(i, rig.sge(kSize));
  }
}

// ---- The cases --------------------------------------------------------------------------------------------

// Work goes on until the peer is gone; every fourth request is a Send, which the victim counts.
apps::manual::Case working(ibv_wr_opcode opcode, std::uint32_t size) {
  return {[](const std::string& host, Line& line) {
            Rig rig(host);
            for (std::uint32_t i = 0; i < kDepth; ++i) rig.end.post_receive(i, rig.sge(kSize));
            rig.connect(line);
            take_messages(rig, kAlive);
            end_here(line);
          },
          [=](const std::string& host, Line& line) {
            Survivor survivor(host);
            survivor.begin(line);
            survivor.work([&](std::uint64_t id) { survivor.post(id % 4 == 0 ? IBV_WR_SEND : opcode, size); });
            survivor.finish(line.hear<Clock::time_point>());
          }};
}

apps::manual::Case idle(ibv_wr_opcode opcode) {
  return {[](const std::string& host, Line& line) {
            Rig rig(host);
            for (std::uint32_t i = 0; i < kDepth; ++i) rig.end.post_receive(i, rig.sge(kSize));
            rig.connect(line);
            take_messages(rig, 1);
            // By the remote rule this process confirms the Send, a moment after its message can be polled.
            line.hear<char>();
            end_here(line);
          },
          [=](const std::string& host, Line& line) {
            Survivor survivor(host);
            survivor.begin(line);
            survivor.post(IBV_WR_SEND, 100);
            survivor.succeed();
            line.say('d');
            line.hear<Clock::time_point>();
            line.await_end();
            survivor.check_unmoved();
            const auto now = Clock::now();
            // By the local rule TCP may take the first of it before it learns that nobody is there.
            survivor.work([&](std::uint64_t) { survivor.post(opcode, 1000); });
            survivor.finish(now);
          }};
}

const apps::manual::Cases kCases = {
    {"writing", working(IBV_WR_RDMA_WRITE, 30'000)},
    {"writing_small", working(IBV_WR_RDMA_WRITE, 64)},
    {"writing_long", working(IBV_WR_RDMA_WRITE, kSize)},
    {"sending", working(IBV_WR_SEND, 5000)},
    {"reading", working(IBV_WR_RDMA_READ, 30'000)},
    {"reading_long", working(IBV_WR_RDMA_READ, kSize)},
    {"idle_then_send", idle(IBV_WR_SEND)},
    {"idle_then_write", idle(IBV_WR_RDMA_WRITE)},
    {"idle_then_read", idle(IBV_WR_RDMA_READ)},
    // It has no receive for what is sent to it.
    {"unready",
     {[](const std::string& host, Line& line) {
        Rig rig(host);
        rig.end.post_receive(0, rig.sge(kSize));
        rig.connect(line);
        line.hear<char>();
        end_here(line);
      },
      [](const std::string& host, Line& line) {
        Survivor survivor(host);
        survivor.begin(line);
        survivor.post(IBV_WR_SEND, 100);
        survivor.succeed();
        survivor.work([&](std::uint64_t id) {
          survivor.post(IBV_WR_SEND, 65'536);
          if (id == kDepth) line.say('p');
        });
        survivor.finish(line.hear<Clock::time_point>());
      }}},
    {"before_rtr",
     {[](const std::string& host, Line& line) {
        Rig rig(host);
        line.say(rig.self());
        line.hear<Peer>();
        end_here(line);
      },
      [](const std::string& host, Line& line) {
        Survivor survivor(host);
        survivor.begin(line);
        const auto now = Clock::now();
        survivor.post(IBV_WR_SEND, 100);
        survivor.post(IBV_WR_RDMA_WRITE, 100);
        line.hear<Clock::time_point>();
        survivor.finish(now, true);
      }}},
    // It dies while it sends to the survivor, most likely in the middle of a message.
    {"receiving",
     {[](const std::string& host, Line& line) {
        Rig rig(host);
        rig.connect(line);
        for (std::uint64_t id = 0; id < kDepth; ++id) rig.end.post_send(id, rig.sge(kSize));
        line.hear<char>();
        end_here(line);
      },
      [](const std::string& host, Line& line) {
        Rig rig(host);
        for (std::uint64_t id = 0; id < kDepth; ++id) rig.end.post_receive(id, rig.sge(kSize));
        rig.connect(line);
        if (rig.end.received().status != IBV_WC_SUCCESS) die("the first message");
        line.say('d');
        line.hear<Clock::time_point>();
        line.await_end();
        // The end in the middle of a message puts the queue pair into ERR: what is behind it cannot be
        // received. Where it came between two messages, the queue pair waits for work.
        ibv_wc wc{};
        do {
          rig.end.post_send(100, rig.sge(100));
          wc = rig.end.sent();
        } while (wc.status == IBV_WC_SUCCESS);
        if (wc.status != IBV_WC_RETRY_EXC_ERR && wc.status != IBV_WC_WR_FLUSH_ERR)
          die("a Send: %s", ibv_wc_status_str(wc.status));
        bool flushed = false;
        for (std::uint64_t id = 1; id < kDepth; ++id) {
          wc = rig.end.received();
          flushed = flushed || wc.status != IBV_WC_SUCCESS;
          if (wc.wr_id != id) die("receive %llu, not %llu", ull(wc.wr_id), ull(id));
          if (flushed) check_flushed(wc, id);
        }
        check_no_event(rig.end);
        check_dead(rig.end, rig.sge(16));
      }}},
};

}  // namespace

int main(int argc, char** argv) { return apps::manual::run_case(argc, argv, kCases); }
