// SPDX-License-Identifier: MIT
// The plugin's operations on shared receive queues, named as in libibverbs' table.
#pragma once

#include "provider/plugin/objects.h"

namespace uiw::provider {
class Srq;
}

namespace uiw::plugin {

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes);
int destroy_srq(ibv_srq* srq);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attributes);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);

// Returns libuiw's object for the program's shared receive queue; null if `srq` is null.
rnic::Srq* rnic_of(ibv_srq* srq);

}  // namespace uiw::plugin
