// SPDX-License-Identifier: MIT
// Work requests that their own adapter refuses: memory that cannot be registered, keys, bounds, rights, and more of
// anything than was promised.
#include "tests/apps/errors/bad_input.h"

namespace apps::bad_input {

namespace {

// Local protection: either the post refuses (EINVAL), or the work completes with IBV_WC_LOC_PROT_ERR.
void expect_local_protection(const char* what, Endpoint& end, Post post) {
  const int error = post.at(end);
  if (error != 0)
    die("%s: the post refuses with %s; a completion with an error is what adapters give", what, std::strerror(error));
  const ibv_wc wc = sent(end);
  expect_status(what, wc, {IBV_WC_LOC_PROT_ERR});
  if (wc.wr_id != 77) die("%s: wr_id %llu", what, static_cast<unsigned long long>(wc.wr_id));
}

void reg_unmapped() {
  Pair pair;
  ibv_pd* pd = pair.near.pd();
  auto refused = [&](const char* what, void* base, std::size_t length, int access, std::initializer_list<int> good) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(pd, base, length, access);
    expect_error(what, mr == nullptr ? errno : 0, good);
  };
  Memory memory(16 * kSize);
  munmap(memory.base + 4 * kSize, kSize);
  refused("a hole", memory.base + 4 * kSize, 4096, kAll, {EFAULT});
  refused("a range with a hole in it", memory.base, 16 * kSize, kAll, {EFAULT});
  refused("a range that ends in a hole", memory.base, 4 * kSize + 1, kAll, {EFAULT});
  refused("a null pointer", nullptr, 4096, kAll, {EFAULT, EINVAL});
  refused("a length that wraps around", memory.base, ~std::size_t{0} - 4096, kAll, {EFAULT, EINVAL, ENOMEM});
  refused("the top of the address space", reinterpret_cast<void*>(~std::uintptr_t{0} - 4095), 4096, kAll,
          {EFAULT, EINVAL, ENOMEM});
  refused("half the address space", memory.base, std::size_t{1} << 62, kAll, {EFAULT, EINVAL, ENOMEM});
  Memory constant(kSize, PROT_READ);
  refused("read-only memory for writing", constant.base, kSize, kAll, {EFAULT});
  refused("remote write without local write", memory.base, kSize, IBV_ACCESS_REMOTE_WRITE, {EINVAL});
  ibv_mr* allowed =
      made("read-only memory for reading", ibv_reg_mr(pd, constant.base, kSize, int{IBV_ACCESS_REMOTE_READ}));
  ibv_dereg_mr(allowed);
  allowed = made("what is mapped before the hole", ibv_reg_mr(pd, memory.base, 4 * kSize, kAll));
  ibv_dereg_mr(allowed);
}

void bad_lkey() {
  for (ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    ibv_mr* remote = reg(pair.far.pd(), memory);
    ibv_sge wrong = sge(mr, 100);
    wrong.lkey ^= 0x5a5a5a00;
    expect_local_protection("an unknown lkey", pair.near, {opcode, {wrong}, number(memory.base), remote->rkey});
    ibv_dereg_mr(mr);
    ibv_dereg_mr(remote);
  }
}

void stale_lkey() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* mr = reg(pair.near.pd(), memory);
  const ibv_sge stale = sge(mr, 100);
  ibv_dereg_mr(mr);
  mr = reg(pair.near.pd(), memory);
  if (mr->lkey == stale.lkey) die("an lkey is given again at once");
  expect_local_protection("the lkey of a region that is gone", pair.near, {IBV_WR_SEND, {stale}});
  ibv_dereg_mr(mr);
}

void local_bounds() {
  for (int which = 0; which < 4; ++which) {
    Pair pair;
    Memory memory(kSize);
    ibv_mr* mr = reg(pair.near.pd(), memory);
    ibv_sge bad = sge(mr, 100);
    if (which == 0) bad = sge(mr, kSize + 1);
    if (which == 1) bad = sge(mr, 2, kSize - 1);
    if (which == 2) bad.addr -= 1;
    if (which == 3) bad.addr = ~std::uint64_t{0} - 50;  // address plus length wraps
    expect_local_protection("an SGE outside of its region", pair.near, {IBV_WR_SEND, {bad}});
    ibv_dereg_mr(mr);
  }
}

void local_other_pd() {
  Pair pair;
  Memory memory(kSize);
  ibv_pd* other = made("ibv_alloc_pd", ibv_alloc_pd(pair.near.id()->verbs));
  ibv_mr* mr = reg(other, memory);
  expect_local_protection("a region of another PD", pair.near, {IBV_WR_SEND, {sge(mr, 100)}});
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(other);
}

void local_access() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* sink = reg(pair.near.pd(), memory, 0);
  ibv_mr* remote = reg(pair.far.pd(), memory);
  expect_local_protection("a Read into a region without local write", pair.near,
                          {IBV_WR_RDMA_READ, {sge(sink, 100)}, number(memory.base), remote->rkey});
  ibv_dereg_mr(sink);
  ibv_dereg_mr(remote);
}

