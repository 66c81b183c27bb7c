// SPDX-License-Identifier: MIT
// Address handles, which an adapter for RoCE has. Queue pairs here are connected, so none ever carries a message.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);

}  // namespace uiw::plugin
