// SPDX-License-Identifier: MIT
// Address handles, which only adapters for RoCE have. All queue pairs of uiw are connected, so no message uses them.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);

}  // namespace uiw::plugin
