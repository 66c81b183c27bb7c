// SPDX-License-Identifier: MIT
// Windows and regions on connected queue pairs, for the tests of memory.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <memory>

#include "provider/memory/memory.h"
#include "tests/unit/provider/pair.h"

namespace uiw::test {

using provider::Dm;
using provider::Mw;

inline constexpr std::size_t kPage = 4096;
inline constexpr unsigned kBindable = kLocal | IBV_ACCESS_MW_BIND;

struct Pages {
  std::byte* memory;
  std::size_t size;
  explicit Pages(std::size_t count, int protection = PROT_READ | PROT_WRITE) : size(count * kPage) {
    void* mapped = ::mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    memory = static_cast<std::byte*>(mapped);
  }
  ~Pages() { ::munmap(memory, size); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // Not by munmap(): another thread's next mapping could come to lie there, and ~Pages() would take that away.
  void make_inaccessible(std::size_t offset, std::size_t length) const {
    REQUIRE(::mmap(memory + offset, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
  }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(memory); }
};

inline ddp::Region region_of(const Mr& mr) {
  const auto found = provider::stag_table().region(static_cast<ddp::Stag>(mr.key()));
  REQUIRE(found);
  return *found;
}
inline bool found(std::uint32_t key) { return provider::stag_table().region(static_cast<ddp::Stag>(key)).has_value(); }

// An ibv_mr and an ibv_mw as libibverbs has them, of which queue pairs read the keys.
inline ibv_mr handle_of(const Mr& mr) {
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

inline ibv_mw_bind_info info_of(ibv_mr* mr, std::uint64_t address, std::uint64_t length, unsigned access) {
  return {mr, address, length, access};
}

inline int post_bind2(Side& side, std::uint64_t id, Window& window, std::uint32_t rkey, const ibv_mw_bind_info& info,
                      unsigned flags = 0) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = flags;
  request.bind_mw.mw = &window.handle;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = info;
  ibv_send_wr* bad = nullptr;
  const std::uint32_t before = window.handle.rkey;
  const int error = side.qp->post_send(&request, &bad);
  CHECK(window.handle.rkey == before);  // the program keeps the key that it has chosen
  if (error == 0) window.handle.rkey = (before & ~0xFFU) | (rkey & 0xFF);
  return error;
}
inline int post_invalidate(Side& side, std::uint64_t id, std::uint32_t rkey, unsigned flags = 0) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_LOCAL_INV;
  request.send_flags = flags;
  request.invalidate_rkey = rkey;
  ibv_send_wr* bad = nullptr;
  return side.qp->post_send(&request, &bad);
}
inline int bind1(Side& side, std::uint64_t id, Window& window, const ibv_mw_bind_info& info) {
  ibv_mw_bind bind{};
  bind.wr_id = id;
  bind.bind_info = info;
  return side.qp->post_bind(window.handle, bind);
}

// Two connected queue pairs: `far` has memory to bind windows to, `near` uses them.
struct WindowPair : ConnectedPair {
  Side &near = a, &far = b;
  Registered own{near, pattern(1000), kAll}, target{far, Bytes(1000), kBindable};
  ibv_mr target_handle = handle_of(*target.mr);

  ibv_mw_bind_info all(unsigned access = kRemote) { return info_of(&target_handle, target.address(), 1000, access); }
  // A Read of one octet behind it tells that the Write was placed.
  ibv_wc_status write(std::uint32_t rkey, std::uint64_t to, std::uint32_t size = 1000) {
    if (near.post(IBV_WR_RDMA_WRITE, 1, {own.sge(0, size)}, 0, rkey, to) != 0) return IBV_WC_GENERAL_ERR;
    if (near.post(IBV_WR_RDMA_READ, 2, {}, 0, 0, 0) != 0) return IBV_WC_GENERAL_ERR;
    const ibv_wc first = next(*near.send_cq), second = next(*near.send_cq);
    return first.status != IBV_WC_SUCCESS ? first.status : second.status;
  }
  ibv_wc_status fetch_add(std::uint32_t rkey, std::uint64_t to, std::uint64_t add) {
    return near.post_atomic(0, own.sge(0, 8), rkey, to, add) != 0 ? IBV_WC_GENERAL_ERR : next(*near.send_cq).status;
  }
};

}  // namespace uiw::test
