// SPDX-License-Identifier: MIT
// Queue pairs of type UD of the loopback device, as the cases of uiw_datagrams use them. The message that each sends is
// a number of 64 bits; it arrives behind the 40 octets of the GRH.
#pragma once

#include <atomic>
#include <vector>

#include "tests/apps/support/pair.h"

namespace apps::datagrams {

constexpr std::uint32_t kQkey = 0x1234567;
constexpr std::size_t kGrh = 40, kSlot = kGrh + sizeof(std::uint64_t);

struct Device {
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ibv_context* context;
  ibv_pd* pd;
  ibv_ah* self;  // leads to the device's first GID
};

struct Queue {
  explicit Queue(const Device& device, int entries = 256);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  // The next completion must come, and be good; by polling, or by sleeping.
  ibv_wc next(bool sleep = false) const;
  bool empty() const;
  ibv_comp_channel* channel;
  ibv_cq* cq;
};

struct Memory {
  explicit Memory(const Device& device, std::size_t slots);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::uint64_t message(std::uint64_t slot) const;
  std::vector<std::uint8_t> octets;
  ibv_mr* mr;
};

// In RTS once it is made.
struct Qp {
  // Without `sends` one queue is for both. `flags` are those of ibv_create_qp_ex().
  Qp(const Device& device, ibv_cq* receives, ibv_srq* srq = nullptr, ibv_cq* sends = nullptr, std::uint32_t flags = 0);
  ~Qp() { destroy(); }
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;
  void destroy();
  int step(ibv_qp_state state, int mask) const;
  void receive(const Memory& memory, std::uint64_t slot) const;  // the slot is the wr_id too
  // 0 or an errno. Inline; unsignaled with wr_id 0. The immediate data are the message, too.
  int send(std::uint32_t to, std::uint64_t message, std::uint64_t wr_id = 0, bool immediate = false) const;
  ibv_ah* to;
  ibv_qp* qp;
};

void receive(ibv_srq* srq, const Memory& memory, std::uint64_t slot);

// See datagrams_together.cc and datagrams_batches.cc.
void together_cases(Cases& cases);
void batch_cases(Cases& cases);

}  // namespace apps::datagrams
