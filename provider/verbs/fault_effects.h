// SPDX-License-Identifier: MIT
// What the faults do that a user asks for (provider/process/faults/), to queue pairs, ports and devices.
#pragma once

#include <infiniband/verbs.h>

#include "provider/export.h"
#include "provider/process/faults/faults.h"

namespace uiw::provider {

struct QpIdentity;

// To be called before a device is opened. 0 or an errno.
UIW_API int begin_faults();

// The status that the program gets for work that has completed with `status`: where a fault is due, that of the fault.
// The queue pair enters the error state soon after that, by another thread, and `failed` is set; until then all that
// completes behind it completes as flushed. A lost connection or an event may be due as well. `failed` belongs to the
// queue. Called with the lock of that queue.
ibv_wc_status status_with_faults(Faults& faults, FaultKind queue, QpIdentity& qp, ibv_wc_status status, bool& failed);

}  // namespace uiw::provider
