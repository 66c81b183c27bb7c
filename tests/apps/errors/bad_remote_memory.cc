// SPDX-License-Identifier: MIT
// Writes and Reads of remote memory that the peer must refuse.
#include <unistd.h>

#include <functional>

#include "tests/apps/errors/bad_input.h"

namespace apps::bad_input {

namespace {

// The request is refused by the peer. A Read must say so itself. A Write may complete as soon as TCP has it
// (RFC 5040 section 5.5); then the stream ends and what follows must not succeed.
void expect_remote_refusal(const char* what, Pair& pair, ibv_wr_opcode opcode, ibv_sge local, std::uint64_t remote,
                           std::uint32_t rkey) {
  Post post(opcode, {local}, remote, rkey);
  if (int error = post.at(pair.near)) die("%s: ibv_post_send: %s", what, std::strerror(error));
  ibv_wc wc = sent(pair.near);
  if (opcode == IBV_WR_RDMA_READ) {
    // Memory that has vanished is no matter of access rights: any error will do.
    if (std::string(what) == "remote_unmapped" && wc.status != IBV_WC_SUCCESS) return;
    expect_status(what, wc, {IBV_WC_REM_ACCESS_ERR});
    return;
  }
  expect_status(what, wc, {IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR});
  const auto end = Clock::now() + kPatience;
  while (wc.status == IBV_WC_SUCCESS) {
    if (Clock::now() > end) die("%s: nothing tells the requester of it", what);
    // A zero-length Write: no access is checked, it only asks whether the stream lives.
    Post probe(IBV_WR_RDMA_WRITE, {}, 0, 0);
    if (probe.at(pair.near) != 0) return;
    wc = sent(pair.near);
    usleep(1000);
  }
  expect_status(what, wc, {IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_REM_OP_ERR, IBV_WC_FATAL_ERR});
}

struct Target {
  std::uint64_t address;
  std::uint32_t rkey;
};
struct Remote {
  const char* name;
  std::function<Target(Pair&, Memory&)> spoil;
};
const std::vector<Remote> kRemotes = {
    {"stale_rkey",
     [](Pair& pair, Memory& memory) {
       ibv_mr* mr = reg(pair.far.pd(), memory);
       const Target stale{number(memory.base), mr->rkey};
       ibv_dereg_mr(mr);
       return stale;
     }},
    {"unknown_rkey",
     [](Pair& pair, Memory& memory) {
       return Target{number(memory.base), reg(pair.far.pd(), memory)->rkey ^ 0x12345600};
     }},
    {"remote_bounds",
     [](Pair& pair, Memory& memory) {
       return Target{number(memory.base) + kSize - 99, reg(pair.far.pd(), memory)->rkey};
     }},
    {"remote_below",
     [](Pair& pair, Memory& memory) {
       return Target{number(memory.base) - 1, reg(pair.far.pd(), memory)->rkey};
     }},
    {"remote_wrap",
     [](Pair& pair, Memory& memory) {
       return Target{~std::uint64_t{0} - 50, reg(pair.far.pd(), memory)->rkey};
     }},
    {"remote_access",
     [](Pair& pair, Memory& memory) {
       return Target{number(memory.base), reg(pair.far.pd(), memory, IBV_ACCESS_LOCAL_WRITE)->rkey};
     }},
    {"remote_other_pd",
     [](Pair& pair, Memory& memory) {
       return Target{number(memory.base), reg(ibv_alloc_pd(pair.far.id()->verbs), memory)->rkey};
     }},
    {"remote_unmapped",
     [](Pair& pair, Memory& memory) {
       // Registered, then unmapped by the program: placement and gathering must not fault.
       const Target gone{number(memory.base), reg(pair.far.pd(), memory)->rkey};
       memory.release();
       return gone;
     }},
};

void refused_by_the_peer(const Remote& remote, ibv_wr_opcode opcode) {
  Memory own(kSize), target(kSize);
  std::memset(own.base, 1, kSize);
  Pair pair;
  ibv_mr* mr = reg(pair.near.pd(), own);
  const Target at = remote.spoil(pair, target);
  expect_remote_refusal(remote.name, pair, opcode, sge(mr, 100), at.address, at.rkey);
  if (std::string(remote.name) != "remote_unmapped")
    for (std::size_t i = 0; i < kSize; ++i)
      if (target.base[i] != 0) die("a refused Write changed octet %zu", i);
}

}  // namespace

void remote_memory_cases(Cases& cases) {
  for (const Remote& remote : kRemotes)
    for (ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE})
      cases[std::string(remote.name) + (opcode == IBV_WR_RDMA_READ ? "_read" : "_write")] = [&remote, opcode] {
        refused_by_the_peer(remote, opcode);
      };
}

}  // namespace apps::bad_input
