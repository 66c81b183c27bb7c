// SPDX-License-Identifier: MIT
#include "provider/plugin/abi/ops_table.h"

#include <cstring>

#include "provider/plugin/abi/release.h"

namespace uiw::plugin {

namespace {

struct KnownOp {
  const char* name;
  int since;  // the rdma-core release that added the operation; 39: release 39 or an earlier one
};

constexpr KnownOp kKnown[] = {
#define UIW_OPERATION(name, since) {#name, since},
#include "provider/plugin/abi/releases.def"
#undef UIW_OPERATION
};

}  // namespace

OpsTable make_ops_table(const NamedOp* ours, std::size_t ours_count) {
  static_assert(sizeof kKnown / sizeof kKnown[0] <= OpsTable::kMost);
  OpsTable table;
  const int now = release();
  std::size_t size = 0;
  for (const KnownOp& known : kKnown) {
    if (known.since > now) continue;
    uiw_op op = nullptr;
    for (std::size_t i = 0; i < ours_count; ++i) {
      if (std::strcmp(ours[i].name, known.name) == 0) op = ours[i].op;
    }
    table.operations[size++] = op;
  }
  return table;
}

}  // namespace uiw::plugin
