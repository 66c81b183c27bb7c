// SPDX-License-Identifier: MIT
// A shared receive queue with its buffers, and pairs of queue pairs of which one takes from it.
#pragma once

#include <cstring>

#include "provider/verbs/srq.h"
#include "tests/unit/provider/pair.h"

namespace uiw::test {

using provider::Srq;

// A shared receive queue and its buffers, in a protection domain of its own (Verbs draft section 6.3.5). A receive's
// id is its buffer's number.
struct Pool {
  explicit Pool(Context& in, std::uint32_t depth = 16, std::size_t size = 256, std::size_t count = 64)
      : context(in), pd(in.shared_from_this()), slot(size), memory(size * count) {
    ibv_srq_attr attributes{depth, 2, 0};
    srq = Srq::create(pd, attributes, false, handle());
    REQUIRE(srq);
    mr = Mr::create(pd, memory.data(), memory.size(), address_of(memory), IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(mr);
  }
  ibv_srq* handle() { return reinterpret_cast<ibv_srq*>(this); }

  int post(std::uint64_t id) {
    ibv_sge sge{address_of(memory) + id * slot, static_cast<std::uint32_t>(slot), mr->key()};
    return post(id, &sge, 1);
  }
  int post(std::uint64_t id, ibv_sge* sges, int count) {
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = sges;
    request.num_sge = count;
    ibv_recv_wr* bad = nullptr;
    const int error = srq->post(&request, &bad);
    if (bad != (error != 0 ? &request : nullptr)) return -1;
    return error;
  }
  int modify(int mask, std::uint32_t max_wr, std::uint32_t limit) {
    return srq->modify(ibv_srq_attr{max_wr, 0, limit}, mask);
  }
  ibv_srq_attr query() {
    ibv_srq_attr attributes{};
    srq->query(attributes);
    return attributes;
  }
  const std::byte* at(std::uint64_t id) const { return memory.data() + id * slot; }

  Context& context;
  Pd pd;
  std::size_t slot;
  Bytes memory;
  std::unique_ptr<Srq> srq;
  std::unique_ptr<Mr> mr;
};

// One that sends, and one that takes from the pool.
struct PoolPair : Pair {
  explicit PoolPair(Pool& pool) : Pair(pool.context.shared_from_this(), {}, {.srq = pool.srq.get()}) { connect(); }
  // `number` in the first octets, so that the receiver can tell. No check in it: threads use it.
  int send(std::uint32_t number, std::uint32_t size) {
    std::memcpy(memory.data(), &number, sizeof number);
    return a.try_post(IBV_WR_SEND, number, {memory.sge(0, size)}, IBV_SEND_INLINE);
  }
  Registered memory{a, Bytes(64)};
};
using PoolPairs = std::vector<std::unique_ptr<PoolPair>>;

inline PoolPairs pairs_of(Pool& pool, std::size_t count) {
  PoolPairs made(count);
  for (auto& pair : made) pair = std::make_unique<PoolPair>(pool);
  return made;
}

inline std::uint32_t number_at(const Pool& pool, std::uint64_t id) {
  std::uint32_t number;
  std::memcpy(&number, pool.at(id), sizeof number);
  return number;
}

// The next completion of any of them, and whose.
inline std::pair<std::size_t, ibv_wc> next(PoolPairs& all) {
  std::size_t who = 0;
  ibv_wc completion{};
  REQUIRE(eventually([&] {
    who = (who + 1) % all.size();
    return all[who]->b.receive_cq->poll(1, &completion) == 1;
  }));
  return {who, completion};
}

inline bool event_is(const std::optional<ib_uverbs_async_event_desc>& event, ibv_event_type type, const void* about) {
  return event && event->event_type == static_cast<unsigned>(type) &&
         event->element == reinterpret_cast<std::uintptr_t>(about);
}

}  // namespace uiw::test
