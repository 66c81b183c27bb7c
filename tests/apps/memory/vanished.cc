// SPDX-License-Identifier: MIT
// Registered memory that the program takes away while it is registered: it unmaps it, makes it read-only, or cuts the
// file off that is mapped there. Work that meets it fails, and its stream with it; the program and its other
// connections go on. Memory on a stack can be registered as any.
#include <array>

#include "tests/apps/memory/memory.h"
#include "tests/apps/support/manual_pair.h"

namespace apps::memory {

namespace {

constexpr std::uint32_t kPage = 4096, kBoth = 2 * kPage;

enum class Way { unmapped, read_only, cut_off };

// Two pages, of which the second goes.
class Vanishing {
 public:
  explicit Vanishing(Way way) : way_(way) {
    // Far from where the system puts what others map, so that nothing else takes the place.
    void* const wanted = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
    const int flags = MAP_FIXED_NOREPLACE;
    if (way == Way::cut_off) {
      file_ = memfd_create("vanishing", MFD_CLOEXEC);
      expect(file_ >= 0 && ftruncate(file_, kBoth) == 0, "memfd_create");
      at_ = mmap(wanted, kBoth, PROT_READ | PROT_WRITE, MAP_SHARED | flags, file_, 0);
    } else {
      at_ = mmap(wanted, kBoth, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    }
    expect(at_ == wanted, "mmap");
    std::memset(at_, 5, kBoth);
  }
  Vanishing(const Vanishing&) = delete;
  Vanishing& operator=(const Vanishing&) = delete;
  ~Vanishing() {
    munmap(at_, kBoth);
    if (file_ >= 0) close(file_);
  }

  ibv_mr* reg(ibv_pd* pd) const { return apps::reg(pd, at_, kBoth, kAll); }
  std::uint64_t address() const { return number(at_); }
  void vanish() const {
    void* const second = static_cast<std::uint8_t*>(at_) + kPage;
    int failed = 0;
    switch (way_) {
      case Way::unmapped: failed = munmap(second, kPage); break;
      case Way::read_only: failed = mprotect(second, kPage, PROT_READ); break;
      case Way::cut_off: failed = ftruncate(file_, kPage); break;
    }
    expect(failed == 0, "the page does not go");
  }

 private:
  const Way way_;
  int file_ = -1;
  void* at_ = nullptr;
};

// The near end's own memory is used by what it posts.
void local(Way way, ibv_wr_opcode opcode) {
  const Vanishing memory(way);
  Pair pair;
  ibv_mr* mr = memory.reg(pair.near.pd());
  ibv_mr* target = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
  if (opcode == IBV_WR_SEND) post_receive(pair.far.qp(), {{number(pair.target.data()), kSize, target->lkey}});
  memory.vanish();
  const ibv_sge sge{memory.address(), kBoth, mr->lkey};
  expect_error("ibv_post_send", post_data(pair.near, opcode, sge, number(pair.target.data()), target->rkey), 0);
  expect_status(opcode == IBV_WR_SEND         ? "a Send from there"
                : opcode == IBV_WR_RDMA_WRITE ? "a Write from there"
                                              : "a Read to there",
                sent(pair.near), IBV_WC_LOC_PROT_ERR);
}

// A Send comes to it.
void received(Way way) {
  const Vanishing memory(way);
  Pair pair;
  ibv_mr* mr = memory.reg(pair.far.pd());
  post_receive(pair.far.qp(), {{memory.address(), kBoth, mr->lkey}});
  memory.vanish();
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_SEND, own(pair, kBoth), 0, 0), 0);
  expect_status("a receive to there", apps::received(pair.far), IBV_WC_LOC_PROT_ERR);
}

// The peer writes, reads or adds. A Write may complete all the same (RFC 5040 section 5.5); the Read behind it does
// not.
void remote(Way way, ibv_wr_opcode opcode) {
  const Vanishing memory(way);
  Pair pair;
  ibv_mr* mr = memory.reg(pair.far.pd());
  memory.vanish();
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    SendRequest(opcode, own(pair, 8)).add(memory.address() + kPage, mr->rkey, 1).post(pair.near.qp());
  } else {
    expect_error("ibv_post_send", post_data(pair.near, opcode, own(pair, kBoth), memory.address(), mr->rkey), 0);
  }
  ibv_wc wc{};
  if (opcode == IBV_WR_RDMA_WRITE) {
    expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
    wc = sent(pair.near);
  }
  wc = sent(pair.near);
  expect(wc.status != IBV_WC_SUCCESS, "the stream goes on");
}

// Another connection of the process goes on, and a new one can be made.
void others_go_on(const std::function<void()>& meets_it) {
  const ManualPair manual;
  manual.talk();
  meets_it();
  manual.talk();
  Pair pair;
  ibv_mr* mr = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
  write_well(pair, mr->rkey, number(pair.target.data()));
  expect(pair.target == pair.own, "what was written");
}

void add_way(Cases& cases, const std::string& name, Way way) {
  const auto add = [&](const char* role, const std::function<void()>& run) {
    cases[name + "_" + role] = [run] { others_go_on(run); };
  };
  if (way != Way::read_only) {
    add("send", [=] { local(way, IBV_WR_SEND); });
    add("write", [=] { local(way, IBV_WR_RDMA_WRITE); });
    add("source_of_a_read", [=] { remote(way, IBV_WR_RDMA_READ); });
  }
  add("read", [=] { local(way, IBV_WR_RDMA_READ); });
  add("receive", [=] { received(way); });
  add("target_of_a_write", [=] { remote(way, IBV_WR_RDMA_WRITE); });
  add("target_of_an_atomic", [=] { remote(way, IBV_WR_ATOMIC_FETCH_AND_ADD); });
}

void on_stack() {
  alignas(8) std::array<std::uint8_t, kBoth> source{}, sink{};
  source.fill(7);
  {
    Pair pair;
    ibv_mr* near = reg(pair.near.pd(), source.data(), kBoth, kAll);
    ibv_mr* far = reg(pair.far.pd(), sink.data(), kBoth, kAll);
    const ibv_sge sge{number(source.data()), kBoth, near->lkey};
    expect_error("Write", post_data(pair.near, IBV_WR_RDMA_WRITE, sge, number(sink.data()), far->rkey), 0);
    expect_status("a Write", sent(pair.near), IBV_WC_SUCCESS);
    expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, sge, number(sink.data()), far->rkey), 0);
    expect_status("a Read", sent(pair.near), IBV_WC_SUCCESS);
    expect(source == sink, "what was written");
    post_receive(pair.far.qp(), {{number(sink.data()), kBoth, far->lkey}});
    expect_error("Send", post_data(pair.near, IBV_WR_SEND, sge, 0, 0), 0);
    expect_status("a Send", sent(pair.near), IBV_WC_SUCCESS);
    expect_status("a receive", apps::received(pair.far), IBV_WC_SUCCESS);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(near), 0);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(far), 0);
  }
}

}  // namespace

void vanished_cases(Cases& cases) {
  add_way(cases, "unmapped", Way::unmapped);
  add_way(cases, "read_only", Way::read_only);
  add_way(cases, "cut_off", Way::cut_off);
  cases["on_stack"] = on_stack;
}

}  // namespace apps::memory
