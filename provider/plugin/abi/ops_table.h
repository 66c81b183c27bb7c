// SPDX-License-Identifier: MIT
// The table of operations for verbs_set_ops(), laid out as the libibverbs in this process wants it.
#pragma once

#include <cstddef>

#include "provider/plugin/abi/rdmav_abi.h"

namespace uiw::plugin {

struct NamedOp {
  const char* name;
  uiw_op op;
};

// The table; operations that are not in `ours` are null. `count` is its length.
const uiw_op* make_ops_table(const NamedOp* ours, std::size_t ours_count, std::size_t* count);

}  // namespace uiw::plugin
