// SPDX-License-Identifier: MIT
// Memory regions of every kind, memory windows, invalidation, fences and device memory, as programs use them through
// stock libibverbs: what works, and one case for each error row of the Verbs draft's sections 7.8 to 7.10 and of the
// manual pages.
//
//   uiw_memory HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process: a listener and a caller on HOST. `near` uses what `far` exposes.
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "endpoint.h"

namespace {

using apps::die;
using apps::Endpoint;

std::string g_host, g_port;
constexpr std::uint32_t kSize = 65536;
constexpr int kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | kRights | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

void expect(bool good, const char* what) {
  if (!good) die("%s", what);
}
void expect_error(const char* what, int got, int wanted) {
  if (got != wanted) die("%s: %s, not %s", what, std::strerror(got), std::strerror(wanted));
}
void expect_status(const char* what, const ibv_wc& wc, int wanted) {
  if (wc.status != wanted) {
    die("%s: %s, not %s", what, ibv_wc_status_str(wc.status), ibv_wc_status_str(static_cast<ibv_wc_status>(wanted)));
  }
}
int error_of(const void* object) { return object == nullptr ? errno : 0; }

ibv_mr* reg(ibv_pd* pd, void* memory, std::size_t size, int access) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, size, access);
  if (mr == nullptr) die("ibv_reg_mr: %s", std::strerror(errno));
  return mr;
}
ibv_pd* new_pd(Endpoint& end) {
  ibv_pd* pd = ibv_alloc_pd(end.id()->verbs);
  if (pd == nullptr) die("ibv_alloc_pd: %s", std::strerror(errno));
  return pd;
}
ibv_mw* window(ibv_pd* pd, ibv_mw_type type = IBV_MW_TYPE_2) {
  ibv_mw* mw = ibv_alloc_mw(pd, type);
  if (mw == nullptr) die("ibv_alloc_mw: %s", std::strerror(errno));
  return mw;
}

// A connected pair in one process: connecting and disconnecting take both ends at a time.
struct Pair {
  apps::Listener listener{g_host, g_port, {}};
  Endpoint near{apps::create(g_host, g_port, {})};
  Endpoint far{connected()};
  std::vector<std::uint8_t> own = std::vector<std::uint8_t>(kSize), target = std::vector<std::uint8_t>(kSize);
  ibv_mr* own_mr = reg(near.pd(), own.data(), kSize, kAll);
  ibv_mr* target_mr = reg(far.pd(), target.data(), kSize, kBindable);

  Pair() {
    for (std::size_t i = 0; i < kSize; ++i) own[i] = static_cast<std::uint8_t>(i * 7 + 1);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    std::thread other([this] { near.disconnect(); });
    far.disconnect();
    other.join();
  }

 private:
  Endpoint connected() {
    std::thread caller([this] { apps::connect(near); });
    Endpoint end = listener.request();
    apps::Listener::accept(end);
    caller.join();
    return end;
  }
};

ibv_wc sent(Endpoint& end) {
  ibv_wc wc{};
  if (!end.send_completion(wc)) die("no send completion in time");
  return wc;
}
ibv_wc received(Endpoint& end) {
  ibv_wc wc{};
  if (!end.recv_completion(wc)) die("no receive completion in time");
  return wc;
}

int post(Endpoint& end, ibv_send_wr& request) {
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(end.qp(), &request, &bad);
  if (error != 0) expect(bad == &request, "ibv_post_send fails and bad_wr does not tell where");
  return error;
}
int post_data(Endpoint& end, ibv_wr_opcode opcode, ibv_sge sge, std::uint64_t remote, std::uint32_t rkey,
              unsigned flags = 0) {
  ibv_send_wr request{};
  request.opcode = opcode;
  request.sg_list = &sge;
  request.num_sge = sge.length > 0 ? 1 : 0;
  request.send_flags = flags;
  if (opcode == IBV_WR_SEND_WITH_INV) {
    request.invalidate_rkey = rkey;
  } else {
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = rkey;
  }
  return post(end, request);
}
int post_bind(Endpoint& end, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  ibv_send_wr request{};
  request.wr_id = 5;
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = info;
  return post(end, request);
}
int post_invalidate(Endpoint& end, std::uint32_t rkey, unsigned flags = 0) {
  ibv_send_wr request{};
  request.wr_id = 6;
  request.opcode = IBV_WR_LOCAL_INV;
  request.invalidate_rkey = rkey;
  request.send_flags = flags;
  return post(end, request);
}
int post_recv(Endpoint& end, ibv_sge sge) {
  ibv_recv_wr request{};
  request.sg_list = &sge;
  request.num_sge = sge.length > 0 ? 1 : 0;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(end.qp(), &request, &bad);
}

ibv_mw_bind_info all_of(Pair& pair, unsigned access = kRights) {
  return {pair.target_mr, number(pair.target.data()), kSize, access};
}
ibv_sge own(Pair& pair, std::uint32_t length = kSize) {
  return {number(pair.own.data()), length, pair.own_mr->lkey};
}

