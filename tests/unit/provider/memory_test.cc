// SPDX-License-Identifier: MIT
// Memory regions of every kind, memory windows over queue pairs, device memory: what works, and each errno and
// completion status of the manual pages and of the Verbs draft's sections 7.8 to 7.10.
#include "provider/memory.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "provider/limits.h"
#include "tests/unit/provider/rnic.h"

using namespace uiw;
using namespace uiw::test;
using provider::Dm;
using provider::Mw;

namespace {

constexpr std::size_t kPage = 4096;
constexpr unsigned kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr unsigned kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr unsigned kAll = kLocal | kRemote | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kBindable = kLocal | IBV_ACCESS_MW_BIND;

struct Pages {
  std::byte* memory;
  std::size_t size;
  explicit Pages(std::size_t count, int protection = PROT_READ | PROT_WRITE) : size(count * kPage) {
    void* mapped = ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    memory = static_cast<std::byte*>(mapped);
  }
  ~Pages() { ::munmap(memory, size); }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(memory); }
};

ddp::Region region(const Mr& mr) {
  const auto found = provider::stag_table().region(static_cast<ddp::Stag>(mr.key()));
  REQUIRE(found);
  return *found;
}
bool found(std::uint32_t key) { return provider::stag_table().region(static_cast<ddp::Stag>(key)).has_value(); }

// An ibv_mr and an ibv_mw as libibverbs has them, of which queue pairs read the keys.
ibv_mr handle_of(const Mr& mr) {
  ibv_mr handle{};
  handle.lkey = handle.rkey = mr.key();
  return handle;
}
struct Window {
  std::unique_ptr<Mw> mw;
  ibv_mw handle{};
  Window(Pd& pd, ibv_mw_type type) : mw(Mw::create(pd, type)) {
    REQUIRE(mw);
    handle.rkey = mw->key();
    handle.type = type;
  }
};

ibv_mw_bind_info info_of(ibv_mr* mr, std::uint64_t address, std::uint64_t length, unsigned access) {
  return {mr, address, length, access};
}

int post_bind2(Side& side, std::uint64_t id, Window& window, std::uint32_t rkey, const ibv_mw_bind_info& info,
               unsigned flags = 0) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = flags;
  request.bind_mw.mw = &window.handle;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = info;
  ibv_send_wr* bad = nullptr;
  return side.qp->post_send(&request, &bad);
}
int post_invalidate(Side& side, std::uint64_t id, std::uint32_t rkey, unsigned flags = 0) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_LOCAL_INV;
  request.send_flags = flags;
  request.invalidate_rkey = rkey;
  ibv_send_wr* bad = nullptr;
  return side.qp->post_send(&request, &bad);
}
int bind1(Side& side, std::uint64_t id, Window& window, const ibv_mw_bind_info& info) {
  ibv_mw_bind bind{};
  bind.wr_id = id;
  bind.bind_info = info;
  return side.qp->post_bind(window.handle, bind);
}

// Two connected queue pairs; `far` has memory to bind windows to, `near` uses them.
struct Connected {
  std::unique_ptr<Context> context = open_loopback();
  Side near{*context}, far{*context};
  Bytes own = pattern(1000), target = Bytes(1000);
  std::unique_ptr<Mr> own_mr = near.expose(own, kAll);
  std::unique_ptr<Mr> target_mr = far.expose(target, kBindable);
  ibv_mr handle = handle_of(*target_mr);
  Connected() { attach(near, far); }

  ibv_mw_bind_info all(unsigned access = kRemote) { return info_of(&handle, address_of(target), 1000, access); }
  // A Read of one octet behind it tells that the Write was placed.
  ibv_wc_status write(std::uint32_t rkey, std::uint64_t to, std::uint32_t size = 1000) {
    ibv_sge sge = sge_of(own, *own_mr);
    sge.length = size;
    if (near.post(IBV_WR_RDMA_WRITE, 1, {sge}, 0, rkey, to) != 0) return IBV_WC_GENERAL_ERR;
    if (near.post(IBV_WR_RDMA_READ, 2, {}, 0, 0, 0) != 0) return IBV_WC_GENERAL_ERR;
    const ibv_wc first = next(*near.send_cq), second = next(*near.send_cq);
    return first.status != IBV_WC_SUCCESS ? first.status : second.status;
  }
};

}  // namespace

// ---- Windows -----------------------------------------------------------------------------------------------------

TEST_CASE("memory: what the device says", "[memory]") {
  const auto context = open_loopback();
  ibv_device_attr_ex device{};
  context->query_device(device);
  CHECK(device.orig_attr.max_mw == provider::kMaxMw);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A) == 0);
  CHECK(device.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
  CHECK((device.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC) != 0);
  CHECK(device.odp_caps.per_transport_caps.ud_odp_caps == 0);
  CHECK(device.max_dm_size == provider::kMaxDmSize);
}

