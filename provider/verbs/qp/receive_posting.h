// SPDX-License-Identifier: MIT
// From ibv_sge and ibv_recv_wr to the work of a stream.
#pragma once

#include <infiniband/verbs.h>

#include "rdmap/work.h"

namespace uiw::provider {

// The memory that a request names. What may not be used so is posted all the same, and fails when it is used (IBV_WC_
// LOC_PROT_ERR), as with adapters. Inside a ReadSection.
rdmap::Sge resolve(const ibv_sge& sge, const void* domain, ddp::Right right);

// Posts a list to a queue pair's own queue or a shared one, as the manual page of ibv_post_recv says: stops at the
// first request that is wrong, and tells which in `bad`. 0, EINVAL for a request that is wrong, or ENOMEM for one too
// many. To be called by the queue's one poster, inside a ReadSection.
int post_receives(rdmap::ReceiveQueue& queue, const void* domain, ibv_recv_wr* requests, ibv_recv_wr** bad);

}  // namespace uiw::provider
