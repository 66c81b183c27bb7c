// SPDX-License-Identifier: MIT
// What common adapters have at least: programs that ask for more do not run everywhere. Each number is the least of
// those of the adapters named, read in the drivers of Linux 6.12 and rdma-core 65.
//
// iWARP: Chelsio T5 and T6 (cxgb4), Intel E810 (irdma), Marvell FastLinQ (qedr). RoCE: Nvidia ConnectX-4 and later
// (mlx5), Intel E810 (irdma), Broadcom (bnxt_re), Marvell FastLinQ (qedr), HiSilicon (hns). Older ones have less: Intel
// X722 takes 48 octets inline and 3 SGEs, HiSilicon's HIP08 32 octets inline.
#pragma once

#include <cstdint>

namespace uiw::provider::check {

struct Adapters {
  const char* transport;
  std::uint32_t inline_data;
  std::uint32_t sges;  // of a send or receive queue; qedr, RDMA_MAX_SGE_PER_SQ_WQE; cxgb4, T4_MAX_RECV_SGE
  std::uint32_t read_sges;
  std::uint32_t requests;  // of a queue; irdma, (32768 - 258) / 8
  std::uint32_t completions;
  std::uint32_t reads;  // outstanding RDMA Reads and atomics, at either end
};

// Inline: irdma, IRDMA_MAX_INLINE_DATA_SIZE. Reads: cxgb4, c4iw_query_device() has one SGE; 32 at once by cxgb4 and
// qedr. Completions: cxgb4, device.c.
constexpr Adapters kIwarpAdapters{"iWARP", 101, 4, 1, 4063, 65'518, 32};
// Inline: bnxt_re, 6 SGEs of 16 octets. Completions: irdma. Reads: mlx5.
constexpr Adapters kRoceAdapters{"RoCE", 96, 4, 4, 4063, 1'048'574, 16};

}  // namespace uiw::provider::check
