// SPDX-License-Identifier: MIT
// Work of queue pairs in the RoCE view, where it differs from that of an RNIC: what completes without a peer, with
// which status memory management fails, what UC loses, and how much a queue takes.
#include <cstring>
#include <vector>

#include "provider/process/limits.h"
#include "tests/unit/provider/memory/window_pair.h"

namespace uiw::test {

namespace {

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kReliableRtr = kRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kReliableRts = kRts | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

// A queue pair that the program connects by hand.
struct End : Side {
  explicit End(Context& in, ibv_qp_type of_type = IBV_QPT_RC) : Side(in), type(of_type) {
    if (type != IBV_QPT_RC) {
      ibv_qp_init_attr attributes = attributes_of(type);
      qp = Qp::create(in, pd, send_cq.get(), receive_cq.get(), attributes, handle());
      REQUIRE(qp);
    }
  }
  void go_to(ibv_qp_state state, int mask, std::uint32_t peer = 0) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    attributes.qp_access_flags = kRemote;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.timeout = 14;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 2;
    attributes.dest_qp_num = peer;
    attributes.ah_attr.is_global = attributes.ah_attr.port_num = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, context.device().gids[0].data(), sizeof(ibv_gid));
    REQUIRE(qp->modify(attributes, mask) == 0);
  }
  void to_rtr(const Side& peer) {
    go_to(IBV_QPS_INIT, kInit);
    go_to(IBV_QPS_RTR, type == IBV_QPT_RC ? kReliableRtr : kRtr, peer.qp->number());
  }
  void to_rts() { go_to(IBV_QPS_RTS, type == IBV_QPT_RC ? kReliableRts : kRts); }

  const ibv_qp_type type;
};

void connect(End& a, End& b) {
  a.to_rtr(b);
  b.to_rtr(a);
  a.to_rts();
  b.to_rts();
}

}  // namespace

