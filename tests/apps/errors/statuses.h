// SPDX-License-Identifier: MIT
// The two ends of the cases of uiw_statuses: a requester with a list of work of which one request fails, and a
// responder that shows it memory and has receives for it.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "tests/apps/support/two_programs.h"

namespace apps::manual::statuses {

inline constexpr std::uint32_t kSize = 1U << 20;  // of the memory at either end
inline constexpr std::uint32_t kMessage = 500, kReceive = 600;
inline constexpr std::uint32_t kLong = 400'000;     // more than one batch carries
inline constexpr std::uint32_t kLaterAt = 600'000;  // where nothing may be written
inline constexpr unsigned char kUntouched = 0xEE;
inline constexpr std::uint64_t kCulprit = 10;
inline constexpr unsigned kRemote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// Whether it completes with an answer of the peer, by either completion rule.
inline bool answered(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// What the responder shows.
struct Exposed {
  std::uint64_t address = 0;  // of kSize octets, by each of these
  std::uint32_t all = 0;      // all rights
  std::uint32_t none = 0;     // no remote rights
  std::uint32_t foreign = 0;  // of another protection domain
};

// The requester: its end, its memory, and a list of work.
struct Requester {
  Requester(const std::string& host, const Wanted& wanted) : end(host, wanted) {
    for (std::size_t i = 0; i < kSize; ++i) memory[i] = static_cast<unsigned char>(i * 7 + 1);
  }

  ibv_send_wr& add(std::uint64_t id, ibv_wr_opcode opcode, std::uint32_t length, std::uint64_t offset = 0,
                   bool signaled = true) {
    sges.push_back({reinterpret_cast<std::uint64_t>(memory.data()) + offset % kSize, length, mr->lkey});
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = opcode;
    request.num_sge = 1;
    request.send_flags = signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
    request.imm_data = htobe32(77);
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic.remote_addr = exposed.address + offset;
      request.wr.atomic.rkey = exposed.all;
      request.wr.atomic.compare_add = 3;
    } else if (opcode == IBV_WR_SEND_WITH_INV) {
      request.invalidate_rkey = exposed.all;  // a region, which is its owner's alone to invalidate
    } else {
      request.wr.rdma.remote_addr = exposed.address + offset;
      request.wr.rdma.rkey = exposed.all;
    }
    return work.emplace_back(request);
  }
  ibv_sge& last_sge() { return sges.back(); }

  // What the peer's queue pair allows.
  void add_earlier(unsigned access) {
    const bool writes = (access & IBV_ACCESS_REMOTE_WRITE) != 0;
    if (writes) add(1, IBV_WR_RDMA_WRITE, 4000, 0);
    if (writes) add(2, IBV_WR_RDMA_WRITE, 3000, 8192, false);
    add(3, IBV_WR_SEND, kMessage);
    if ((access & IBV_ACCESS_REMOTE_READ) != 0) add(4, IBV_WR_RDMA_READ, 1000, 65536);
    if (writes) add(5, IBV_WR_RDMA_WRITE, 5000, 16384);
  }
  void add_later() {
    add(20, IBV_WR_RDMA_WRITE, 4000, kLaterAt);
    add(21, IBV_WR_SEND, kMessage);
    add(22, IBV_WR_RDMA_READ, 1000, 65536);
    add(23, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, kLaterAt);
  }
  void post() {
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[i].sg_list = &sges[i];
      work[i].next = i + 1 < work.size() ? &work[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    good("ibv_post_send", ibv_post_send(end.qp(), work.data(), &bad));
  }

  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize);
  End end;
  ibv_mr* mr = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  Exposed exposed;
  std::vector<ibv_send_wr> work;
  std::vector<ibv_sge> sges;
};

struct Responder {
  Responder(const std::string& host, const Wanted& wanted) : end(host, wanted) {
    other_pd = ibv_alloc_pd(end.context());
    other_mr = apps::reg(other_pd, memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  }
  ~Responder() {
    good("ibv_dereg_mr", ibv_dereg_mr(other_mr));
    good("ibv_dealloc_pd", ibv_dealloc_pd(other_pd));
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  Exposed exposed() const {
    return {reinterpret_cast<std::uint64_t>(memory.data()), all->rkey, none->rkey, other_mr->rkey};
  }
  void post_receive(std::uint64_t id, std::uint32_t length = kReceive) {
    end.post_receive(id, {reinterpret_cast<std::uint64_t>(inbox.data()) + id * kReceive, length, in->lkey});
  }

  std::vector<unsigned char> memory = std::vector<unsigned char>(kSize, kUntouched);
  std::vector<unsigned char> inbox = std::vector<unsigned char>(std::size_t{16} * kReceive);
  End end;
  ibv_mr* all = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  ibv_mr* none = end.reg(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* in = end.reg(inbox.data(), inbox.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_pd* other_pd;
  ibv_mr* other_mr;
};

struct Failing {
  ibv_wc_status status = IBV_WC_SUCCESS;  // of the culprit
  std::function<void(Requester&)> add_culprit;
  std::optional<ibv_event_type> event;          // at the responder
  ibv_wc_status receive = IBV_WC_WR_FLUSH_ERR;  // of the receive that is there for the culprit
  bool here = false;                            // the requester alone finds the error, and the peer learns nothing
  bool late = false;                            // it finds it when work behind would be carried out: there is none
  Wanted peer;                                  // how the responder makes its queue pair
  std::function<void(Responder&)> post_receive = [](Responder& responder) { responder.post_receive(2); };
};

// The completions of the list that was posted.
void check_sent(Requester& requester, const Failing& what, bool local_rule);

// A case in which one request of the list fails in this way.
void add_case(Cases& cases, const std::string& name, const Failing& what);

// The cases whose peer is not there, or has no receive.
void add_absent_cases(Cases& cases);
void add_rnr_cases(Cases& cases);

}  // namespace apps::manual::statuses
