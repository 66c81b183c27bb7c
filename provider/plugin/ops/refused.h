// SPDX-License-Identifier: MIT
// Operations that are not supported, and whose manual page names an errno for this. For all other operations that are
// not supported libibverbs returns EOPNOTSUPP.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attributes);
int destroy_flow(ibv_flow* flow);

}  // namespace uiw::plugin
