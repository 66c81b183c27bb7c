// SPDX-License-Identifier: MIT
// Memory windows: the rows of the Verbs draft's sections 7.8 to 7.10 and of the manual pages for what works.
#include "tests/apps/memory/memory.h"

namespace apps::memory {

namespace {

void mw_caps() {
  Pair pair;
  ibv_device_attr device{};
  expect(ibv_query_device(pair.near.id()->verbs, &device) == 0, "ibv_query_device");
  expect(device.max_mw > 0, "max_mw is 0");
  expect((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0, "no IBV_DEVICE_MEM_WINDOW");
  expect((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0, "no IBV_DEVICE_MEM_WINDOW_TYPE_2B");
}

void mw_type1() {
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
}

void mw_type2() {
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
}

void mw_type2_zero_based() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  bind(pair.far, mw, mw->rkey,
       {pair.target_mr, number(pair.target.data()) + 1000, 500, kRights | IBV_ACCESS_ZERO_BASED});
  write_well(pair, mw->rkey, 0, 500);
  expect(std::equal(pair.own.begin(), pair.own.begin() + 500, pair.target.begin() + 1000), "the octets at offset 0");
  write_refused(pair, mw->rkey, 1, 500);
  ibv_dealloc_mw(mw);
}

void mw_send_behind_bind() {
  // The rkey may go out in a Send behind the bind, both posted at once.
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  post_receive(pair.near.qp(), {own(pair, 4)});
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
}

void mw_wr_api() {
  Pair pair;
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = pair.far.id()->send_cq;
  attributes.cap = {16, 16, 1, 1, 0};
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = pair.far.pd();
  attributes.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND;
  ibv_qp* qp = made("ibv_create_qp_ex", ibv_create_qp_ex(pair.far.id()->verbs, &attributes));
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
  ibv_wr_local_inv(ex, ibv_inc_rkey(mw->rkey));
  expect_error("ibv_wr_complete", ibv_wr_complete(ex), 0);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const ibv_wc wc = sent(pair.far);
    expect_status("work of a queue pair in error", wc, IBV_WC_WR_FLUSH_ERR);
    expect(wc.wr_id == id, "the order of completions");
  }
  ibv_dealloc_mw(mw);
  ibv_destroy_qp(qp);
}

void mw_send_with_invalidate() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  bind(pair.far, mw, ibv_inc_rkey(mw->rkey), all_of(pair));
  ibv_mr* inbox = reg(pair.far.pd(), pair.target.data(), kSize, kAll);
  post_receive(pair.far.qp(), {{number(pair.target.data()), 100, inbox->lkey}});
  expect_error("Send with Invalidate", post_data(pair.near, IBV_WR_SEND_WITH_INV, own(pair, 100), 0, mw->rkey), 0);
  const ibv_wc wc = received(pair.far);
  expect_status("the receive", wc, IBV_WC_SUCCESS);
  expect((wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == mw->rkey, "IBV_WC_WITH_INV");
  expect_status("Send with Invalidate", sent(pair.near), IBV_WC_SUCCESS);
  expect_error("deregistering after the window is invalid", ibv_dereg_mr(pair.target_mr), 0);
  write_refused(pair, mw->rkey, number(pair.target.data()), 100);
  ibv_dealloc_mw(mw);
  ibv_dereg_mr(inbox);
}

void mw_atomic() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  bind(pair.far, mw, mw->rkey, all_of(pair, IBV_ACCESS_REMOTE_ATOMIC));
  expect_error("fetch-and-add",
               SendRequest(IBV_WR_ATOMIC_FETCH_AND_ADD, own(pair, 8))
                   .add(number(pair.target.data()), mw->rkey, 5)
                   .try_post(pair.near.qp()),
               0);
  expect_status("fetch-and-add", sent(pair.near), IBV_WC_SUCCESS);
  std::uint64_t value = 0;
  std::memcpy(&value, pair.target.data(), 8);
  expect(value == 5, "the sum");
  read_refused(pair, mw->rkey, number(pair.target.data()), 8);
  ibv_dealloc_mw(mw);
}

void mw_busy() {
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
  expect(ibv_rereg_mr(pair.target_mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll) == IBV_REREG_MR_ERR_CMD,
         "ibv_rereg_mr of a region with a window");
  write_well(pair, mw->rkey, number(pair.target.data()), 100);
  expect_error("ibv_dealloc_mw", ibv_dealloc_mw(mw), 0);
  expect_error("ibv_dereg_mr", ibv_dereg_mr(pair.target_mr), 0);
}

void mw_immediate_errors() {
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
  expect_error("ibv_alloc_mw of an unknown type", error_of(ibv_alloc_mw(pd, static_cast<ibv_mw_type>(3))), EINVAL);
  ibv_dereg_mr(foreign);
  ibv_dealloc_pd(pd);
}

// 7.10.6.2.
void mw_access_bounds() {
  for (const int by : {-1, 1}) {
    Pair pair;
    ibv_mw* mw = window(pair.far.pd());
    const std::uint64_t at = number(pair.target.data()) + 1000;
    bind(pair.far, mw, mw->rkey, {pair.target_mr, at, 1000, kRights});
    read_refused(pair, mw->rkey, at + static_cast<std::uint64_t>(by), 1000);
    ibv_dealloc_mw(mw);
  }
}

void mw_access_rights() {
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
}

void mw_access_not_bound() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  read_refused(pair, mw->rkey, number(pair.target.data()), 10);
}

void mw_as_lkey() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  bind(pair.far, mw, mw->rkey, all_of(pair));
  expect_error("ibv_post_send", post_data(pair.far, IBV_WR_SEND, {number(pair.target.data()), 10, mw->rkey}, 0, 0), 0);
  expect_status("a window in an SGE", sent(pair.far), IBV_WC_LOC_PROT_ERR);
}

void mw_qp_destroyed() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  bind(pair.far, mw, mw->rkey, all_of(pair));
  rdma_destroy_qp(pair.far.id());
  expect_error("ibv_dereg_mr after the queue pair is gone", ibv_dereg_mr(pair.target_mr), 0);
  ibv_dealloc_mw(mw);
}

}  // namespace

void window_cases(Cases& cases) {
  cases.insert({
      {"mw_caps", mw_caps},
      {"mw_type1", mw_type1},
      {"mw_type2", mw_type2},
      {"mw_type2_zero_based", mw_type2_zero_based},
      {"mw_send_behind_bind", mw_send_behind_bind},
      {"mw_wr_api", mw_wr_api},
      {"mw_send_with_invalidate", mw_send_with_invalidate},
      {"mw_atomic", mw_atomic},
      {"mw_busy", mw_busy},
      {"mw_immediate_errors", mw_immediate_errors},
      {"mw_access_bounds", mw_access_bounds},
      {"mw_access_rights", mw_access_rights},
      {"mw_access_not_bound", mw_access_not_bound},
      {"mw_as_lkey", mw_as_lkey},
      {"mw_qp_destroyed", mw_qp_destroyed},
  });
}

}  // namespace apps::memory
