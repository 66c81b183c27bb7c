// SPDX-License-Identifier: MIT
// Operations on queue pairs with and without a connection.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);
int destroy_qp(ibv_qp* qp);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad);

}  // namespace uiw::plugin
