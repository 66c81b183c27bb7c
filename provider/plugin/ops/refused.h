// SPDX-License-Identifier: MIT
// The operations that uiw does not support and nevertheless has functions for, since their manual page names the errno
// with which they fail. All other operations that uiw does not support are missing from the plugin's table, and
// libibverbs returns EOPNOTSUPP for them.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attributes);
int destroy_flow(ibv_flow* flow);

}  // namespace uiw::plugin
