// SPDX-License-Identifier: MIT
// Operations that are not supported and whose manual page names another errno for this than EOPNOTSUPP, which
// libibverbs returns for all others.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attributes);
int destroy_flow(ibv_flow* flow);

}  // namespace uiw::plugin
