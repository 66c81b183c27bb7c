// SPDX-License-Identifier: MIT
// Memory windows over queue pairs: what works, and each errno and completion status of the manual pages and of the
// Verbs draft's sections 7.8 to 7.10.
#include <algorithm>
#include <cerrno>

#include "tests/unit/provider/memory/window_pair.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE_METHOD(WindowPair, "memory: a window of type 2 is bound, used, invalidated locally", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  CHECK(far.pd.in_use());
  const std::uint32_t rkey = ibv_inc_rkey(window.handle.rkey);
  REQUIRE(post_bind2(far, 10, window, rkey, all()) == 0);
  ibv_wc done = next(*far.send_cq);
  CHECK(done.status == IBV_WC_SUCCESS);
  CHECK(done.opcode == IBV_WC_BIND_MW);
  CHECK(done.wr_id == 10);
  CHECK(write(rkey, target.address()) == IBV_WC_SUCCESS);
  CHECK(target == own);
  CHECK(target.mr->prepare_destroy() == EBUSY);
  REQUIRE(post_invalidate(far, 11, rkey) == 0);
  done = next(*far.send_cq);
  CHECK(done.status == IBV_WC_SUCCESS);
  CHECK(done.opcode == IBV_WC_LOCAL_INV);
  CHECK(write(rkey, target.address()) != IBV_WC_SUCCESS);
  CHECK(target.mr->prepare_destroy() == 0);
}

TEST_CASE_METHOD(WindowPair,
                 "memory: of the rkey for a bind only the key counts, and the window has its new rkey at once",
                 "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  const std::uint32_t index = window.handle.rkey & ~0xFFU;
  const std::uint32_t asked = GENERATE(1024U, 0x5AU, 0xFFFFFFFFU, 0xDEADBEEFU);
  REQUIRE(post_bind2(far, 10, window, asked, all()) == 0);
  CHECK(window.handle.rkey == (index | (asked & 0xFF)));
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(write(window.handle.rkey, target.address()) == IBV_WC_SUCCESS);
  CHECK(target == own);
}

TEST_CASE_METHOD(WindowPair, "memory: a bind that ibv_post_send refuses leaves the rkey as it was", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  const std::uint32_t before = window.handle.rkey;
  CHECK(post_bind2(far, 10, window, ibv_inc_rkey(before), all(1U << 12)) == EINVAL);
  CHECK(window.handle.rkey == before);
}

