// SPDX-License-Identifier: MIT
// Address handles and multicast groups, which only RoCE devices have (Transport::roce).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uiw::plugin {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);

// A queue pair that is attached to a multicast group receives its datagrams. To send to a group, a program uses an
// address handle.
int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);

}  // namespace uiw::plugin