TEST_CASE_METHOD(Loopback,
                 "Local work completes before the peer has connected, and work of the network behind it waits") {
  End a(*context), b(*context);
  Registered memory(a, Bytes(1000), kBindable);
  ibv_mr handle = handle_of(*memory.mr);
  Window window(a.pd, IBV_MW_TYPE_2), first(a.pd, IBV_MW_TYPE_1);
  a.to_rtr(b);
  a.to_rts();
  const ibv_mw_bind_info all = info_of(&handle, memory.address(), 1000, kRemote);
  REQUIRE(post_bind2(a, 1, window, ibv_inc_rkey(window.handle.rkey), all) == 0);
  const ibv_wc bound = next(*a.send_cq);
  CHECK((bound.status == IBV_WC_SUCCESS && bound.wr_id == 1 && bound.opcode == IBV_WC_BIND_MW));
  REQUIRE(bind1(a, 2, first, all) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  REQUIRE(a.post(IBV_WR_SEND, 3, {}) == 0);
  REQUIRE(post_invalidate(a, 4, window.handle.rkey) == 0);
  CHECK(none(*a.send_cq));
  b.to_rtr(a);
  REQUIRE(b.post_receive(5, {}) == 0);
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  for (const std::uint64_t id : {3U, 4U}) {
    const ibv_wc done = next(*a.send_cq);
    CHECK((done.status == IBV_WC_SUCCESS && done.wr_id == id));
  }
}

TEST_CASE_METHOD(Loopback, "Local work that fails before the peer has connected takes the queue pair to ERR") {
  End a(*context), b(*context);
  Window window(a.pd, IBV_MW_TYPE_2);
  a.to_rtr(b);
  a.to_rts();
  REQUIRE(a.post_receive(9, {}) == 0);
  ibv_mr foreign{};
  REQUIRE(post_bind2(a, 1, window, window.handle.rkey, info_of(&foreign, 0, 10, kRemote)) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_MW_BIND_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(a.qp->state() == IBV_QPS_ERR);
  REQUIRE(post_bind2(a, 2, window, window.handle.rkey, info_of(&foreign, 0, 10, kRemote)) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE_METHOD(Loopback, "Local work completes after the peer has left, too") {
  End a(*context);
  Registered memory(a, Bytes(1000), kBindable);
  ibv_mr handle = handle_of(*memory.mr);
  Window window(a.pd, IBV_MW_TYPE_2);
  {
    End b(*context);
    connect(a, b);
    REQUIRE(b.post_receive(1, {}) == 0);
    REQUIRE(a.post(IBV_WR_SEND, 2, {}) == 0);
    CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
    CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  }
  for (std::uint64_t id = 3; id < 6; ++id) {
    REQUIRE(post_bind2(a, id, window, ibv_inc_rkey(window.handle.rkey),
                       info_of(&handle, memory.address(), 1000, kRemote)) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(post_invalidate(a, id, window.handle.rkey) == 0);
    CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  }
  CHECK(a.qp->state() == IBV_QPS_RTS);
}

TEST_CASE_METHOD(Loopback, "A Local Invalidate that is refused is an error of memory management (IBV_WC_MW_BIND_ERR)") {
  End a(*context), b(*context);
  Registered memory(b, Bytes(1000), kBindable);
  ibv_mr handle = handle_of(*memory.mr);
  Window window(a.pd, IBV_MW_TYPE_2), gone(b.pd, IBV_MW_TYPE_2);
  connect(a, b);
  std::uint32_t rkey = 0;
  SECTION("a region") { rkey = memory.key(); }
  SECTION("a window of another domain") { rkey = window.handle.rkey; }
  SECTION("a window that was deallocated") {
    rkey = gone.handle.rkey;
    gone.mw.reset();
  }
  SECTION("another key than that of the bind") {
    REQUIRE(post_bind2(b, 1, gone, gone.handle.rkey, info_of(&handle, memory.address(), 10, kRemote)) == 0);
    CHECK(next(*b.send_cq).status == IBV_WC_SUCCESS);
    rkey = ibv_inc_rkey(gone.handle.rkey);
  }
  REQUIRE(post_invalidate(b, 2, rkey) == 0);
  CHECK(next(*b.send_cq).status == IBV_WC_MW_BIND_ERR);
  CHECK(b.qp->state() == IBV_QPS_ERR);
}

TEST_CASE_METHOD(Loopback, "UC loses a message that meets no receive, and what is behind it lands") {
  End a(*context, IBV_QPT_UC), b(*context, IBV_QPT_UC);
  connect(a, b);
  Registered lost(a, pattern(100'000, 3)), kept(a, pattern(64, 5));
  Registered target(b, Bytes(100'000), kAll), inbox(b, Bytes(100'000), kLocal);
  const auto opcode = GENERATE(IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
  REQUIRE(a.post(opcode, 1, {lost.sge()}, target) == 0);
  REQUIRE(a.post(IBV_WR_RDMA_WRITE, 2, {kept.sge()}, target) == 0);
  for (const std::uint64_t id : {1U, 2U}) {
    const ibv_wc done = next(*a.send_cq);
    CHECK((done.status == IBV_WC_SUCCESS && done.wr_id == id));
  }
  // Other threads place it; the memory of the target is looked at one octet at a time.
  const volatile std::byte* const last = &target[kept.size() - 1];
  CHECK(eventually([&] {
    none(*b.receive_cq);
    return *last == kept.back();
  }));
  // What is posted now gets the next message, not the lost one.
  REQUIRE(b.post_receive(3, {inbox.sge()}) == 0);
  CHECK(none(*b.receive_cq));
  REQUIRE(a.post(IBV_WR_SEND, 4, {kept.sge()}) == 0);
  const ibv_wc came = next(*b.receive_cq);
  CHECK((came.status == IBV_WC_SUCCESS && came.wr_id == 3 && came.byte_len == kept.size()));
  CHECK(std::equal(kept.begin(), kept.end(), inbox.begin()));
  CHECK((a.qp->state() == IBV_QPS_RTS && b.qp->state() == IBV_QPS_RTS));
}

TEST_CASE_METHOD(Loopback, "The queues of a queue pair have the sizes that rxe makes of what is asked for") {
  for (const auto& [asked, granted] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 0},
                                                            {1, 1},
                                                            {2, 3},
                                                            {16, 31},
                                                            {31, 31},
                                                            {100, 127},
                                                            {128, 255},
                                                            {provider::kMaxQpWr, provider::kMaxQpWr}}) {
    Side side(*context, {.depth = asked});
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    side.qp->query(now, init);
    CHECK((now.cap.max_send_wr == granted && now.cap.max_recv_wr == granted));
    CHECK((init.cap.max_send_wr == granted && init.cap.max_recv_wr == granted));
    if (granted == 0 || granted > 1000) continue;
    End full(*context);
    full.qp.reset();
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {asked, asked, 1, 1, 0};
    full.qp = Qp::create(*context, full.pd, full.send_cq.get(), full.receive_cq.get(), attributes, full.handle());
    REQUIRE(full.qp);
    CHECK(attributes.cap.max_send_wr == granted);
    full.to_rtr(full);
    full.to_rts();
    for (std::uint32_t i = 0; i < granted; ++i) CHECK(full.post_receive(i, {}) == 0);
    CHECK(full.post_receive(granted, {}) == ENOMEM);
  }
}

}  // namespace uiw::test