TEST_CASE_METHOD(WindowPair, "memory: a window of type 1 is bound and bound again; length 0 ends it", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_1);
  const std::uint32_t before = window.handle.rkey;
  REQUIRE(bind1(far, 10, window, all()) == 0);
  const std::uint32_t first = window.handle.rkey;
  CHECK(first != before);  // at once
  CHECK(next(*far.send_cq).opcode == IBV_WC_BIND_MW);
  CHECK(write(first, target.address()) == IBV_WC_SUCCESS);
  CHECK(target == own);
  // To another part of it, zero-based.
  std::fill(target.begin(), target.end(), std::byte{0});
  REQUIRE(bind1(far, 11, window,
                info_of(&target_handle, target.address() + 500, 100, kRemote | IBV_ACCESS_ZERO_BASED)) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(write(window.handle.rkey, 0, 100) == IBV_WC_SUCCESS);
  CHECK(std::equal(own.begin(), own.begin() + 100, target.begin() + 500));
  CHECK(target[600] == std::byte{0});
  CHECK_FALSE(found(first));
  CHECK(target.mr->prepare_destroy() == EBUSY);
  REQUIRE(bind1(far, 12, window, {}) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(write(window.handle.rkey, 0, 100) != IBV_WC_SUCCESS);
  CHECK(target.mr->prepare_destroy() == 0);
}

TEST_CASE_METHOD(WindowPair, "memory: Send with Invalidate of a window of its stream", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  REQUIRE(post_bind2(far, 1, window, rkey, all()) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  REQUIRE(far.post_receive(7, {}) == 0);
  REQUIRE(near.post(IBV_WR_SEND_WITH_INV, 2, {}, 0, rkey) == 0);
  const ibv_wc received = next(*far.receive_cq);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.wc_flags == IBV_WC_WITH_INV);
  CHECK(received.invalidated_rkey == rkey);
  CHECK_FALSE(found(rkey));
  // Bound again, with another key, by the same window.
  REQUIRE(post_bind2(far, 3, window, ibv_inc_rkey(rkey), all()) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);  // the Send
  CHECK(write(ibv_inc_rkey(rkey), target.address()) == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(WindowPair,
                 "memory: what a peer may not invalidate (RFC 5040 section 7.2, Verbs draft 7.8 and 7.10.6.3)",
                 "[memory]") {
  Side third(*context);
  Window window(far.pd, IBV_MW_TYPE_2), first(far.pd, IBV_MW_TYPE_1), foreign(third.pd, IBV_MW_TYPE_2);
  std::uint32_t rkey = 0;
  SECTION("a region of its own domain") { rkey = target.key(); }
  SECTION("a region with a window bound to it") {
    rkey = target.key();
    REQUIRE(post_bind2(far, 1, window, window.handle.rkey, all()) == 0);
    next(*far.send_cq);
  }
  SECTION("a window of type 1") {
    REQUIRE(bind1(far, 1, first, all()) == 0);
    next(*far.send_cq);
    rkey = first.handle.rkey;
  }
  SECTION("a window of another domain") { rkey = foreign.handle.rkey; }
  SECTION("an STag that is none") { rkey = window.handle.rkey ^ 0x5A5A5A00; }
  SECTION("a bound window under another key") {
    REQUIRE(post_bind2(far, 1, window, window.handle.rkey, all()) == 0);
    next(*far.send_cq);
    rkey = ibv_inc_rkey(window.handle.rkey);
  }
  REQUIRE(far.post_receive(7, {}) == 0);
  REQUIRE(near.post(IBV_WR_SEND_WITH_INV, 2, {}, 0, rkey) == 0);
  CHECK(next(*far.receive_cq).status != IBV_WC_SUCCESS);
  const auto event = next_event(*context);
  REQUIRE(event);
  CHECK(far.enters_error());  // the event may be that of the other end
  CHECK(found(target.key()));
}

namespace {

// The bind with wr_id 9 fails, and ends the stream.
void check_bind_failed(WindowPair& it) {
  const ibv_wc wrong = next(*it.far.send_cq);
  CHECK(wrong.wr_id == 9);
  CHECK(wrong.status == IBV_WC_MW_BIND_ERR);
  CHECK(it.far.qp->state() == IBV_QPS_ERR);
  REQUIRE(it.far.post(IBV_WR_SEND, 10, {}) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  // The stream is over for the peer too.
  CHECK(eventually([&] { return it.near.qp->state() == IBV_QPS_ERR; }));
}

}  // namespace

TEST_CASE_METHOD(WindowPair, "memory: each error of a bind is IBV_WC_MW_BIND_ERR (Verbs draft 7.10.6.1, figure 23)",
                 "[memory]") {
  Side third(*context);
  Window window(far.pd, IBV_MW_TYPE_2), foreign(third.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  const std::uint64_t base = target.address();
  std::unique_ptr<Mr> mr;
  ibv_mr handle{};
  const auto registered = [&](Pd& pd, unsigned access) {
    mr = Mr::create(pd, target.data(), 1000, base, access);
    REQUIRE(mr);
    handle = handle_of(*mr);
    return info_of(&handle, base, 1000, kRemote);
  };
  int error = -1;
  bool second = false;
  SECTION("bound already") {
    REQUIRE(post_bind2(far, 1, window, rkey, all()) == 0);
    second = true;
    error = post_bind2(far, 9, window, ibv_inc_rkey(rkey), all());
  }
  SECTION("the region is no more") {
    ibv_mw_bind_info info = registered(far.pd, kBindable);
    mr.reset();
    error = post_bind2(far, 9, window, rkey, info);
  }
  SECTION("the region is of another domain") {
    error = post_bind2(far, 9, window, rkey, registered(third.pd, kBindable));
  }
  SECTION("the window is of another domain") { error = post_bind2(far, 9, foreign, foreign.handle.rkey, all()); }
  SECTION("the region does not allow windows") {
    error = post_bind2(far, 9, window, rkey, registered(far.pd, kLocal | kRemote));
  }
  SECTION("remote write without local write") {
    error = post_bind2(far, 9, window, rkey, registered(far.pd, IBV_ACCESS_MW_BIND));
  }
  SECTION("a zero-based region") {
    ibv_mw_bind_info info = registered(far.pd, kBindable | IBV_ACCESS_ZERO_BASED);
    info.addr = 0;
    error = post_bind2(far, 9, window, rkey, info);
  }
  SECTION("beyond the region") {
    error = post_bind2(far, 9, window, rkey, info_of(&target_handle, base + 1, 1000, kRemote));
  }
  SECTION("before the region") {
    error = post_bind2(far, 9, window, rkey, info_of(&target_handle, base - 1, 10, kRemote));
  }
  SECTION("a length that wraps around") {
    error = post_bind2(far, 9, window, rkey, info_of(&target_handle, base, ~std::uint64_t{0}, kRemote));
  }
  SECTION("no length") { error = post_bind2(far, 9, window, rkey, info_of(&target_handle, base, 0, kRemote)); }
  CHECK(error == 0);
  if (second) CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  check_bind_failed(*this);
}

TEST_CASE_METHOD(WindowPair, "memory: each error of a local invalidation (Verbs draft 7.8, 7.10.6.3)", "[memory]") {
  Side third(*context);
  Window window(far.pd, IBV_MW_TYPE_2), first(far.pd, IBV_MW_TYPE_1), foreign(third.pd, IBV_MW_TYPE_2);
  std::uint32_t rkey = 0;
  ibv_wc_status expected = IBV_WC_LOC_PROT_ERR;
  SECTION("a region") { rkey = target.key(); }
  SECTION("a window of another domain") { rkey = foreign.handle.rkey; }
  SECTION("a window of type 1") { rkey = first.handle.rkey; }
  SECTION("a window bound by another stream") {
    // Of the same domain, which takes a queue pair that shares
    const auto stag = static_cast<ddp::Stag>(window.handle.rkey);
    int somebody = 0;
    REQUIRE(provider::stag_table().bind({stag, static_cast<ddp::Stag>(target.key()), target.address(), 10,
                                         ddp::kRemoteRead, ddp::WindowType::type2, false},
                                        &far.pd, &somebody) == ddp::WindowError::none);
    rkey = window.handle.rkey;
  }
  SECTION("nothing: an operation error") {
    rkey = window.handle.rkey ^ 0x5A5A5A00;
    expected = IBV_WC_LOC_QP_OP_ERR;
  }
  SECTION("a window that was deallocated: an operation error") {
    rkey = window.handle.rkey;
    window.mw.reset();
    expected = IBV_WC_LOC_QP_OP_ERR;
  }
  SECTION("the STag of zero") { expected = IBV_WC_LOC_QP_OP_ERR; }
  REQUIRE(post_invalidate(far, 9, rkey) == 0);
  const ibv_wc wrong = next(*far.send_cq);
  CHECK(wrong.status == expected);
  CHECK(far.qp->state() == IBV_QPS_ERR);
  CHECK(near.enters_error());
}

TEST_CASE_METHOD(WindowPair, "memory: a window of type 2 without rights is bound, and each access through it fails",
                 "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(far, 1, window, window.handle.rkey, all(0)) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(target.mr->prepare_destroy() == EBUSY);
  ibv_sge sink = own.sge();
  sink.length = 8;
  SECTION("RDMA Write") { CHECK(write(window.handle.rkey, target.address()) != IBV_WC_SUCCESS); }
  SECTION("RDMA Read") {
    REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, window.handle.rkey, target.address()) == 0);
    CHECK(next(*near.send_cq).status == IBV_WC_REM_ACCESS_ERR);
  }
  CHECK(target == Bytes(1000));
}

TEST_CASE_METHOD(WindowPair, "memory: an access that the window does not allow (Verbs draft 7.10.6.2)", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  const std::uint64_t base = target.address();
  REQUIRE(post_bind2(far, 1, window, rkey, info_of(&target_handle, base + 100, 100, IBV_ACCESS_REMOTE_READ)) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  ibv_sge sink = own.sge();
  sink.length = 100;
  SECTION("what it does") {
    REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, rkey, base + 100) == 0);
    CHECK(next(*near.send_cq).status == IBV_WC_SUCCESS);
    CHECK(std::equal(own.begin(), own.begin() + 100, target.begin() + 100));
    return;
  }
  SECTION("below its base") { REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, rkey, base + 99) == 0); }
  SECTION("above its bounds") { REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, rkey, base + 101) == 0); }
  SECTION("another right") {
    CHECK(write(rkey, base + 100, 100) != IBV_WC_SUCCESS);
    return;
  }
  SECTION("an atomic operation") {
    sink.length = 8;
    REQUIRE(near.post_atomic(0, sink, rkey, (base + 107) & ~std::uint64_t{7}, 0) == 0);
  }
  CHECK(next(*near.send_cq).status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE_METHOD(WindowPair, "memory: the queue pair must allow it as well (Verbs draft 7.10.6.2, figure 21)",
                 "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(far, 1, window, window.handle.rkey, all()) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  REQUIRE(far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(write(window.handle.rkey, target.address()) == IBV_WC_SUCCESS);
  SECTION("RDMA Read") {
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    REQUIRE(far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(write(window.handle.rkey, target.address()) == IBV_WC_SUCCESS);  // and a Read of no octets
    REQUIRE(near.post(IBV_WR_RDMA_READ, 1, {own.sge()}, 0, window.handle.rkey, target.address()) == 0);
    CHECK(next(*near.send_cq).status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("RDMA Write") {
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    REQUIRE(far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(write(window.handle.rkey, target.address()) != IBV_WC_SUCCESS);
  }
}

TEST_CASE_METHOD(WindowPair, "memory: qp_access_flags without IBV_ACCESS_MW_BIND do not forbid a bind", "[memory]") {
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;  // what librdmacm sets, at most
  REQUIRE(far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
  const ibv_mw_type type = GENERATE(IBV_MW_TYPE_1, IBV_MW_TYPE_2);
  Window window(far.pd, type);
  if (type == IBV_MW_TYPE_1) {
    REQUIRE(bind1(far, 1, window, all()) == 0);
  } else {
    REQUIRE(post_bind2(far, 1, window, window.handle.rkey, all()) == 0);
  }
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(write(window.handle.rkey, target.address()) == IBV_WC_SUCCESS);
  CHECK(target == own);
}

TEST_CASE_METHOD(WindowPair, "memory: another stream of the domain cannot use a window of type 2, nor invalidate it",
                 "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  // A second queue pair in the first one's domain.
  Side peer(*context), beside(*context);
  beside.make_qp(far.pd, *beside.receive_cq, {.depth = 4});
  attach(peer, beside);
  REQUIRE(post_bind2(far, 1, window, rkey, all()) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  const auto mr = peer.expose(own, kAll);
  SECTION("use it") {
    REQUIRE(peer.post(IBV_WR_RDMA_READ, 1, {sge_of(own, *mr)}, 0, rkey, target.address()) == 0);
    CHECK(next(*peer.send_cq).status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("invalidate it locally") {
    REQUIRE(post_invalidate(beside, 2, rkey) == 0);
    CHECK(next(*beside.send_cq).status == IBV_WC_LOC_PROT_ERR);
  }
  SECTION("invalidate it from afar") {
    REQUIRE(beside.post_receive(3, {}) == 0);
    REQUIRE(peer.post(IBV_WR_SEND_WITH_INV, 4, {}, 0, rkey) == 0);
    CHECK(next(*beside.receive_cq).status != IBV_WC_SUCCESS);
  }
  CHECK(found(rkey));
  CHECK(write(rkey, target.address()) == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(WindowPair, "memory: windows end with their queue pair, and with their own deallocation", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(far, 1, window, window.handle.rkey, all()) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(target.mr->prepare_destroy() == EBUSY);
  SECTION("destroyed") { far.qp.reset(); }
  SECTION("reset") { CHECK(far.to(IBV_QPS_RESET) == 0); }
  SECTION("deallocated") { window.mw.reset(); }
  CHECK_FALSE(found(window.handle.rkey));
  CHECK(target.mr->prepare_destroy() == 0);
}

TEST_CASE_METHOD(WindowPair, "memory: errno of posting a bind or an invalidation", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2), first(far.pd, IBV_MW_TYPE_1);
  const std::uint32_t rkey = window.handle.rkey;
  CHECK(post_bind2(far, 1, window, rkey, info_of(nullptr, 0, 0, 0)) == EINVAL);
  CHECK(post_bind2(far, 1, window, rkey, all(IBV_ACCESS_MW_BIND)) == EINVAL);
  CHECK(post_bind2(far, 1, first, first.handle.rkey, all()) == EINVAL);  // by ibv_bind_mw alone
  CHECK(bind1(far, 1, window, all()) == EINVAL);                         // by ibv_post_send alone
  const std::uint32_t before = first.handle.rkey;
  CHECK(bind1(far, 1, first, all(1U << 16)) == EINVAL);
  CHECK(bind1(far, 1, first, info_of(nullptr, 0, 5, 0)) == EINVAL);
  CHECK(first.handle.rkey == before);
  Side idle(*context);
  CHECK(post_invalidate(idle, 1, rkey) == EINVAL);
  REQUIRE(idle.to(IBV_QPS_INIT) == 0);
  REQUIRE(idle.to(IBV_QPS_ERR) == 0);
  REQUIRE(post_invalidate(idle, 1, rkey) == 0);
  CHECK(next(*idle.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  idle.to(IBV_QPS_RESET);
  idle.to_rts();
  REQUIRE(idle.post(IBV_WR_SEND, 0, {}) == 0);  // waits for a connection, and what is behind it does
  for (std::uint64_t i = 1; i < 16; ++i) REQUIRE(post_invalidate(idle, i, rkey) == 0);
  CHECK(post_invalidate(idle, 16, rkey) == ENOMEM);
  CHECK(none(*idle.send_cq));
  errno = 0;
  CHECK(Mw::create(far.pd, static_cast<ibv_mw_type>(3)) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE_METHOD(WindowPair, "memory: binds and invalidations in a batch (ibv_wr_start ... ibv_wr_complete)",
                 "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  ibv_send_wr bind{}, invalidate{};
  bind.wr_id = 1;
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw.mw = &window.handle;
  bind.bind_mw.rkey = ibv_inc_rkey(rkey);
  bind.bind_mw.bind_info = all();
  invalidate.wr_id = 2;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = ibv_inc_rkey(rkey);
  far.qp->begin_batch();
  far.qp->add(bind);
  far.qp->abort_batch();
  CHECK_FALSE(found(ibv_inc_rkey(rkey)));
  far.qp->begin_batch();
  far.qp->add(bind);
  far.qp->add(invalidate);
  bind.wr_id = 3;
  bind.bind_mw.rkey = rkey;
  far.qp->add(bind);
  CHECK(far.qp->end_batch() == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) check_next(*far.send_cq, id);
  CHECK(write(rkey, target.address()) == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(WindowPair, "memory: a window is no lkey", "[memory]") {
  Window window(far.pd, IBV_MW_TYPE_1);
  REQUIRE(bind1(far, 1, window, all()) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  const ibv_sge sge{target.address(), 1000, window.handle.rkey};
  REQUIRE(far.post_receive(1, {sge}) == 0);
  REQUIRE(near.post(IBV_WR_SEND, 2, {own.sge()}) == 0);
  CHECK(next(*far.receive_cq).status == IBV_WC_LOC_PROT_ERR);
  WindowPair again;
  REQUIRE(again.far.post(IBV_WR_SEND, 2, {sge}) == 0);
  CHECK(next(*again.far.send_cq).status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE_METHOD(WindowPair, "memory: atomic operations through a window", "[memory]") {
  alignas(8) static std::uint64_t counter;
  counter = 40;
  const auto mr = Mr::create(far.pd, &counter, 8, 0x1000, kBindable);
  ibv_mr handle = handle_of(*mr);
  Window window(far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(far, 1, window, window.handle.rkey, info_of(&handle, 0x1000, 8, IBV_ACCESS_REMOTE_ATOMIC)) == 0);
  CHECK(next(*far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(fetch_add(window.handle.rkey, 0x1000, 2) == IBV_WC_SUCCESS);
  CHECK(counter == 42);
}

TEST_CASE("memory: a window invalidated while the peer writes through it", "[memory]") {
  // Once the invalidation has completed, the octets stand still, whatever is under way.
  for (int round = 0; round < 20; ++round) {
    ConnectedPair pair;
    Side &near = pair.a, &far = pair.b;
    const Registered source(near, Bytes(200'000, std::byte{1}), kAll);
    Registered target(far, Bytes(200'000), kBindable);
    ibv_mr handle = handle_of(*target.mr);
    Window window(far.pd, IBV_MW_TYPE_2);
    const std::uint32_t rkey = window.handle.rkey;
    REQUIRE(post_bind2(far, 1, window, rkey, info_of(&handle, target.address(), target.size(), kRemote)) == 0);
    REQUIRE(next(*far.send_cq).status == IBV_WC_SUCCESS);
    for (std::uint64_t i = 0; i < 10; ++i) {
      REQUIRE(near.post(IBV_WR_RDMA_WRITE, i, {source.sge()}, 0, rkey, target.address()) == 0);
    }
    REQUIRE(eventually([&] { return std::atomic_ref(reinterpret_cast<unsigned char&>(target[0])).load() == 1; }));
    REQUIRE(post_invalidate(far, 2, rkey) == 0);
    REQUIRE(next(*far.send_cq).status == IBV_WC_SUCCESS);
    std::memset(target.data(), 0, target.size());
    REQUIRE(near.post(IBV_WR_RDMA_WRITE, 20, {source.sge()}, 0, rkey, target.address()) == 0);
    REQUIRE(far.enters_error());
    CHECK(std::all_of(target.begin(), target.end(), [](std::byte octet) { return octet == std::byte{0}; }));
  }
}
