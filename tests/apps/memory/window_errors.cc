// SPDX-License-Identifier: MIT
// Binds and invalidations that complete in error, with the rows of the Verbs draft's sections 7.8 to 7.10.
#include "tests/apps/memory/memory.h"

namespace apps::memory {

namespace {

// 7.10.6.1, and figures 19, 20 and 23: completion errors, each of which ends the stream.
struct BadBind {
  const char* name;
  std::function<int(Pair&, ibv_mw*)> post;
};
const std::vector<BadBind> kBadBinds = {
    {"not_invalid",
     [](Pair& pair, ibv_mw* mw) {
       bind(pair.far, mw, mw->rkey, all_of(pair));
       return post_bind(pair.far, mw, ibv_inc_rkey(mw->rkey), all_of(pair));
     }},
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

void bad_bind(const BadBind& bad) {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  expect_error("ibv_post_send", bad.post(pair, mw), 0);
  const ibv_wc wc = sent(pair.far);
  expect_status(bad.name, wc, IBV_WC_MW_BIND_ERR);
  expect(wc.wr_id == 5, "the completion is another's");
  expect_error("ibv_post_send", post_data(pair.far, IBV_WR_SEND, {}, 0, 0), 0);
  expect_status("work behind it", sent(pair.far), IBV_WC_WR_FLUSH_ERR);
}

// 7.8 and 7.10.6.3: local.
struct BadLocal {
  const char* name;
  std::function<std::uint32_t(Pair&, int& status)> rkey;
};
const std::vector<BadLocal> kBadLocal = {
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

void bad_local_invalidation(const BadLocal& bad) {
  Pair pair;
  int status = IBV_WC_LOC_PROT_ERR;
  const std::uint32_t rkey = bad.rkey(pair, status);
  expect_error("IBV_WR_LOCAL_INV", post_invalidate(pair.far, rkey), 0);
  expect_status(bad.name, sent(pair.far), status);
}

void local_inv_invalid() {
  Pair pair;
  ibv_mw* mw = window(pair.far.pd());
  for (int i = 0; i < 2; ++i) {
    expect_error("IBV_WR_LOCAL_INV", post_invalidate(pair.far, mw->rkey), 0);
    expect_status("a window in the Invalid state", sent(pair.far), IBV_WC_SUCCESS);
  }
  ibv_dealloc_mw(mw);
}

// 7.8 and 7.10.6.3: by the peer.
struct BadRemote {
  const char* name;
  std::function<std::uint32_t(Pair&)> rkey;
};
const std::vector<BadRemote> kBadRemote = {
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

void bad_remote_invalidation(const BadRemote& bad) {
  Pair pair;
  const std::uint32_t rkey = bad.rkey(pair);
  post_receive(pair.far.qp(), {});
  expect_error("Send with Invalidate", post_data(pair.near, IBV_WR_SEND_WITH_INV, {}, 0, rkey), 0);
  expect(received(pair.far).status != IBV_WC_SUCCESS, "the peer invalidates what it must not");
}

}  // namespace

void window_error_cases(Cases& cases) {
  for (const BadBind& bad : kBadBinds) cases[std::string("bind_") + bad.name] = [&bad] { bad_bind(bad); };
  for (const BadLocal& bad : kBadLocal)
    cases[std::string("local_inv_") + bad.name] = [&bad] { bad_local_invalidation(bad); };
  for (const BadRemote& bad : kBadRemote)
    cases[std::string("remote_inv_") + bad.name] = [&bad] { bad_remote_invalidation(bad); };
  cases.insert({
      {"local_inv_invalid", local_inv_invalid},
  });
}

}  // namespace apps::memory
