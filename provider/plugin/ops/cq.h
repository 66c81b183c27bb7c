// SPDX-License-Identifier: MIT
// Operations on completion queues.
#pragma once

#include <infiniband/verbs.h>

namespace uiw::plugin {

ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);
int resize_cq(ibv_cq* cq, int entries);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attributes);
int destroy_cq(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attributes);
int next_poll(ibv_cq_ex* handle);

}  // namespace uiw::plugin
