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

// Returns the table, in which operations that are not in `ours` are null. `count` becomes its length. The table is
// static: the next call overwrites it.
const uiw_op* make_ops_table(const NamedOp* ours, std::size_t ours_count, std::size_t* count);

}  // namespace uiw::plugin
