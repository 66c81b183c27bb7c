// SPDX-License-Identifier: MIT
// What a connected queue pair takes of the heap, with its share of all that is made for its connection. The completion
// queues are shared.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "provider/connect/call.h"
#include "provider/connect/listener.h"
#include "provider/connect/local_address.h"
#include "provider/connect/startup/outgoing_call.h"
#include "provider/process/limits.h"
#include "tests/unit/provider/connect/manual/manual_pair.h"

using namespace uiw;
using namespace uiw::test;
using provider::Call;
using provider::CallParameters;

namespace {

// Sanitizers have a heap of their own, which mallinfo2() says nothing of.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHeapIsCounted = false;
#else
constexpr bool kHeapIsCounted = true;
#endif

constexpr std::size_t kKiB = 1024;
constexpr unsigned kWarm = 4;     // pairs that are connected before: what a process makes once is there then
constexpr unsigned kPairs = 100;  // and then counted
constexpr std::size_t kQps = 2 * std::size_t{kPairs};

std::size_t heap_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Of one host, with one completion queue.
struct Adapter {
  std::unique_ptr<Qp> make(std::uint32_t depth) {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.sq_sig_all = 1;
    attributes.cap = {depth, depth, 1, 1, 0};
    auto qp = Qp::create(*context, pd, cq.get(), cq.get(), attributes, reinterpret_cast<ibv_qp*>(this));
    REQUIRE(qp);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    REQUIRE(qp->modify(init, IBV_QP_STATE) == 0);
    return qp;
  }
  std::shared_ptr<Context> context = open_loopback();
  Pd pd{context};
  std::unique_ptr<Cq> cq = Cq::create(*context, 4096, -1, nullptr);
};

class Established final : public provider::CallObserver {
 public:
  void established(const CallParameters&) override { there.store(true); }
  void failed(int, const CallParameters*) override {}
  void disconnected() override {}
  std::atomic<bool> there{false};
};

// Accepts what is called, for the queue pair that is to answer next.
class Answering final : public provider::ListenObserver {
 public:
  void requested(std::shared_ptr<Call> call, const CallParameters&) override {
    // On a thread of the library, where nothing is asserted: a connection that is not accepted is missed.
    if (call->accept({number.load(), depth, depth, pattern(40)}, observer.load()) == 0) answered.store(std::move(call));
  }
  std::atomic<std::uint32_t> number{0};
  std::atomic<std::shared_ptr<Established>> observer;
  std::atomic<std::shared_ptr<Call>> answered;
  unsigned depth = 0;
};

// One end of a pair as its program sees it, and what its connection manager keeps for it.
struct End {
  std::unique_ptr<Qp> qp;
  std::shared_ptr<Established> observer;
  std::shared_ptr<Call> connection;
};
using Ends = std::array<End, 2>;

class Manager {
 public:
  explicit Manager(unsigned depth) {
    reinterpret_cast<sockaddr_in&>(address_) = any();
    calls_->depth = depth;
    const int fd = provider::bind_socket(address_, false);
    REQUIRE(fd >= 0);
    REQUIRE(provider::listen(fd, 128, calls_, listener_) == 0);
  }
  void connect(Ends& ends) {
    for (End& end : ends) end.observer = std::make_shared<Established>();
    calls_->number = ends[1].qp->number();
    calls_->observer = ends[1].observer;
    sockaddr_storage local{};
    reinterpret_cast<sockaddr_in&>(local) = any();
    const int fd = provider::bind_socket(local, false);
    REQUIRE(fd >= 0);
    REQUIRE(provider::connect(fd, address_, {ends[0].qp->number(), calls_->depth, calls_->depth, pattern(40)}, -1,
                              ends[0].observer, ends[0].connection) == 0);
    REQUIRE(eventually([&] { return ends[0].observer->there && ends[1].observer->there; }));
    ends[1].connection = calls_->answered.exchange(nullptr);
  }

