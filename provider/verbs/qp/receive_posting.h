// SPDX-License-Identifier: MIT
// Posting receives: post_receives() turns ibv_recv_wr into entries of a receive queue. resolve() turns an ibv_sge into
// an element of such an entry, or of an entry of a send queue.
#pragma once

#include <infiniband/verbs.h>

#include "rdmap/work.h"

namespace uiw::provider {

// Fills in the element for an ibv_sge, with the registration that its lkey names now. Memory that may not be used with
// `right` is posted nevertheless and fails when it is used (IBV_WC_LOC_PROT_ERR), as on adapters. `known`, which
// belongs to the caller's queue, remembers the last look-up. Called inside a ReadSection.
void resolve(const ibv_sge& sge, const ddp::Accessor& memory, ddp::Right right, ddp::KnownSlot& known,
             rdmap::Sge& element);

// Posts a list to a queue pair's own queue or to a shared one, as the manual page of ibv_post_recv says: stops at the
// first request that cannot be posted and stores it in `bad`. Returns 0, EINVAL for a wrong request, or ENOMEM if the
// queue is full or memory is short. Called by one thread at a time for each queue, inside a ReadSection
// (base/grace_period.h). `known`, one for each queue, remembers the queue's last look-up of an STag.
int post_receives(rdmap::ReceiveQueue& queue, const ddp::Accessor& memory, ddp::KnownSlot& known, ibv_recv_wr* requests,
                  ibv_recv_wr** bad);

}  // namespace uiw::provider
