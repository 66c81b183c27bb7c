// SPDX-License-Identifier: MIT
// Builds the table of operations for verbs_set_ops() in the layout of the libibverbs in this process.
#pragma once

#include <cstddef>

#include "provider/plugin/abi/rdmav_abi.h"

namespace uiw::plugin {

struct NamedOp {
  const char* name;
  uiw_op op;
};

struct OpsTable {
  static constexpr std::size_t kMost = 128;
  uiw_op operations[kMost] = {};
};

// Returns the table, in which operations that are not in `ours` are null.
OpsTable make_ops_table(const NamedOp* ours, std::size_t ours_count);

}  // namespace uiw::plugin
