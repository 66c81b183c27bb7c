// SPDX-License-Identifier: MIT
// What the cases of uiw_bad_input are made of: memory that can be taken away, and work requests of any content.
#pragma once

#include <sys/mman.h>

#include <vector>

#include "tests/apps/support/pair.h"

namespace apps::bad_input {

inline constexpr std::size_t kSize = 65536;
inline constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Memory {
  std::uint8_t* base;
  std::size_t size;
  explicit Memory(std::size_t octets, int protection = PROT_READ | PROT_WRITE) : size(octets) {
    void* memory = mmap(nullptr, octets, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) die("mmap: %s", std::strerror(errno));
    base = static_cast<std::uint8_t*>(memory);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { release(); }
  void release() {
    if (size != 0) munmap(base, size);
    size = 0;
  }
};

inline ibv_mr* reg(ibv_pd* pd, const Memory& memory, int access = kAll) {
  return apps::reg(pd, memory.base, memory.size, access);
}

// One work request.
struct Post {
  ibv_send_wr request{};
  std::vector<ibv_sge> list;

  Post(ibv_wr_opcode opcode, std::vector<ibv_sge> sges, std::uint64_t remote = 0, std::uint32_t rkey = 0)
      : list(std::move(sges)) {
    request.wr_id = 77;
    request.opcode = opcode;
    request.wr.rdma.remote_addr = remote;
    request.wr.rdma.rkey = rkey;
  }
  int at(Endpoint& end) {
    request.sg_list = list.data();
    request.num_sge = static_cast<int>(list.size());
    return raw(end);
  }
  int raw(Endpoint& end) {
    request.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(end.qp(), &request, &bad);
    if (error != 0 && bad != &request) die("ibv_post_send fails and bad_wr does not tell where");
    return error;
  }
};

inline ibv_sge sge(const ibv_mr* mr, std::uint32_t length, std::size_t offset = 0) {
  return {number(mr->addr) + offset, length, mr->lkey};
}

void work_request_cases(Cases& cases);
void remote_memory_cases(Cases& cases);
void object_cases(Cases& cases);

}  // namespace apps::bad_input