void bind(Endpoint& end, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  expect_error("ibv_post_send of a bind", post_bind(end, mw, rkey, info), 0);
  const ibv_wc wc = sent(end);
  expect_status("a bind", wc, IBV_WC_SUCCESS);
  expect(wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 5, "the completion of a bind is another's");
  mw->rkey = rkey;
}
void bind1(Endpoint& end, ibv_mw* mw, const ibv_mw_bind_info& info) {
  ibv_mw_bind request{};
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_info = info;
  expect_error("ibv_bind_mw", ibv_bind_mw(end.qp(), mw, &request), 0);
  const ibv_wc wc = sent(end);
  expect_status("ibv_bind_mw", wc, IBV_WC_SUCCESS);
  expect(wc.opcode == IBV_WC_BIND_MW, "the completion of a bind is another's");
}

// A Write that must arrive: a Read behind it tells.
void write_well(Pair& pair, std::uint32_t rkey, std::uint64_t to, std::uint32_t length = kSize) {
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_WRITE, own(pair, length), to, rkey), 0);
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
  expect_status("a Write", sent(pair.near), IBV_WC_SUCCESS);
  expect_status("a Read of no octets", sent(pair.near), IBV_WC_SUCCESS);
}
// A Write that must not: it may complete before the peer refuses it (RFC 5040 section 5.5), the Read behind it not.
void write_refused(Pair& pair, std::uint32_t rkey, std::uint64_t to, std::uint32_t length = kSize) {
  const std::vector<std::uint8_t> before = pair.target;
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_WRITE, own(pair, length), to, rkey), 0);
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
  sent(pair.near);
  expect(sent(pair.near).status != IBV_WC_SUCCESS, "the stream goes on after a Write that is refused");
  expect(before == pair.target, "a refused Write changed the target");
}
void read_refused(Pair& pair, std::uint32_t rkey, std::uint64_t from, std::uint32_t length) {
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, own(pair, length), from, rkey), 0);
  expect_status("a Read", sent(pair.near), IBV_WC_REM_ACCESS_ERR);
}

using Cases = std::map<std::string, std::function<void()>>;