TEST_CASE("memory: a window of type 2 is bound, used, invalidated locally", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  CHECK(it.far.pd.in_use());
  const std::uint32_t rkey = ibv_inc_rkey(window.handle.rkey);
  REQUIRE(post_bind2(it.far, 10, window, rkey, it.all()) == 0);
  ibv_wc done = next(*it.far.send_cq);
  CHECK(done.status == IBV_WC_SUCCESS);
  CHECK(done.opcode == IBV_WC_BIND_MW);
  CHECK(done.wr_id == 10);
  CHECK(it.write(rkey, address_of(it.target)) == IBV_WC_SUCCESS);
  CHECK(it.target == it.own);
  CHECK(it.target_mr->prepare_destroy() == EBUSY);
  REQUIRE(post_invalidate(it.far, 11, rkey) == 0);
  done = next(*it.far.send_cq);
  CHECK(done.status == IBV_WC_SUCCESS);
  CHECK(done.opcode == IBV_WC_LOCAL_INV);
  CHECK(it.write(rkey, address_of(it.target)) != IBV_WC_SUCCESS);
  CHECK(it.target_mr->prepare_destroy() == 0);
}

TEST_CASE("memory: a window of type 1 is bound and bound again; length 0 ends it", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_1);
  const std::uint32_t before = window.handle.rkey;
  REQUIRE(bind1(it.far, 10, window, it.all()) == 0);
  const std::uint32_t first = window.handle.rkey;
  CHECK(first != before);  // at once
  CHECK(next(*it.far.send_cq).opcode == IBV_WC_BIND_MW);
  CHECK(it.write(first, address_of(it.target)) == IBV_WC_SUCCESS);
  CHECK(it.target == it.own);
  // To another part of it, zero-based.
  std::fill(it.target.begin(), it.target.end(), std::byte{0});
  REQUIRE(bind1(it.far, 11, window,
                info_of(&it.handle, address_of(it.target) + 500, 100, kRemote | IBV_ACCESS_ZERO_BASED)) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(it.write(window.handle.rkey, 0, 100) == IBV_WC_SUCCESS);
  CHECK(std::equal(it.own.begin(), it.own.begin() + 100, it.target.begin() + 500));
  CHECK(it.target[600] == std::byte{0});
  CHECK_FALSE(found(first));
  CHECK(it.target_mr->prepare_destroy() == EBUSY);
  REQUIRE(bind1(it.far, 12, window, {}) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(it.write(window.handle.rkey, 0, 100) != IBV_WC_SUCCESS);
  CHECK(it.target_mr->prepare_destroy() == 0);
}

TEST_CASE("memory: Send with Invalidate of a window of its stream", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  REQUIRE(post_bind2(it.far, 1, window, rkey, it.all()) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  REQUIRE(it.far.post_receive(7, {}) == 0);
  REQUIRE(it.near.post(IBV_WR_SEND_WITH_INV, 2, {}, 0, rkey) == 0);
  const ibv_wc received = next(*it.far.receive_cq);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.wc_flags == IBV_WC_WITH_INV);
  CHECK(received.invalidated_rkey == rkey);
  CHECK_FALSE(found(rkey));
  // Bound again, with another key, by the same window.
  REQUIRE(post_bind2(it.far, 3, window, ibv_inc_rkey(rkey), it.all()) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);  // the Send
  CHECK(it.write(ibv_inc_rkey(rkey), address_of(it.target)) == IBV_WC_SUCCESS);
}

TEST_CASE("memory: what a peer may not invalidate (RFC 5040 section 7.2, Verbs draft 7.8 and 7.10.6.3)", "[memory]") {
  Connected it;
  Side third(*it.context);
  Window window(it.far.pd, IBV_MW_TYPE_2), first(it.far.pd, IBV_MW_TYPE_1), foreign(third.pd, IBV_MW_TYPE_2);
  std::uint32_t rkey = 0;
  SECTION("a region of its own domain") { rkey = it.target_mr->key(); }
  SECTION("a region with a window bound to it") {
    rkey = it.target_mr->key();
    REQUIRE(post_bind2(it.far, 1, window, window.handle.rkey, it.all()) == 0);
    next(*it.far.send_cq);
  }
  SECTION("a window of type 1") {
    REQUIRE(bind1(it.far, 1, first, it.all()) == 0);
    next(*it.far.send_cq);
    rkey = first.handle.rkey;
  }
  SECTION("a window of another domain") { rkey = foreign.handle.rkey; }
  SECTION("an STag that is none") { rkey = window.handle.rkey ^ 0x5A5A5A00; }
  SECTION("a bound window under another key") {
    REQUIRE(post_bind2(it.far, 1, window, window.handle.rkey, it.all()) == 0);
    next(*it.far.send_cq);
    rkey = ibv_inc_rkey(window.handle.rkey);
  }
  REQUIRE(it.far.post_receive(7, {}) == 0);
  REQUIRE(it.near.post(IBV_WR_SEND_WITH_INV, 2, {}, 0, rkey) == 0);
  CHECK(next(*it.far.receive_cq).status != IBV_WC_SUCCESS);
  const auto event = next_event(*it.context);
  REQUIRE(event);
  CHECK(it.far.qp->state() == IBV_QPS_ERR);
  CHECK(found(it.target_mr->key()));
}

TEST_CASE("memory: each error of a bind is IBV_WC_MW_BIND_ERR (Verbs draft 7.10.6.1, figure 23)", "[memory]") {
  Connected it;
  Side third(*it.context);
  Window window(it.far.pd, IBV_MW_TYPE_2), other(it.far.pd, IBV_MW_TYPE_2), foreign(third.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  const std::uint64_t base = address_of(it.target);
  std::unique_ptr<Mr> mr;
  ibv_mr handle{};
  const auto registered = [&](Pd& pd, unsigned access) {
    mr = Mr::create(pd, it.target.data(), 1000, base, access);
    REQUIRE(mr);
    handle = handle_of(*mr);
    return info_of(&handle, base, 1000, kRemote);
  };
  int error = -1;
  bool second = false;
  SECTION("bound already") {
    REQUIRE(post_bind2(it.far, 1, window, rkey, it.all()) == 0);
    second = true;
    error = post_bind2(it.far, 9, window, ibv_inc_rkey(rkey), it.all());
  }
  SECTION("the rkey is of another window") { error = post_bind2(it.far, 9, window, other.handle.rkey, it.all()); }
  SECTION("the region is no more") {
    ibv_mw_bind_info info = registered(it.far.pd, kBindable);
    mr.reset();
    error = post_bind2(it.far, 9, window, rkey, info);
  }
  SECTION("the region is of another domain") {
    error = post_bind2(it.far, 9, window, rkey, registered(third.pd, kBindable));
  }
  SECTION("the window is of another domain") {
    error = post_bind2(it.far, 9, foreign, foreign.handle.rkey, it.all());
  }
  SECTION("the region does not allow windows") {
    error = post_bind2(it.far, 9, window, rkey, registered(it.far.pd, kLocal | kRemote));
  }
  SECTION("remote write without local write") {
    error = post_bind2(it.far, 9, window, rkey, registered(it.far.pd, IBV_ACCESS_MW_BIND));
  }
  SECTION("no rights at all") { error = post_bind2(it.far, 9, window, rkey, it.all(0)); }
  SECTION("a zero-based region") {
    ibv_mw_bind_info info = registered(it.far.pd, kBindable | IBV_ACCESS_ZERO_BASED);
    info.addr = 0;
    error = post_bind2(it.far, 9, window, rkey, info);
  }
  SECTION("beyond the region") {
    error = post_bind2(it.far, 9, window, rkey, info_of(&it.handle, base + 1, 1000, kRemote));
  }
  SECTION("before the region") {
    error = post_bind2(it.far, 9, window, rkey, info_of(&it.handle, base - 1, 10, kRemote));
  }
  SECTION("a length that wraps around") {
    error = post_bind2(it.far, 9, window, rkey, info_of(&it.handle, base, ~std::uint64_t{0}, kRemote));
  }
  SECTION("no length") { error = post_bind2(it.far, 9, window, rkey, info_of(&it.handle, base, 0, kRemote)); }
  CHECK(error == 0);
  if (second) CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  const ibv_wc wrong = next(*it.far.send_cq);
  CHECK(wrong.wr_id == 9);
  CHECK(wrong.status == IBV_WC_MW_BIND_ERR);
  CHECK(it.far.qp->state() == IBV_QPS_ERR);
  REQUIRE(it.far.post(IBV_WR_SEND, 10, {}) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  // The stream is over for the peer too.
  CHECK(eventually([&] { return it.near.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("memory: each error of a local invalidation (Verbs draft 7.8, 7.10.6.3)", "[memory]") {
  Connected it;
  Side third(*it.context);
  Window window(it.far.pd, IBV_MW_TYPE_2), first(it.far.pd, IBV_MW_TYPE_1), foreign(third.pd, IBV_MW_TYPE_2);
  std::uint32_t rkey = 0;
  ibv_wc_status expected = IBV_WC_LOC_PROT_ERR;
  SECTION("a region") { rkey = it.target_mr->key(); }
  SECTION("a window of another domain") { rkey = foreign.handle.rkey; }
  SECTION("a window of type 1") { rkey = first.handle.rkey; }
  SECTION("a window bound by another stream") {
    // Of the same domain, which takes a queue pair that shares it.
    const auto stag = static_cast<ddp::Stag>(window.handle.rkey);
    int somebody = 0;
    REQUIRE(provider::stag_table().bind({stag, static_cast<ddp::Stag>(it.target_mr->key()), address_of(it.target), 10,
                                         ddp::kRemoteRead, ddp::WindowType::type2, false},
                                        &it.far.pd, &somebody) == ddp::WindowError::none);
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
  SECTION("the STag of zero") {
    expected = IBV_WC_LOC_QP_OP_ERR;
  }
  REQUIRE(post_invalidate(it.far, 9, rkey) == 0);
  const ibv_wc wrong = next(*it.far.send_cq);
  CHECK(wrong.status == expected);
  CHECK(it.far.qp->state() == IBV_QPS_ERR);
  CHECK(eventually([&] { return it.near.qp->state() == IBV_QPS_ERR; }));
}

TEST_CASE("memory: an access that the window does not allow (Verbs draft 7.10.6.2)", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  const std::uint64_t base = address_of(it.target);
  REQUIRE(post_bind2(it.far, 1, window, rkey, info_of(&it.handle, base + 100, 100, IBV_ACCESS_REMOTE_READ)) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  ibv_sge sink = sge_of(it.own, *it.own_mr);
  sink.length = 100;
  SECTION("what it does") {
    REQUIRE(it.near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, rkey, base + 100) == 0);
    CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
    CHECK(std::equal(it.own.begin(), it.own.begin() + 100, it.target.begin() + 100));
    return;
  }
  SECTION("below its base") { REQUIRE(it.near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, rkey, base + 99) == 0); }
  SECTION("above its bounds") { REQUIRE(it.near.post(IBV_WR_RDMA_READ, 1, {sink}, 0, rkey, base + 101) == 0); }
  SECTION("another right") {
    CHECK(it.write(rkey, base + 100, 100) != IBV_WC_SUCCESS);
    return;
  }
  SECTION("an atomic operation") {
    sink.length = 8;
    ibv_send_wr request{};
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.sg_list = &sink;
    request.num_sge = 1;
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.remote_addr = (base + 107) & ~std::uint64_t{7};
    ibv_send_wr* bad = nullptr;
    REQUIRE(it.near.qp->post_send(&request, &bad) == 0);
  }
  CHECK(next(*it.near.send_cq).status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("memory: the queue pair must allow it as well (Verbs draft 7.10.6.2, figure 21)", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(it.far, 1, window, window.handle.rkey, it.all()) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  REQUIRE(it.far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(it.write(window.handle.rkey, address_of(it.target)) == IBV_WC_SUCCESS);
  SECTION("RDMA Read") {
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    REQUIRE(it.far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(it.write(window.handle.rkey, address_of(it.target)) == IBV_WC_SUCCESS);  // and a Read of no octets
    REQUIRE(it.near.post(IBV_WR_RDMA_READ, 1, {sge_of(it.own, *it.own_mr)}, 0, window.handle.rkey,
                         address_of(it.target)) == 0);
    CHECK(next(*it.near.send_cq).status == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("RDMA Write") {
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    REQUIRE(it.far.qp->modify(attributes, IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(it.write(window.handle.rkey, address_of(it.target)) != IBV_WC_SUCCESS);
  }
}

TEST_CASE("memory: another stream of the domain cannot use a window of type 2, nor invalidate it", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  // A second queue pair in the first one's domain.
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  attributes.cap = {4, 4, 1, 1, 0};
  Side peer(*it.context), beside(*it.context);
  beside.qp = Qp::create(*it.context, it.far.pd, beside.send_cq.get(), beside.receive_cq.get(), attributes,
                         beside.handle());
  REQUIRE(beside.qp);
  attach(peer, beside);
  REQUIRE(post_bind2(it.far, 1, window, rkey, it.all()) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  const auto mr = peer.expose(it.own, kAll);
  SECTION("use it") {
    REQUIRE(peer.post(IBV_WR_RDMA_READ, 1, {sge_of(it.own, *mr)}, 0, rkey, address_of(it.target)) == 0);
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
  CHECK(it.write(rkey, address_of(it.target)) == IBV_WC_SUCCESS);
}

TEST_CASE("memory: windows end with their queue pair, and with their own deallocation", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(it.far, 1, window, window.handle.rkey, it.all()) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  CHECK(it.target_mr->prepare_destroy() == EBUSY);
  SECTION("destroyed") { it.far.qp.reset(); }
  SECTION("reset") { CHECK(it.far.to(IBV_QPS_RESET) == 0); }
  SECTION("deallocated") { window.mw.reset(); }
  CHECK_FALSE(found(window.handle.rkey));
  CHECK(it.target_mr->prepare_destroy() == 0);
}

TEST_CASE("memory: errno of posting a bind or an invalidation", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2), first(it.far.pd, IBV_MW_TYPE_1);
  const std::uint32_t rkey = window.handle.rkey;
  CHECK(post_bind2(it.far, 1, window, rkey, info_of(nullptr, 0, 0, 0)) == EINVAL);
  CHECK(post_bind2(it.far, 1, window, rkey, it.all(IBV_ACCESS_MW_BIND)) == EINVAL);
  CHECK(post_bind2(it.far, 1, first, first.handle.rkey, it.all()) == EINVAL);  // by ibv_bind_mw alone
  CHECK(bind1(it.far, 1, window, it.all()) == EINVAL);                         // by ibv_post_send alone
  const std::uint32_t before = first.handle.rkey;
  CHECK(bind1(it.far, 1, first, it.all(1U << 16)) == EINVAL);
  CHECK(bind1(it.far, 1, first, info_of(nullptr, 0, 5, 0)) == EINVAL);
  CHECK(first.handle.rkey == before);
  Side idle(*it.context);
  CHECK(post_invalidate(idle, 1, rkey) == EINVAL);
  REQUIRE(idle.to(IBV_QPS_INIT) == 0);
  REQUIRE(idle.to(IBV_QPS_ERR) == 0);
  REQUIRE(post_invalidate(idle, 1, rkey) == 0);
  CHECK(next(*idle.send_cq).status == IBV_WC_WR_FLUSH_ERR);
  idle.to(IBV_QPS_RESET);
  idle.to_rts();
  for (std::uint64_t i = 0; i < 16; ++i) REQUIRE(post_invalidate(idle, i, rkey) == 0);
  CHECK(post_invalidate(idle, 16, rkey) == ENOMEM);
  CHECK(none(*idle.send_cq));
  errno = 0;
  CHECK(Mw::create(it.far.pd, static_cast<ibv_mw_type>(3)) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("memory: binds and invalidations in a batch (ibv_wr_start ... ibv_wr_complete)", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.handle.rkey;
  ibv_send_wr bind{}, invalidate{};
  bind.wr_id = 1;
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw.mw = &window.handle;
  bind.bind_mw.rkey = ibv_inc_rkey(rkey);
  bind.bind_mw.bind_info = it.all();
  invalidate.wr_id = 2;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = ibv_inc_rkey(rkey);
  it.far.qp->begin_batch();
  it.far.qp->add(bind);
  it.far.qp->abort_batch();
  CHECK_FALSE(found(ibv_inc_rkey(rkey)));
  it.far.qp->begin_batch();
  it.far.qp->add(bind);
  it.far.qp->add(invalidate);
  bind.wr_id = 3;
  bind.bind_mw.rkey = rkey;
  it.far.qp->add(bind);
  CHECK(it.far.qp->end_batch() == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const ibv_wc done = next(*it.far.send_cq);
    CHECK(done.wr_id == id);
    CHECK(done.status == IBV_WC_SUCCESS);
  }
  CHECK(it.write(rkey, address_of(it.target)) == IBV_WC_SUCCESS);
}

TEST_CASE("memory: a window is no lkey", "[memory]") {
  Connected it;
  Window window(it.far.pd, IBV_MW_TYPE_1);
  REQUIRE(bind1(it.far, 1, window, it.all()) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  const ibv_sge sge{address_of(it.target), 10, window.handle.rkey};
  CHECK(it.far.post_receive(1, {sge}) == EINVAL);
  REQUIRE(it.far.post(IBV_WR_SEND, 2, {sge}) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("memory: atomic operations through a window", "[memory]") {
  Connected it;
  alignas(8) static std::uint64_t counter;
  counter = 40;
  const auto mr = Mr::create(it.far.pd, &counter, 8, 0x1000, kBindable);
  ibv_mr handle = handle_of(*mr);
  Window window(it.far.pd, IBV_MW_TYPE_2);
  REQUIRE(post_bind2(it.far, 1, window, window.handle.rkey, info_of(&handle, 0x1000, 8, IBV_ACCESS_REMOTE_ATOMIC)) == 0);
  CHECK(next(*it.far.send_cq).status == IBV_WC_SUCCESS);
  ibv_sge sink = sge_of(it.own, *it.own_mr);
  sink.length = 8;
  ibv_send_wr request{};
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.sg_list = &sink;
  request.num_sge = 1;
  request.wr.atomic.rkey = window.handle.rkey;
  request.wr.atomic.remote_addr = 0x1000;
  request.wr.atomic.compare_add = 2;
  ibv_send_wr* bad = nullptr;
  REQUIRE(it.near.qp->post_send(&request, &bad) == 0);
  CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(counter == 42);
}

TEST_CASE("memory: a window invalidated while the peer writes through it", "[memory]") {
  // Once the invalidation has completed, the octets stand still, whatever is under way.
  for (int round = 0; round < 20; ++round) {
    auto context = open_loopback();
    Side near(*context), far(*context);
    attach(near, far);
    Bytes source(200'000, std::byte{1}), target(200'000);
    const auto own = near.expose(source, kAll);
    const auto mr = far.expose(target, kBindable);
    ibv_mr handle = handle_of(*mr);
    Window window(far.pd, IBV_MW_TYPE_2);
    const std::uint32_t rkey = window.handle.rkey;
    REQUIRE(post_bind2(far, 1, window, rkey, info_of(&handle, address_of(target), target.size(), kRemote)) == 0);
    REQUIRE(next(*far.send_cq).status == IBV_WC_SUCCESS);
    for (std::uint64_t i = 0; i < 10; ++i) {
      REQUIRE(near.post(IBV_WR_RDMA_WRITE, i, {sge_of(source, *own)}, 0, rkey, address_of(target)) == 0);
    }
    REQUIRE(eventually([&] { return std::atomic_ref(reinterpret_cast<unsigned char&>(target[0])).load() == 1; }));
    REQUIRE(post_invalidate(far, 2, rkey) == 0);
    REQUIRE(next(*far.send_cq).status == IBV_WC_SUCCESS);
    std::memset(target.data(), 0, target.size());
    REQUIRE(near.post(IBV_WR_RDMA_WRITE, 20, {sge_of(source, *own)}, 0, rkey, address_of(target)) == 0);
    REQUIRE(eventually([&] { return far.qp->state() == IBV_QPS_ERR; }));
    CHECK(std::all_of(target.begin(), target.end(), [](std::byte octet) { return octet == std::byte{0}; }));
  }
}

// ---- Re-registration -----------------------------------------------------------------------------------------------

TEST_CASE("memory: rereg_mr, each combination of flags", "[memory]") {
  const auto context = open_loopback();
  for (int flags = 0; flags <= IBV_REREG_MR_FLAGS_SUPPORTED; ++flags) {
    Pd pd(*context), other(*context);
    Bytes memory(100), second(300);
    auto mr = Mr::create(pd, memory.data(), 100, address_of(memory), kLocal);
    REQUIRE(mr);
    const std::uint32_t key = mr->key();
    const bool translation = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    const bool access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
    CHECK(mr->reregister(flags, &other, second.data(), second.size(), kAll) == (flags == 0 ? EINVAL : 0));
    CHECK(mr->key() == key);
    const ddp::Region now = region(*mr);
    CHECK(now.memory == (translation ? second.data() : memory.data()));
    CHECK(now.base == (translation ? address_of(second) : address_of(memory)));
    CHECK(now.length == (translation ? 300 : 100));
    CHECK(now.domain == (domain ? &other : &pd));
    CHECK(now.rights == (access ? 31 : ddp::kLocalRead | ddp::kLocalWrite));
    CHECK(pd.in_use() != domain);
    CHECK(other.in_use() == domain);
    mr.reset();
    CHECK_FALSE(pd.in_use());
    CHECK_FALSE(other.in_use());
  }
}

TEST_CASE("memory: rereg_mr and zero-based addressing, and a chosen iova", "[memory]") {
  const auto context = open_loopback();
  Pd pd(*context);
  Bytes memory(100);
  const auto mr = Mr::create(pd, memory.data(), 100, 0x500, 0);
  REQUIRE(mr);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal) == 0);
  CHECK(region(*mr).base == 0x500);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal | IBV_ACCESS_ZERO_BASED) == 0);
  CHECK(region(*mr).base == 0);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kLocal) == 0);
  CHECK(region(*mr).base == address_of(memory));
}

TEST_CASE("memory: rereg_mr, errors", "[memory]") {
  const auto context = open_loopback();
  const auto elsewhere = open_loopback();
  Pd pd(*context), other(*elsewhere);
  Bytes memory(100);
  Pages constant(1, PROT_READ);
  auto mr = Mr::create(pd, memory.data(), 100, address_of(memory), kBindable);
  REQUIRE(mr);
  // Nothing happens to the region.
  CHECK(mr->reregister(8, nullptr, nullptr, 0, 0) == EINVAL);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0) == EINVAL);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_PD, &other, nullptr, 0, 0) == EINVAL);
  CHECK(found(mr->key()));
  Window window(pd, IBV_MW_TYPE_2);
  int stream = 0;
  REQUIRE(provider::stag_table().bind({static_cast<ddp::Stag>(window.handle.rkey), static_cast<ddp::Stag>(mr->key()),
                                       address_of(memory), 10, ddp::kRemoteRead, ddp::WindowType::type2, false},
                                      &pd, &stream) == ddp::WindowError::none);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == EBUSY);
  CHECK(found(mr->key()));
  window.mw.reset();
  // The region is over (Verbs draft section 7.3.2.3) and can be destroyed only.
  SECTION("memory that is not there") {
    CHECK(mr->reregister(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, constant.memory, kPage, 0) == EFAULT);
  }
  SECTION("rights that cannot be") {
    CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  }
  CHECK_FALSE(found(mr->key()));
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == EINVAL);
  mr.reset();
  CHECK_FALSE(pd.in_use());
}

// ---- On-demand paging, advice --------------------------------------------------------------------------------------

TEST_CASE("memory: on-demand regions are not looked at before they are used", "[memory]") {
  const auto context = open_loopback();
  Pd pd(*context);
  Pages pages(4);
  REQUIRE(::munmap(pages.memory + kPage, kPage) == 0);
  const auto mr = Mr::create(pd, pages.memory, pages.size, pages.address(), kLocal | IBV_ACCESS_ON_DEMAND);
  REQUIRE(mr);
  CHECK(region(*mr).length == pages.size);
  const auto all = Mr::create(pd, nullptr, SIZE_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND);
  REQUIRE(all);
  CHECK(region(*all).length == SIZE_MAX);
  CHECK(Mr::create(pd, nullptr, SIZE_MAX, 0, kLocal) == nullptr);
  CHECK(Mr::create(pd, nullptr, SIZE_MAX, 0, kLocal | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("memory: an implicit on-demand region serves any memory, at both ends", "[memory]") {
  Connected it;
  const auto near = Mr::create(it.near.pd, nullptr, SIZE_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND);
  const auto far = Mr::create(it.far.pd, nullptr, SIZE_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND);
  REQUIRE((near && far));
  Pages later(2);  // registered by the regions before it was there
  std::memset(later.memory, 5, 1000);
  const ibv_sge source{later.address(), 1000, near->key()};
  REQUIRE(it.near.post(IBV_WR_RDMA_WRITE, 1, {source}, 0, far->key(), later.address() + kPage) == 0);
  REQUIRE(it.near.post(IBV_WR_RDMA_READ, 2, {}, 0, 0, 0) == 0);
  CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(later.memory[kPage + 999] == std::byte{5});
  SECTION("what is not there at the peer ends the stream") {
    REQUIRE(it.near.post(IBV_WR_RDMA_READ, 3, {source}, 0, far->key(), 16) == 0);
    CHECK(next(*it.near.send_cq).status != IBV_WC_SUCCESS);
  }
  SECTION("what is not there here ends the work") {
    const ibv_sge nothing{16, 8, near->key()};
    REQUIRE(it.near.post(IBV_WR_SEND, 3, {nothing}) == 0);
    CHECK(next(*it.near.send_cq).status == IBV_WC_LOC_PROT_ERR);
  }
}

TEST_CASE("memory: advise_mr", "[memory]") {
  const auto context = open_loopback();
  Pd pd(*context), other(*context);
  Pages pages(4);
  const auto mr = Mr::create(pd, pages.memory, pages.size, pages.address(), kLocal | IBV_ACCESS_ON_DEMAND);
  const auto constant = Mr::create(pd, pages.memory, pages.size, pages.address(), IBV_ACCESS_ON_DEMAND);
  const auto plain = Mr::create(pd, pages.memory, pages.size, pages.address(), kLocal);
  REQUIRE((mr && constant && plain));
  const auto advise = [&](Pd& by, ibv_advise_mr_advice advice, const ibv_sge& sge, std::uint32_t flags = 0) {
    return provider::advise_mr(by, advice, flags, &sge, 1);
  };
  const ibv_sge all{pages.address(), static_cast<std::uint32_t>(pages.size), mr->key()};
  const auto with = [&](std::uint32_t lkey) { return ibv_sge{all.addr, all.length, lkey}; };
  const auto resident = [&] {
    unsigned char pages_in[4];
    REQUIRE(::mincore(pages.memory, pages.size, pages_in) == 0);
    return std::count_if(pages_in, pages_in + 4, [](unsigned char page) { return (page & 1) != 0; });
  };
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, all) == 0);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, all) == 0);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, all, IBV_ADVISE_MR_FLAG_FLUSH) == 0);
  CHECK(resident() == 4);
  // Manual page of ibv_advise_mr, RETURN VALUE.
  CHECK(advise(pd, static_cast<ibv_advise_mr_advice>(77), all) == ENOTSUP);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, all, 2) == EINVAL);
  CHECK(provider::advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &all, 0) == EINVAL);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, with(mr->key() ^ 0x5A5A5A00)) == EFAULT);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, {all.addr + 1, all.length, all.lkey}) == EFAULT);
  CHECK(advise(other, IBV_ADVISE_MR_ADVICE_PREFETCH, all) == EPERM);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, with(constant->key())) == EPERM);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, with(constant->key())) == 0);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, with(plain->key())) == EINVAL);
  REQUIRE(::munmap(pages.memory + kPage, kPage) == 0);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, all) == EFAULT);
  CHECK(advise(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, {all.addr, 100, all.lkey}) == 0);
}

