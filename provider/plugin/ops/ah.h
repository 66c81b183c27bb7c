// SPDX-License-Identifier: MIT
// Address handles and multicast groups, which only adapters for RoCE have.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uiw::plugin {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);

// Multicast groups. Programs send to a group by an address handle, too.
int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);

}  // namespace uiw::plugin