void recv_bad_lkey() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* mr = reg(pair.near.pd(), memory);
  ibv_mr* sink = reg(pair.far.pd(), memory);
  ibv_sge wrong = sge(sink, 4096);
  wrong.lkey ^= 0x5a5a5a00;
  if (try_post_receive(pair.far.qp(), {wrong}) == 0) {
    good("ibv_post_send", Post(IBV_WR_SEND, {sge(mr, 100)}).at(pair.near));
    expect_status("a receive with an unknown lkey", received(pair.far), {IBV_WC_LOC_PROT_ERR});
  }
  ibv_dereg_mr(mr);
  ibv_dereg_mr(sink);
}

void recv_too_short() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* mr = reg(pair.near.pd(), memory);
  ibv_mr* sink = reg(pair.far.pd(), memory);
  good("ibv_post_recv", try_post_receive(pair.far.qp(), {sge(sink, 100)}));
  good("ibv_post_send", Post(IBV_WR_SEND, {sge(mr, 101)}).at(pair.near));
  expect_status("a receive that is too short", received(pair.far), {IBV_WC_LOC_LEN_ERR});
  ibv_dereg_mr(mr);
  ibv_dereg_mr(sink);
}

void too_many() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* mr = reg(pair.near.pd(), memory);
  const ibv_qp_cap cap = pair.near.capacity();
  std::vector<ibv_sge> many(cap.max_send_sge + 1, sge(mr, 1));
  expect_error("more SGEs than max_send_sge", Post(IBV_WR_SEND, many).at(pair.near), {EINVAL, ENOMEM});
  many.resize(cap.max_recv_sge + 1, sge(mr, 1));
  expect_error("more SGEs than max_recv_sge", try_post_receive(pair.near.qp(), many), {EINVAL, ENOMEM});
  Post negative(IBV_WR_SEND, {});
  negative.request.num_sge = -1;
  expect_error("a negative number of SGEs", negative.raw(pair.near), {EINVAL});
  Post inlined(IBV_WR_SEND, {sge(mr, cap.max_inline_data + 1)});
  inlined.request.send_flags |= IBV_SEND_INLINE;
  expect_error("more inline data than max_inline_data", inlined.at(pair.near), {EINVAL, ENOMEM});
  Post opcode(static_cast<ibv_wr_opcode>(99), {sge(mr, 1)});
  expect_error("an unknown opcode", opcode.at(pair.near), {EINVAL, EOPNOTSUPP, ENOSYS});
  // The receive queue takes what it promised, then ENOMEM.
  unsigned posted = 0;
  int error = 0;
  while (posted <= 1u << 20 && (error = try_post_receive(pair.near.qp(), {sge(mr, 1)})) == 0) ++posted;
  expect_error("a full receive queue", error, {ENOMEM});
  if (posted < cap.max_recv_wr) die("the receive queue takes %u, not %u", posted, cap.max_recv_wr);
  ibv_dereg_mr(mr);
}

void full_send_queue() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* mr = reg(pair.near.pd(), memory);
  const ibv_qp_cap cap = pair.near.capacity();
  // Nobody receives, so the queue fills in the end; it must take what it promised, and say ENOMEM then. What TCP has
  // taken is complete, and would overrun the completion queue if it stayed there.
  unsigned posted = 0;
  int error = 0;
  while (posted < 1u << 20 && (error = Post(IBV_WR_SEND, {sge(mr, kSize)}).at(pair.near)) == 0) {
    ++posted;
    for (ibv_wc wc; ibv_poll_cq(pair.near.id()->send_cq, 1, &wc) == 1;) expect_status("a Send", wc, {IBV_WC_SUCCESS});
  }
  expect_error("a full send queue", error, {ENOMEM});
  if (posted < cap.max_send_wr) die("the send queue takes %u, not %u", posted, cap.max_send_wr);
  ibv_dereg_mr(mr);
}

void length_overflow() {
  // Two SGEs of 2^31 octets each: more than any message may have.
  Pair pair;
  Memory memory(std::size_t{1} << 31);
  ibv_mr* mr =
      made("ibv_reg_mr of 2 GiB", ibv_reg_mr(pair.near.pd(), memory.base, memory.size, int{IBV_ACCESS_REMOTE_READ}));
  const ibv_sge half = sge(mr, 1u << 31);
  Post post(IBV_WR_SEND, {half, half});
  const int error = post.at(pair.near);
  if (error == 0)
    expect_status("a message of 2^32 octets", sent(pair.near), {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR});
  else
    expect_error("a message of 2^32 octets", error, {EINVAL, EMSGSIZE});
  ibv_dereg_mr(mr);
}

}  // namespace

void work_request_cases(Cases& cases) {
  cases.insert({
      {"reg_unmapped", reg_unmapped},
      {"bad_lkey", bad_lkey},
      {"stale_lkey", stale_lkey},
      {"local_bounds", local_bounds},
      {"local_other_pd", local_other_pd},
      {"local_access", local_access},
      {"recv_bad_lkey", recv_bad_lkey},
      {"recv_too_short", recv_too_short},
      {"too_many", too_many},
      {"full_send_queue", full_send_queue},
      {"length_overflow", length_overflow},
  });
}

}  // namespace apps::bad_input