// ---- Null regions, dma-buf, device memory --------------------------------------------------------------------------

TEST_CASE("memory: a null region reads zeros and drops what is written", "[memory]") {
  Connected it;
  const auto null = Mr::create_null(it.near.pd);
  const auto far_null = Mr::create_null(it.far.pd);
  REQUIRE((null && far_null));
  const auto exposed = it.far.expose(it.target, kAll);
  std::fill(it.target.begin(), it.target.end(), std::byte{7});
  const ibv_sge anywhere{0x123456789, 1000, null->key()};
  // Into it: a Read's data go nowhere, and the ones after it to their place.
  ibv_sge half = anywhere, rest = sge_of(it.own, *it.own_mr);
  half.length = 500;
  rest.length = 500;
  const Bytes before = it.own;
  REQUIRE(it.near.post(IBV_WR_RDMA_READ, 1, {half, rest}, 0, exposed->key(), address_of(it.target)) == 0);
  CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
  CHECK(it.own[0] == std::byte{7});
  CHECK(it.own[500] == before[500]);
  // Out of it: zeros.
  REQUIRE(it.near.post(IBV_WR_RDMA_WRITE, 2, {anywhere}, 0, exposed->key(), address_of(it.target)) == 0);
  REQUIRE(it.near.post(IBV_WR_RDMA_READ, 3, {}, 0, 0, 0) == 0);
  next(*it.near.send_cq), next(*it.near.send_cq);
  CHECK(it.target == Bytes(1000));
  // A receive: dropped, and counted.
  REQUIRE(it.far.post_receive(4, {{0, 1000, far_null->key()}}) == 0);
  REQUIRE(it.near.post(IBV_WR_SEND, 5, {sge_of(it.own, *it.own_mr)}) == 0);
  const ibv_wc received = next(*it.far.receive_cq);
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.byte_len == 1000);
  next(*it.near.send_cq);
  // Nobody reaches it from afar, and no window is bound to it.
  CHECK(it.write(far_null->key(), 0, 10) != IBV_WC_SUCCESS);
}