void window_cases(Cases& cases) {
  cases["mw_caps"] = [] {
    Pair pair;
    ibv_device_attr device{};
    expect(ibv_query_device(pair.near.id()->verbs, &device) == 0, "ibv_query_device");
    expect(device.max_mw > 0, "max_mw is 0");
    expect((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0, "no IBV_DEVICE_MEM_WINDOW");
    expect((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0, "no IBV_DEVICE_MEM_WINDOW_TYPE_2B");
  };
  cases["mw_type1"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd(), IBV_MW_TYPE_1);
    const std::uint64_t at = number(pair.target.data());
    const std::uint32_t before = mw->rkey;
    bind1(pair.far, mw, all_of(pair));
    expect(mw->rkey != before, "ibv_bind_mw leaves the rkey");
    write_well(pair, mw->rkey, at);
    expect(pair.target == pair.own, "what was written through the window");
    const std::uint32_t first = mw->rkey;
    bind1(pair.far, mw, {pair.target_mr, at + 100, 200, kRights});
    expect(mw->rkey != first, "a second ibv_bind_mw leaves the rkey");
    write_well(pair, mw->rkey, at + 100, 200);
    expect_error("deregistering a region with a window", ibv_dereg_mr(pair.target_mr), EBUSY);
    bind1(pair.far, mw, {nullptr, 0, 0, 0});
    write_refused(pair, mw->rkey, at + 100, 200);
    expect_error("ibv_dealloc_mw", ibv_dealloc_mw(mw), 0);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(pair.target_mr), 0);
  };
  cases["mw_type2"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    std::uint32_t rkey = mw->rkey;
    for (int round = 0; round < 5; ++round) {
      rkey = ibv_inc_rkey(rkey);
      bind(pair.far, mw, rkey, all_of(pair));
      write_well(pair, rkey, number(pair.target.data()));
      expect(pair.target == pair.own, "what was written through the window");
      expect_error("IBV_WR_LOCAL_INV", post_invalidate(pair.far, rkey, IBV_SEND_FENCE), 0);
      const ibv_wc wc = sent(pair.far);
      expect_status("IBV_WR_LOCAL_INV", wc, IBV_WC_SUCCESS);
      expect(wc.opcode == IBV_WC_LOCAL_INV && wc.wr_id == 6, "the completion of an invalidation is another's");
    }
    write_refused(pair, rkey, number(pair.target.data()));
    ibv_dealloc_mw(mw);
  };
  cases["mw_type2_zero_based"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    bind(pair.far, mw, mw->rkey,
         {pair.target_mr, number(pair.target.data()) + 1000, 500, kRights | IBV_ACCESS_ZERO_BASED});
    write_well(pair, mw->rkey, 0, 500);
    expect(std::equal(pair.own.begin(), pair.own.begin() + 500, pair.target.begin() + 1000), "the octets at offset 0");
    write_refused(pair, mw->rkey, 1, 500);
    ibv_dealloc_mw(mw);
  };
  cases["mw_send_behind_bind"] = [] {
    // The rkey may go out in a Send behind the bind, both posted at once.
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    expect_error("ibv_post_recv", post_recv(pair.near, own(pair, 4)), 0);
    ibv_send_wr bind_request{}, send{};
    bind_request.opcode = IBV_WR_BIND_MW;
    bind_request.bind_mw.mw = mw;
    bind_request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    bind_request.bind_mw.bind_info = all_of(pair);
    bind_request.next = &send;
    ibv_sge sge{number(&bind_request.bind_mw.rkey), 4, 0};
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    send.sg_list = &sge;
    send.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    expect_error("ibv_post_send", ibv_post_send(pair.far.qp(), &bind_request, &bad), 0);
    expect_status("the receive", received(pair.near), IBV_WC_SUCCESS);
    expect_status("the Send", sent(pair.far), IBV_WC_SUCCESS);
    std::uint32_t rkey = 0;
    std::memcpy(&rkey, pair.own.data(), 4);
    write_well(pair, rkey, number(pair.target.data()));
    ibv_dealloc_mw(mw);
  };
  cases["mw_wr_api"] = [] {
    Pair pair;
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = pair.far.id()->send_cq;
    attributes.cap = {16, 16, 1, 1, 0};
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.pd = pair.far.pd();
    attributes.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND;
    ibv_qp* qp = ibv_create_qp_ex(pair.far.id()->verbs, &attributes);
    if (qp == nullptr) die("ibv_create_qp_ex: %s", std::strerror(errno));
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = 1;
    expect_error("to INIT", ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX), 0);
    change.qp_state = IBV_QPS_ERR;
    expect_error("to ERR", ibv_modify_qp(qp, &change, IBV_QP_STATE), 0);
    ibv_mw* mw = window(pair.far.pd());
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    const ibv_mw_bind_info info = all_of(pair);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
    ex->wr_id = 2;
    ibv_wr_local_inv(ex, mw->rkey);
    expect_error("ibv_wr_complete", ibv_wr_complete(ex), 0);
    for (std::uint64_t id = 1; id <= 2; ++id) {
      const ibv_wc wc = sent(pair.far);
      expect_status("work of a queue pair in error", wc, IBV_WC_WR_FLUSH_ERR);
      expect(wc.wr_id == id, "the order of completions");
    }
    ibv_dealloc_mw(mw);
    ibv_destroy_qp(qp);
  };
  cases["mw_send_with_invalidate"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    bind(pair.far, mw, ibv_inc_rkey(mw->rkey), all_of(pair));
    ibv_mr* inbox = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
    expect_error("ibv_post_recv", post_recv(pair.far, {number(pair.target.data()), 100, inbox->lkey}), 0);
    expect_error("Send with Invalidate", post_data(pair.near, IBV_WR_SEND_WITH_INV, own(pair, 100), 0, mw->rkey), 0);
    const ibv_wc wc = received(pair.far);
    expect_status("the receive", wc, IBV_WC_SUCCESS);
    expect((wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == mw->rkey, "IBV_WC_WITH_INV");
    expect_status("Send with Invalidate", sent(pair.near), IBV_WC_SUCCESS);
    expect_error("deregistering after the window is invalid", ibv_dereg_mr(pair.target_mr), 0);
    write_refused(pair, mw->rkey, number(pair.target.data()), 100);
    ibv_dealloc_mw(mw);
    ibv_dereg_mr(inbox);
  };
  cases["mw_atomic"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    bind(pair.far, mw, mw->rkey, all_of(pair, IBV_ACCESS_REMOTE_ATOMIC));
    ibv_send_wr request{};
    ibv_sge sge = own(pair, 8);
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.wr.atomic.remote_addr = number(pair.target.data());
    request.wr.atomic.rkey = mw->rkey;
    request.wr.atomic.compare_add = 5;
    expect_error("fetch-and-add", post(pair.near, request), 0);
    expect_status("fetch-and-add", sent(pair.near), IBV_WC_SUCCESS);
    std::uint64_t value = 0;
    std::memcpy(&value, pair.target.data(), 8);
    expect(value == 5, "the sum");
    read_refused(pair, mw->rkey, number(pair.target.data()), 8);
    ibv_dealloc_mw(mw);
  };
  cases["mw_busy"] = [] {
    Pair pair;
    ibv_pd* pd = new_pd(pair.far);
    ibv_mw* mw = window(pd);
    expect_error("ibv_dealloc_pd with a window in it", ibv_dealloc_pd(pd), EBUSY);
    ibv_dealloc_mw(mw);
    expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), 0);
    // 7.9: a region with windows is not deregistered, nor registered anew; deallocation of the window frees it.
    mw = window(pair.far.pd());
    bind(pair.far, mw, mw->rkey, all_of(pair));
    expect_error("ibv_dereg_mr of a region with a window", ibv_dereg_mr(pair.target_mr), EBUSY);
    expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll) ==
               IBV_REREG_MR_ERR_CMD, "ibv_rereg_mr of a region with a window");
    write_well(pair, mw->rkey, number(pair.target.data()), 100);
    expect_error("ibv_dealloc_mw", ibv_dealloc_mw(mw), 0);
    expect_error("ibv_dereg_mr", ibv_dereg_mr(pair.target_mr), 0);
  };
  cases["mw_immediate_errors"] = [] {
    Pair pair;
    ibv_mw* first = window(pair.far.pd(), IBV_MW_TYPE_1);
    ibv_mw* second = window(pair.far.pd());
    ibv_mw_bind request{};
    request.bind_info = all_of(pair);
    const std::uint32_t rkey = first->rkey;
    expect_error("ibv_bind_mw of type 2", ibv_bind_mw(pair.far.qp(), second, &request), EINVAL);
    expect_error("IBV_WR_BIND_MW of type 1", post_bind(pair.far, first, rkey, all_of(pair)), EINVAL);
    request.bind_info.mw_access_flags = 1U << 17;
    expect_error("ibv_bind_mw with unknown flags", ibv_bind_mw(pair.far.qp(), first, &request), EINVAL);
    ibv_pd* pd = new_pd(pair.far);
    ibv_mr* foreign = reg(pd, pair.target.data(), kSize, kBindable);
    request.bind_info = {foreign, number(pair.target.data()), 10, kRights};
    expect_error("ibv_bind_mw to a region of another PD", ibv_bind_mw(pair.far.qp(), first, &request), EPERM);
    expect(first->rkey == rkey, "a bind that fails at once changes the rkey");
    errno = 0;
    expect_error("ibv_alloc_mw of an unknown type", error_of(ibv_alloc_mw(pd, static_cast<ibv_mw_type>(9))), EINVAL);
    ibv_dereg_mr(foreign);
    ibv_dealloc_pd(pd);
  };

  // 7.10.6.1, and figures 19, 20 and 23: completion errors, each of which ends the stream.
  struct Bad {
    const char* name;
    std::function<int(Pair&, ibv_mw*)> post;
  };
  static const std::vector<Bad> binds = {
      {"not_invalid",
       [](Pair& pair, ibv_mw* mw) {
         bind(pair.far, mw, mw->rkey, all_of(pair));
         return post_bind(pair.far, mw, ibv_inc_rkey(mw->rkey), all_of(pair));
       }},
      {"window_stag",
       [](Pair& pair, ibv_mw* mw) { return post_bind(pair.far, mw, pair.target_mr->rkey, all_of(pair)); }},
      {"region_stag",
       [](Pair& pair, ibv_mw* mw) {
         static ibv_mr gone;
         gone = *pair.target_mr;
         gone.lkey ^= 0x5A5A5A00;
         return post_bind(pair.far, mw, mw->rkey, {&gone, number(pair.target.data()), 10, kRights});
       }},
      {"stag_zero",
       [](Pair& pair, ibv_mw* mw) {
         static ibv_mr zero;
         zero = *pair.target_mr;
         zero.lkey = 0;
         return post_bind(pair.far, mw, mw->rkey, {&zero, number(pair.target.data()), 10, kRights});
       }},
      {"region_pd",
       [](Pair& pair, ibv_mw* mw) {
         ibv_mr* mr = reg(new_pd(pair.far), pair.target.data(), kSize, kBindable);
         return post_bind(pair.far, mw, mw->rkey, {mr, number(pair.target.data()), 10, kRights});
       }},
      {"window_pd",
       [](Pair& pair, ibv_mw*) {
         ibv_mw* other = window(new_pd(pair.far));
         return post_bind(pair.far, other, other->rkey, all_of(pair));
       }},
      {"not_bindable",
       [](Pair& pair, ibv_mw* mw) {
         ibv_mr* mr = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
         return post_bind(pair.far, mw, mw->rkey, {mr, number(pair.target.data()), 10, kRights});
       }},
      {"local_read_remote_write",
       [](Pair& pair, ibv_mw* mw) {
         ibv_mr* mr = reg(pair.far.pd(), pair.target.data(), kSize, IBV_ACCESS_MW_BIND);
         return post_bind(pair.far, mw, mw->rkey, {mr, number(pair.target.data()), 10, IBV_ACCESS_REMOTE_WRITE});
       }},
      {"no_rights",
       [](Pair& pair, ibv_mw* mw) { return post_bind(pair.far, mw, mw->rkey, all_of(pair, 0)); }},
      {"zero_based_region",
       [](Pair& pair, ibv_mw* mw) {
         ibv_mr* mr = reg(pair.far.pd(), pair.target.data(), kSize, kBindable | IBV_ACCESS_ZERO_BASED);
         return post_bind(pair.far, mw, mw->rkey, {mr, 0, 10, kRights});
       }},
      {"below",
       [](Pair& pair, ibv_mw* mw) {
         return post_bind(pair.far, mw, mw->rkey, {pair.target_mr, number(pair.target.data()) - 1, 10, kRights});
       }},
      {"above",
       [](Pair& pair, ibv_mw* mw) {
         return post_bind(pair.far, mw, mw->rkey, {pair.target_mr, number(pair.target.data()) + 1, kSize, kRights});
       }},
  };
  for (const Bad& bad : binds) {
    cases[std::string("bind_") + bad.name] = [&bad] {
      Pair pair;
      ibv_mw* mw = window(pair.far.pd());
      expect_error("ibv_post_send", bad.post(pair, mw), 0);
      const ibv_wc wc = sent(pair.far);
      expect_status(bad.name, wc, IBV_WC_MW_BIND_ERR);
      expect(wc.wr_id == 5, "the completion is another's");
      expect_error("ibv_post_send", post_data(pair.far, IBV_WR_SEND, {}, 0, 0), 0);
      expect_status("work behind it", sent(pair.far), IBV_WC_WR_FLUSH_ERR);
    };
  }

  // 7.8 and 7.10.6.3: local.
  static const std::vector<std::pair<const char*, std::function<std::uint32_t(Pair&, int&)>>> local = {
      {"region", [](Pair& pair, int&) { return pair.target_mr->rkey; }},
      {"region_with_window",
       [](Pair& pair, int&) {
         ibv_mw* mw = window(pair.far.pd());
         bind(pair.far, mw, mw->rkey, all_of(pair));
         return pair.target_mr->rkey;
       }},
      {"type1", [](Pair& pair, int&) { return window(pair.far.pd(), IBV_MW_TYPE_1)->rkey; }},
      {"other_pd", [](Pair& pair, int&) { return window(new_pd(pair.far))->rkey; }},
      {"nothing",
       [](Pair& pair, int& status) {
         status = IBV_WC_LOC_QP_OP_ERR;
         return pair.target_mr->rkey ^ 0x5A5A5A00;
       }},
      {"deallocated",
       [](Pair& pair, int& status) {
         status = IBV_WC_LOC_QP_OP_ERR;
         ibv_mw* mw = window(pair.far.pd());
         const std::uint32_t rkey = mw->rkey;
         ibv_dealloc_mw(mw);
         return rkey;
       }},
      {"stag_zero",
       [](Pair&, int& status) {
         status = IBV_WC_LOC_QP_OP_ERR;
         return 0U;
       }},
  };
  for (const auto& bad : local) {
    cases[std::string("local_inv_") + bad.first] = [&bad] {
      Pair pair;
      int status = IBV_WC_LOC_PROT_ERR;
      const std::uint32_t rkey = bad.second(pair, status);
      expect_error("IBV_WR_LOCAL_INV", post_invalidate(pair.far, rkey), 0);
      expect_status(bad.first, sent(pair.far), status);
    };
  }
  cases["local_inv_invalid"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    for (int i = 0; i < 2; ++i) {
      expect_error("IBV_WR_LOCAL_INV", post_invalidate(pair.far, mw->rkey), 0);
      expect_status("a window in the Invalid state", sent(pair.far), IBV_WC_SUCCESS);
    }
    ibv_dealloc_mw(mw);
  };

  // 7.8 and 7.10.6.3: by the peer.
  static const std::vector<std::pair<const char*, std::function<std::uint32_t(Pair&)>>> remote = {
      {"region", [](Pair& pair) { return pair.target_mr->rkey; }},
      {"region_with_window",
       [](Pair& pair) {
         ibv_mw* mw = window(pair.far.pd());
         bind(pair.far, mw, mw->rkey, all_of(pair));
         return pair.target_mr->rkey;
       }},
      {"type1",
       [](Pair& pair) {
         ibv_mw* mw = window(pair.far.pd(), IBV_MW_TYPE_1);
         bind1(pair.far, mw, all_of(pair));
         return mw->rkey;
       }},
      {"other_pd", [](Pair& pair) { return window(new_pd(pair.far))->rkey; }},
      {"other_key",
       [](Pair& pair) {
         ibv_mw* mw = window(pair.far.pd());
         bind(pair.far, mw, mw->rkey, all_of(pair));
         return ibv_inc_rkey(mw->rkey);
       }},
      {"nothing", [](Pair& pair) { return pair.target_mr->rkey ^ 0x5A5A5A00; }},
  };
  for (const auto& bad : remote) {
    cases[std::string("remote_inv_") + bad.first] = [&bad] {
      Pair pair;
      const std::uint32_t rkey = bad.second(pair);
      expect_error("ibv_post_recv", post_recv(pair.far, {}), 0);
      expect_error("Send with Invalidate", post_data(pair.near, IBV_WR_SEND_WITH_INV, {}, 0, rkey), 0);
      expect(received(pair.far).status != IBV_WC_SUCCESS, "the peer invalidates what it must not");
    };
  }

  // 7.10.6.2.
  cases["mw_access_bounds"] = [] {
    for (const int by : {-1, 1}) {
      Pair pair;
      ibv_mw* mw = window(pair.far.pd());
      const std::uint64_t at = number(pair.target.data()) + 1000;
      bind(pair.far, mw, mw->rkey, {pair.target_mr, at, 1000, kRights});
      read_refused(pair, mw->rkey, at + static_cast<std::uint64_t>(by), 1000);
      ibv_dealloc_mw(mw);
    }
  };
  cases["mw_access_rights"] = [] {
    {
      Pair pair;
      ibv_mw* mw = window(pair.far.pd());
      bind(pair.far, mw, mw->rkey, all_of(pair, IBV_ACCESS_REMOTE_WRITE));
      read_refused(pair, mw->rkey, number(pair.target.data()), 10);
    }
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    bind(pair.far, mw, mw->rkey, all_of(pair, IBV_ACCESS_REMOTE_READ));
    write_refused(pair, mw->rkey, number(pair.target.data()), 10);
  };
  cases["mw_access_not_bound"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    read_refused(pair, mw->rkey, number(pair.target.data()), 10);
  };
  cases["mw_as_lkey"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    bind(pair.far, mw, mw->rkey, all_of(pair));
    expect_error("ibv_post_send", post_data(pair.far, IBV_WR_SEND, {number(pair.target.data()), 10, mw->rkey}, 0, 0), 0);
    expect_status("a window in an SGE", sent(pair.far), IBV_WC_LOC_PROT_ERR);
  };
  cases["mw_qp_destroyed"] = [] {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    bind(pair.far, mw, mw->rkey, all_of(pair));
    rdma_destroy_qp(pair.far.id());
    expect_error("ibv_dereg_mr after the queue pair is gone", ibv_dereg_mr(pair.target_mr), 0);
    ibv_dealloc_mw(mw);
  };
}

