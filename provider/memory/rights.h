// SPDX-License-Identifier: MIT
// Access flags of ibv_reg_mr, ibv_bind_mw and ibv_modify_qp as rights of ddp/stag_table.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "ddp/stag_table.h"

namespace uiw::provider {

constexpr std::uint32_t kRemoteRights =
    ddp::kRemoteRead | ddp::kRemoteWrite | ddp::kRemoteAtomic | ddp::kFlushGlobal | ddp::kFlushPersistent;

// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT, which headers of rdma-core 44 and earlier releases do not
// define.
constexpr unsigned kAccessFlushGlobal = 1U << 8, kAccessFlushPersistent = 1U << 9;
constexpr unsigned kFlushAccess = kAccessFlushGlobal | kAccessFlushPersistent;

// The rights of peers that these access flags grant.
constexpr std::uint32_t remote_rights(unsigned access) {
  std::uint32_t rights = 0;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) rights |= ddp::kRemoteRead;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) rights |= ddp::kRemoteWrite;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) rights |= ddp::kRemoteAtomic;
  if ((access & kAccessFlushGlobal) != 0) rights |= ddp::kFlushGlobal;
  if ((access & kAccessFlushPersistent) != 0) rights |= ddp::kFlushPersistent;
  return rights;
}

}  // namespace uiw::provider
