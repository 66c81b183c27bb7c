// SPDX-License-Identifier: MIT
// A connected pair with memory on both sides, and what the cases of uiw_memory do with it. `near` uses what `far`
// exposes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "tests/apps/support/pair.h"

namespace apps::memory {

using apps::Cases;
using apps::Endpoint;

inline constexpr std::uint32_t kSize = 65536;
inline constexpr int kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
inline constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | kRights | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

inline int error_of(const void* object) { return object == nullptr ? errno : 0; }

inline ibv_pd* new_pd(Endpoint& end) { return made("ibv_alloc_pd", ibv_alloc_pd(end.id()->verbs)); }
inline ibv_mw* window(ibv_pd* pd, ibv_mw_type type = IBV_MW_TYPE_2) {
  return made("ibv_alloc_mw", ibv_alloc_mw(pd, type));
}

// Connected ends with memory, which outlives the connection.
struct Pair {
  std::vector<std::uint8_t> own = std::vector<std::uint8_t>(kSize), target = std::vector<std::uint8_t>(kSize);
  apps::Pair ends;
  Endpoint &near = ends.near, &far = ends.far;
  ibv_mr* own_mr = reg(near.pd(), own.data(), kSize, kAll);
  ibv_mr* target_mr = reg(far.pd(), target.data(), kSize, kBindable);

  Pair() {
    for (std::size_t i = 0; i < kSize; ++i) own[i] = static_cast<std::uint8_t>(i * 7 + 1);
  }
};

inline int post_data(Endpoint& end, ibv_wr_opcode opcode, ibv_sge sge, std::uint64_t remote, std::uint32_t rkey,
                     unsigned flags = 0) {
  SendRequest request(opcode, sge, 0, flags | IBV_SEND_SIGNALED);
  opcode == IBV_WR_SEND_WITH_INV ? request.invalidate(rkey) : request.at(remote, rkey);
  return request.try_post(end.qp());
}
inline int post_bind(Endpoint& end, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  const std::uint32_t before = mw->rkey;
  const int error = SendRequest(IBV_WR_BIND_MW, {}, 5).bind(mw, rkey, info).try_post(end.qp());
  expect(mw->rkey == before, "ibv_post_send of a bind changes the rkey");
  return error;
}
inline int post_invalidate(Endpoint& end, std::uint32_t rkey, unsigned flags = 0) {
  return SendRequest(IBV_WR_LOCAL_INV, {}, 6, flags | IBV_SEND_SIGNALED).invalidate(rkey).try_post(end.qp());
}
inline ibv_mw_bind_info all_of(Pair& pair, unsigned access = kRights) {
  return {pair.target_mr, number(pair.target.data()), kSize, access};
}
inline ibv_sge own(Pair& pair, std::uint32_t length = kSize) {
  return {number(pair.own.data()), length, pair.own_mr->lkey};
}

inline void bind(Endpoint& end, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  expect_error("ibv_post_send of a bind", post_bind(end, mw, rkey, info), 0);
  const ibv_wc wc = sent(end);
  expect_status("a bind", wc, IBV_WC_SUCCESS);
  expect(wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 5, "the completion of a bind is another's");
  mw->rkey = rkey;
}
inline void bind1(Endpoint& end, ibv_mw* mw, const ibv_mw_bind_info& info) {
  ibv_mw_bind request{};
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_info = info;
  expect_error("ibv_bind_mw", ibv_bind_mw(end.qp(), mw, &request), 0);
  const ibv_wc wc = sent(end);
  expect_status("ibv_bind_mw", wc, IBV_WC_SUCCESS);
  expect(wc.opcode == IBV_WC_BIND_MW, "the completion of a bind is another's");
}

// A Write that must arrive: a Read behind it tells.
inline void write_well(Pair& pair, std::uint32_t rkey, std::uint64_t to, std::uint32_t length = kSize) {
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_WRITE, own(pair, length), to, rkey), 0);
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
  expect_status("a Write", sent(pair.near), IBV_WC_SUCCESS);
  expect_status("a Read of no octets", sent(pair.near), IBV_WC_SUCCESS);
}
// A Write that must not: it may complete before the peer refuses it (RFC 5040 section 5.5), the Read behind it not.
inline void write_refused(Pair& pair, std::uint32_t rkey, std::uint64_t to, std::uint32_t length = kSize) {
  const std::vector<std::uint8_t> before = pair.target;
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_WRITE, own(pair, length), to, rkey), 0);
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, {}, 0, 0), 0);
  sent(pair.near);
  expect(sent(pair.near).status != IBV_WC_SUCCESS, "the stream goes on after a Write that is refused");
  expect(before == pair.target, "a refused Write changed the target");
}
inline void read_refused(Pair& pair, std::uint32_t rkey, std::uint64_t from, std::uint32_t length) {
  expect_error("ibv_post_send", post_data(pair.near, IBV_WR_RDMA_READ, own(pair, length), from, rkey), 0);
  expect_status("a Read", sent(pair.near), IBV_WC_REM_ACCESS_ERR);
}

void window_cases(Cases& cases);
void window_error_cases(Cases& cases);
void region_cases(Cases& cases);
void import_cases(Cases& cases);
void allocator_cases(Cases& cases);
void vanished_cases(Cases& cases);

}  // namespace apps::memory