void region_cases(Cases& cases) {
  cases["rereg"] = [] {
    Pair pair;
    const std::uint32_t rkey = pair.target_mr->rkey;
    const std::uint64_t at = number(pair.target.data());
    expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll) == 0, "access");
    expect(pair.target_mr->rkey == rkey, "the rkey changes");
    write_well(pair, pair.target_mr->rkey, at);
    expect(pair.target == pair.own, "what was written");
    std::vector<std::uint8_t> second(1000);
    expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), second.size(), 0) == 0,
           "translation");
    expect(pair.target_mr->addr == second.data() && pair.target_mr->length == 1000, "address and length");
    write_well(pair, pair.target_mr->rkey, number(second.data()), 1000);
    expect(std::equal(second.begin(), second.end(), pair.own.begin()), "what was written to the new place");
    ibv_pd* pd = new_pd(pair.far);
    expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION |
                                            IBV_REREG_MR_CHANGE_ACCESS, pd, pair.target.data(), kSize, kAll) == 0, "all");
    expect(pair.target_mr->pd == pd, "pd");
    expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), EBUSY);
    write_refused(pair, pair.target_mr->rkey, at);  // the stream is not of that domain
    expect_error("ibv_dereg_mr", ibv_dereg_mr(pair.target_mr), 0);
    expect_error("ibv_dealloc_pd", ibv_dealloc_pd(pd), 0);
  };
  cases["rereg_errors"] = [] {
    Pair pair;
    ibv_mr* mr = pair.target_mr;
    const auto rereg = [&](int flags, void* address, std::size_t length, int access) {
      return ibv_rereg_mr(mr, flags, nullptr, address, length, access);
    };
    expect(rereg(8, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT, "unknown flags");
    expect(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT, "no address");
    expect(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, pair.own.data(), 10, kAll) == IBV_REREG_MR_ERR_INPUT, "stray access");
    expect(rereg(IBV_REREG_MR_CHANGE_PD, nullptr, 0, 0) == IBV_REREG_MR_ERR_CMD, "no PD");
    expect_error("a bind after errors of input", post_bind(pair.far, window(pair.far.pd()), 0, all_of(pair)), 0);
    sent(pair.far);  // an error, of the wrong rkey
    void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, hole, 4096, 0) == IBV_REREG_MR_ERR_CMD, "memory that is not there");
    expect(errno == EFAULT, "errno of memory that is not there");
    munmap(hole, 4096);
    expect_error("ibv_dereg_mr of what failed", ibv_dereg_mr(mr), 0);
    ibv_mr* null = ibv_alloc_null_mr(pair.far.pd());
    mr = null;
    expect(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT, "of a null region");
    ibv_dereg_mr(null);
  };
  cases["zero_based"] = [] {
    Pair pair;
    ibv_mr* mr = reg(pair.far.pd(), pair.target.data(), kSize, kAll | IBV_ACCESS_ZERO_BASED);
    write_well(pair, mr->rkey, 0);
    expect(pair.target == pair.own, "what was written to offset 0");
    write_refused(pair, mr->rkey, number(pair.target.data()), 10);
    ibv_dereg_mr(mr);
  };
  cases["odp_explicit"] = [] {
    Pair pair;
    void* place = mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* mr = ibv_reg_mr(pair.far.pd(), place, kSize, kAll | IBV_ACCESS_ON_DEMAND);
    if (mr == nullptr) die("ibv_reg_mr on demand: %s", std::strerror(errno));
    mprotect(place, kSize, PROT_READ | PROT_WRITE);
    write_well(pair, mr->rkey, number(place));
    expect(std::memcmp(place, pair.own.data(), kSize) == 0, "what was written");
    mprotect(place, kSize, PROT_NONE);
    expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, own(pair, 10), number(place), mr->rkey), 0);
    expect(sent(pair.near).status != IBV_WC_SUCCESS, "a Read of memory that is not there");
    munmap(place, kSize);
    ibv_dereg_mr(mr);
  };
  cases["odp_implicit"] = [] {
    Pair pair;
    ibv_device_attr_ex device{};
    expect(ibv_query_device_ex(pair.near.id()->verbs, nullptr, &device) == 0, "ibv_query_device_ex");
    expect((device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0, "no implicit on-demand paging");
    ibv_mr* near = ibv_reg_mr(pair.near.pd(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND);
    ibv_mr* far = ibv_reg_mr(pair.far.pd(), nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND);
    if (near == nullptr || far == nullptr) die("implicit on-demand region: %s", std::strerror(errno));
    const ibv_sge sge{number(pair.own.data()), kSize, near->lkey};
    const std::uint64_t at = number(pair.target.data());
    expect_error("Write", post_data(pair.near, IBV_WR_RDMA_WRITE, sge, at, far->rkey), 0);
    expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, sge, at, far->rkey), 0);
    expect_status("Write", sent(pair.near), IBV_WC_SUCCESS);
    expect_status("Read", sent(pair.near), IBV_WC_SUCCESS);
    expect(pair.target == pair.own, "what was written");
    expect_error("Send", post_data(pair.near, IBV_WR_SEND, {8, 100, near->lkey}, 0, 0), 0);
    expect_status("a Send of memory that is not there", sent(pair.near), IBV_WC_LOC_PROT_ERR);
    ibv_dereg_mr(near);
    ibv_dereg_mr(far);
  };
  cases["advise"] = [] {
    Pair pair;
    const std::size_t size = 16 * 4096;
    void* place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* mr = ibv_reg_mr(pair.far.pd(), place, size, kAll | IBV_ACCESS_ON_DEMAND);
    ibv_mr* constant = ibv_reg_mr(pair.far.pd(), place, size, int{IBV_ACCESS_ON_DEMAND});
    if (mr == nullptr || constant == nullptr) die("ibv_reg_mr on demand: %s", std::strerror(errno));
    ibv_pd* other = new_pd(pair.far);
    ibv_mw* mw = window(pair.far.pd(), IBV_MW_TYPE_1);
    bind1(pair.far, mw, all_of(pair));
    const auto advise = [&](ibv_pd* pd, int advice, std::uint32_t flags, ibv_sge sge) {
      return ibv_advise_mr(pd, static_cast<ibv_advise_mr_advice>(advice), flags, &sge, 1);
    };
    ibv_pd* pd = pair.far.pd();
    const ibv_sge all{number(place), static_cast<std::uint32_t>(size), mr->lkey};
    for (int advice : {0, 1, 2}) {
      expect_error("ibv_advise_mr", advise(pd, advice, 0, all), 0);
      expect_error("ibv_advise_mr, flush", advise(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, all), 0);
    }
    expect_error("an unknown advice", advise(pd, 77, 0, all), ENOTSUP);
    expect_error("unknown flags", advise(pd, 0, 8, all), EINVAL);
    expect_error("an unknown lkey", advise(pd, 0, 0, {all.addr, all.length, mr->lkey ^ 0x5A5A5A00}), EFAULT);
    expect_error("out of bounds", advise(pd, 0, 0, {all.addr + 1, all.length, mr->lkey}), EFAULT);
    expect_error("a window", advise(pd, 0, 0, {all.addr, 1, mw->rkey}), EINVAL);
    expect_error("another PD", advise(other, 0, 0, all), EPERM);
    expect_error("to write what is not writable", advise(pd, 1, 0, {all.addr, 1, constant->lkey}), EPERM);
    expect_error("not on demand", advise(pd, 0, 0, {number(pair.target.data()), 1, pair.target_mr->lkey}), EINVAL);
    munmap(place, 4096);
    expect_error("not in the address space", advise(pd, 0, 0, all), EFAULT);
    ibv_dealloc_mw(mw);
    ibv_dealloc_pd(other);
    ibv_dereg_mr(mr);
    ibv_dereg_mr(constant);
  };
  cases["null_mr"] = [] {
    Pair pair;
    ibv_mr* null = ibv_alloc_null_mr(pair.near.pd());
    if (null == nullptr) die("ibv_alloc_null_mr: %s", std::strerror(errno));
    ibv_mr* exposed = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
    std::memset(pair.target.data(), 9, kSize);
    const std::uint64_t at = number(pair.target.data());
    expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, {123, kSize, null->lkey}, at, exposed->rkey), 0);
    expect_status("a Read into a null region", sent(pair.near), IBV_WC_SUCCESS);
    expect_error("Write", post_data(pair.near, IBV_WR_RDMA_WRITE, {123, kSize, null->lkey}, at, exposed->rkey), 0);
    expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
    sent(pair.near), sent(pair.near);
    expect(pair.target == std::vector<std::uint8_t>(kSize), "what a null region reads");
    expect_error("ibv_post_recv", post_recv(pair.near, {0, kSize, null->lkey}), 0);
    expect_error("Send", post_data(pair.far, IBV_WR_SEND, {at, kSize, exposed->lkey}, 0, 0), 0);
    const ibv_wc wc = received(pair.near);
    expect_status("a receive into a null region", wc, IBV_WC_SUCCESS);
    expect(wc.byte_len == kSize, "its length");
    expect_error("ibv_dereg_mr", ibv_dereg_mr(null), 0);
    ibv_dereg_mr(exposed);
  };
  cases["dmabuf"] = [] {
    Pair pair;
    const int fd = memfd_create("buffer", MFD_CLOEXEC);  // what an exporter of system memory gives
    expect(fd >= 0 && ftruncate(fd, 2 * kSize) == 0, "memfd_create");
    const auto error = [&](std::uint64_t offset, std::size_t length, std::uint64_t iova, int from, int access) {
      errno = 0;
      ibv_mr* mr = ibv_reg_dmabuf_mr(pair.far.pd(), offset, length, iova, from, access);
      const int result = error_of(mr);
      if (mr != nullptr) ibv_dereg_mr(mr);
      return result;
    };
    ibv_mr* mr = ibv_reg_dmabuf_mr(pair.far.pd(), 4096, kSize, 0x10000, fd, kAll);
    if (mr == nullptr) die("ibv_reg_dmabuf_mr: %s", std::strerror(errno));
    write_well(pair, mr->rkey, 0x10000);
    std::vector<std::uint8_t> out(kSize);
    expect(pread(fd, out.data(), kSize, 4096) == kSize && out == pair.own, "what was written");
    expect_error("another page offset", error(0, 100, 1, fd, kAll), EINVAL);
    expect_error("beyond the buffer", error(kSize, kSize + 1, 0, fd, kAll), EINVAL);
    expect_error("flags that it does not have", error(0, 100, 0, fd, kAll | IBV_ACCESS_ON_DEMAND), EINVAL);
    expect_error("remote write without local write", error(0, 100, 0, fd, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    expect_error("no descriptor", error(0, 100, 0, -1, kAll), EBADF);
    ibv_dereg_mr(mr);
    close(fd);
  };
  cases["dm"] = [] {
    Pair pair;
    ibv_device_attr_ex device{};
    expect(ibv_query_device_ex(pair.far.id()->verbs, nullptr, &device) == 0, "ibv_query_device_ex");
    expect(device.max_dm_size > kSize, "max_dm_size");
    ibv_alloc_dm_attr wanted{kSize, 6, 0};
    ibv_dm* dm = ibv_alloc_dm(pair.far.id()->verbs, &wanted);
    if (dm == nullptr) die("ibv_alloc_dm: %s", std::strerror(errno));
    const auto error = [&](std::uint64_t offset, std::size_t length, unsigned access) {
      errno = 0;
      ibv_mr* mr = ibv_reg_dm_mr(pair.far.pd(), dm, offset, length, access);
      const int result = error_of(mr);
      if (mr != nullptr) ibv_dereg_mr(mr);
      return result;
    };
    expect_error("not zero-based", error(0, 100, kAll), EINVAL);
    expect_error("beyond it", error(1, kSize, kAll | IBV_ACCESS_ZERO_BASED), EINVAL);
    ibv_mr* mr = ibv_reg_dm_mr(pair.far.pd(), dm, 0, kSize, kAll | IBV_ACCESS_ZERO_BASED);
    if (mr == nullptr) die("ibv_reg_dm_mr: %s", std::strerror(errno));
    expect_error("ibv_free_dm while registered", ibv_free_dm(dm), EBUSY);
    write_well(pair, mr->rkey, 0);
    std::vector<std::uint8_t> out(kSize);
    expect_error("ibv_memcpy_from_dm", ibv_memcpy_from_dm(out.data(), dm, 0, kSize), 0);
    expect(out == pair.own, "what was written to device memory");
    expect_error("ibv_memcpy_to_dm beyond it", ibv_memcpy_to_dm(dm, 1, out.data(), kSize), EFAULT);
    expect_error("ibv_memcpy_from_dm beyond it", ibv_memcpy_from_dm(out.data(), dm, kSize, 1), EFAULT);
    const std::uint64_t start = 40;
    expect_error("ibv_memcpy_to_dm", ibv_memcpy_to_dm(dm, 64, &start, 8), 0);
    ibv_send_wr request{};
    ibv_sge sge = own(pair, 8);
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.wr.atomic.remote_addr = 64;
    request.wr.atomic.rkey = mr->rkey;
    request.wr.atomic.compare_add = 2;
    expect_error("fetch-and-add", post(pair.near, request), 0);
    expect_status("fetch-and-add", sent(pair.near), IBV_WC_SUCCESS);
    std::uint64_t value = 0;
    ibv_memcpy_from_dm(&value, dm, 64, 8);
    expect(value == 42, "the sum");
    ibv_dereg_mr(mr);
    expect_error("ibv_free_dm", ibv_free_dm(dm), 0);
    wanted.length = device.max_dm_size + 1;
    errno = 0;
    expect_error("more than max_dm_size", error_of(ibv_alloc_dm(pair.far.id()->verbs, &wanted)), ENOMEM);
    wanted = {0, 0, 0};
    expect_error("nothing", error_of(ibv_alloc_dm(pair.far.id()->verbs, &wanted)), EINVAL);
    wanted = {64, 60, 0};
    expect_error("an alignment that cannot be", error_of(ibv_alloc_dm(pair.far.id()->verbs, &wanted)), EINVAL);
  };
  cases["fence"] = [] {
    // A Read into a buffer, and a fenced Send out of it, which must carry what was read.
    Pair pair;
    ibv_mr* exposed = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
    std::vector<std::uint8_t> inbox(kSize), buffer(kSize);
    ibv_mr* in = reg(pair.far.pd(), inbox.data(), kSize, kAll);
    ibv_mr* through = reg(pair.near.pd(), buffer.data(), kSize, kAll);
    for (int round = 0; round < 50; ++round) {
      std::memset(pair.target.data(), round + 1, kSize);
      expect_error("ibv_post_recv", post_recv(pair.far, {number(inbox.data()), kSize, in->lkey}), 0);
      const ibv_sge sge{number(buffer.data()), kSize, through->lkey};
      expect_error("Read", post_data(pair.near, IBV_WR_RDMA_READ, sge, number(pair.target.data()), exposed->rkey), 0);
      expect_error("Send", post_data(pair.near, IBV_WR_SEND, sge, 0, 0, IBV_SEND_FENCE), 0);
      expect_status("the receive", received(pair.far), IBV_WC_SUCCESS);
      expect(inbox == pair.target, "a fenced Send overtakes the Read in front of it");
      sent(pair.near), sent(pair.near);
    }
    ibv_dereg_mr(exposed);
    ibv_dereg_mr(in);
    ibv_dereg_mr(through);
  };
}

}  // namespace

int main(int argc, char** argv) {
  Cases cases;
  window_cases(cases);
  region_cases(cases);
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, run] : cases) std::puts(name.c_str());
    return 0;
  }
  if (argc != 4 || cases.count(argv[3]) == 0) die("usage: %s HOST PORT CASE | --list", argv[0]);
  g_host = argv[1];
  g_port = argv[2];
  cases.at(argv[3])();
  std::puts("as documented");
  return 0;
}