TEST_CASE("memory: the result of an atomic operation may be dropped", "[memory]") {
  Connected it;
  const auto null = Mr::create_null(it.near.pd);
  const auto exposed = it.far.expose(it.target, kAll);
  ibv_sge sink{8, 8, null->key()};
  ibv_send_wr request{};
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.sg_list = &sink;
  request.num_sge = 1;
  request.wr.atomic.rkey = exposed->key();
  request.wr.atomic.remote_addr = (address_of(it.target) + 7) & ~std::uint64_t{7};
  request.wr.atomic.compare_add = 1;
  ibv_send_wr* bad = nullptr;
  REQUIRE(it.near.qp->post_send(&request, &bad) == 0);
  CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE("memory: regions of a descriptor that can be mapped", "[memory]") {
  Connected it;
  // What an exporter of system memory gives; any descriptor that maps will do.
  const int fd = ::memfd_create("buffer", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::ftruncate(fd, 3 * kPage) == 0);
  const auto mr = Mr::create_dmabuf(it.far.pd, kPage + 100, kPage, 0x70000 + 100, fd, kAll);
  REQUIRE(mr);
  CHECK(it.write(mr->key(), 0x70000 + 100) == IBV_WC_SUCCESS);
  Bytes out(1000);
  CHECK(::pread(fd, out.data(), out.size(), kPage + 100) == 1000);
  CHECK(out == it.own);
  const auto error = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova, int from, unsigned access) {
    errno = 0;
    return Mr::create_dmabuf(it.far.pd, offset, length, iova, from, access) ? 0 : errno;
  };
  CHECK(error(0, kPage, 0, fd, IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(error(0, kPage, 1, fd, kAll) == EINVAL);  // another page offset
  CHECK(error(0, 0, 0, fd, kAll) == EINVAL);
  CHECK(error(0, 3 * kPage + 1, 0, fd, kAll) == EINVAL);
  CHECK(error(3 * kPage, 1, 0, fd, kAll) == EINVAL);
  CHECK(error(~std::uint64_t{0} - kPage + 1, kPage, 0, fd, kAll) == EINVAL);
  CHECK(error(0, kPage, 0, fd, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(error(0, kPage, 0, fd, kLocal | IBV_ACCESS_MW_BIND) == EINVAL);
  CHECK(error(0, kPage, 0, fd, kLocal | IBV_ACCESS_ON_DEMAND) == EINVAL);
  CHECK(error(0, kPage, 0, fd, kLocal | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(0, kPage, 0, -1, kAll) == EBADF);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(error(0, kPage, 0, ends[0], 0) == EINVAL);  // nothing behind it
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == EINVAL);
  ::close(fd);
}

TEST_CASE("memory: device memory", "[memory]") {
  Connected it;
  const auto dm = Dm::create(1000, 6);
  REQUIRE(dm);
  Bytes out(1000, std::byte{9});
  CHECK(dm->copy_out(out.data(), 0, 1000) == 0);
  CHECK(out == Bytes(1000));
  const Bytes in = pattern(100);
  CHECK(dm->copy_in(900, in.data(), 100) == 0);
  CHECK(dm->copy_in(901, in.data(), 100) == EFAULT);
  CHECK(dm->copy_in(~std::uint64_t{0}, in.data(), 2) == EFAULT);
  CHECK(dm->copy_out(out.data(), 1001, 0) == EFAULT);
  CHECK(dm->copy_out(out.data(), 0, 1001) == EFAULT);
  const auto error = [&](std::uint64_t offset, std::size_t length, unsigned access) {
    errno = 0;
    return Mr::create_dm(it.far.pd, *dm, offset, length, access) ? 0 : errno;
  };
  CHECK(error(0, 1000, kAll) == EINVAL);  // not zero-based
  CHECK(error(0, 1001, kAll | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(1000, 1, kAll | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(~std::uint64_t{0}, 2, kAll | IBV_ACCESS_ZERO_BASED) == EINVAL);
  CHECK(error(0, 1000, kAll | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND) == EINVAL);
  CHECK(error(0, 1000, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED) == EINVAL);
  {
    const auto mr = Mr::create_dm(it.far.pd, *dm, 64, 936, kAll | IBV_ACCESS_ZERO_BASED);
    REQUIRE(mr);
    CHECK(dm->in_use());
    CHECK(it.write(mr->key(), 100, 500) == IBV_WC_SUCCESS);
    CHECK(dm->copy_out(out.data(), 164, 500) == 0);
    CHECK(std::equal(out.begin(), out.begin() + 500, it.own.begin()));
    // Atomic operations, on memory that is aligned as was asked.
    ibv_sge sink = sge_of(it.own, *it.own_mr);
    sink.length = 8;
    ibv_send_wr request{};
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.sg_list = &sink;
    request.num_sge = 1;
    request.wr.atomic.rkey = mr->key();
    request.wr.atomic.remote_addr = 8;
    request.wr.atomic.compare_add = 77;
    ibv_send_wr* bad = nullptr;
    REQUIRE(it.near.qp->post_send(&request, &bad) == 0);
    CHECK(next(*it.near.send_cq).status == IBV_WC_SUCCESS);
    std::uint64_t value = 0;
    CHECK(dm->copy_out(&value, 72, 8) == 0);
    CHECK(value == 77);
  }
  CHECK_FALSE(dm->in_use());
}

TEST_CASE("memory: device memory has its limits", "[memory]") {
  const auto refused = [](std::size_t length, std::uint32_t alignment) {
    errno = 0;
    return Dm::create(length, alignment) ? 0 : errno;
  };
  CHECK(refused(0, 0) == EINVAL);
  CHECK(refused(100, 22) == EINVAL);
  CHECK(refused(100, 21) == 0);
  CHECK(refused(provider::kMaxDmSize + 1, 0) == ENOMEM);
  CHECK(refused(~std::size_t{0}, 0) == ENOMEM);
  {
    const auto all = Dm::create(provider::kMaxDmSize, 0);
    REQUIRE(all);
    CHECK(refused(1, 0) == ENOMEM);
  }
  CHECK(refused(1, 0) == 0);
}
