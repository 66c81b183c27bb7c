// SPDX-License-Identifier: MIT
// From ibv_recv_wr to the work of a receive queue, be it a queue pair's own or a shared one.
#pragma once

#include <infiniband/verbs.h>

#include "rdmap/work.h"

namespace uiw::provider {

// Posts a list, as the manual page of ibv_post_recv says: stops at the first request that is wrong, and tells which in
// `bad`. 0, EINVAL for a request that is wrong, or ENOMEM for one too many. The memory must belong to `domain`. To be
// called by the queue's one poster, inside a ReadSection.
int post_receives(rdmap::ReceiveQueue& queue, const void* domain, ibv_recv_wr* requests, ibv_recv_wr** bad);

}  // namespace uiw::provider