 private:
  static sockaddr_in any() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  sockaddr_storage address_{};
  std::shared_ptr<Answering> calls_ = std::make_shared<Answering>();
  std::shared_ptr<provider::Listener> listener_;
};

void connect_manually(const Adapter& adapter, Ends& ends) {
  for (const unsigned i : {0U, 1U}) {
    REQUIRE(ends[i].qp->modify(rtr(gid(*adapter.context), ends[1 - i].qp->number()), kRtr) == 0);
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 2;
  for (End& end : ends) REQUIRE(end.qp->modify(attributes, kRts) == 0);
  for (End& end : ends) REQUIRE(eventually([&] { return end.qp->is_connected(); }));
}

void post_receives(Qp& qp, std::uint32_t count, ibv_sge sge) {
  ibv_recv_wr request{};
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  for (std::uint32_t i = 0; i < count; ++i) REQUIRE(qp.post_receive(&request, &bad) == 0);
}

// Both ends send, and all is received: by the thread of the context, for the program does not poll meanwhile.
void exchange(Adapter& adapter, Ends& ends, ibv_sge sge) {
  const std::uint32_t posted = ends[0].qp->receives_outstanding();
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_send_wr* bad = nullptr;
  for (End& end : ends) REQUIRE(end.qp->post_send(&request, &bad) == 0);
  for (const End& end : ends) REQUIRE(eventually([&] { return end.qp->receives_outstanding() < posted; }));
  for (int i = 0; i < 4; ++i) REQUIRE(next(*adapter.cq).status == IBV_WC_SUCCESS);
}

// Octets of the heap for each queue pair that `connect` connects, measured once all is quiet.
template <typename Connect>
void check_memory(std::uint32_t depth, std::size_t most, Connect connect) {
  Adapter adapter;
  Bytes memory(64);
  const auto mr = Mr::create(adapter.pd, memory.data(), memory.size(), 0, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr);
  const ibv_sge sge{0, 64, mr->key()};
  std::vector<Ends> all(kWarm + kPairs);
  const auto begin = [&](Ends& ends) {
    for (End& end : ends) end.qp = adapter.make(depth);
    connect(adapter, ends);
  };
  const auto use = [&](Ends& ends) {
    for (End& end : ends) post_receives(*end.qp, depth, sge);
    exchange(adapter, ends, sge);
  };
  std::for_each_n(all.begin(), kWarm, [&](Ends& ends) { begin(ends), use(ends); });
  const std::size_t before = heap_in_use();
  const auto each = [&] { return (heap_in_use() - before) / kQps; };
  std::for_each(all.begin() + kWarm, all.end(), begin);
  // The thread of the connection manager may still be at the last ones.
  const bool small = !kHeapIsCounted || eventually([&] { return each() < most; });
  CAPTURE(depth, each());
  CHECK(small);
  // With its receive queue full, and traffic both ways.
  std::for_each(all.begin() + kWarm, all.end(), use);
  const bool still_small = !kHeapIsCounted || each() < most;
  CAPTURE(each());
  CHECK(still_small);
}

}  // namespace

TEST_CASE("idle memory: a queue pair connected without rdma_cm", "[idle_memory]") {
  check_memory(16, 8 * kKiB, [](const Adapter& adapter, Ends& ends) { connect_manually(adapter, ends); });
  check_memory(128, 16 * kKiB, [](const Adapter& adapter, Ends& ends) { connect_manually(adapter, ends); });
}

TEST_CASE("idle memory: a queue pair connected by the manager", "[idle_memory]") {
  // Reads that are agreed on take memory once they are under way.
  for (const unsigned read_depth : {1U, 16U, unsigned{provider::kMaxReadDepth}}) {
    Manager manager(read_depth);
    const auto connect = [&](const Adapter&, Ends& ends) { manager.connect(ends); };
    check_memory(16, 8 * kKiB, connect);
    check_memory(128, 16 * kKiB, connect);
  }
}
