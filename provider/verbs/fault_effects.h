// SPDX-License-Identifier: MIT
// Effects of injected faults (provider/process/faults/) on queue pairs, ports and devices.
#pragma once

#include <infiniband/verbs.h>

#include "provider/export.h"
#include "provider/process/faults/faults.h"

namespace uiw::provider {

struct QpIdentity;

// To be called before a device is opened. 0 or an errno.
UIW_API int begin_faults();

// The status that is reported for work that has completed with `status`. If a fault of completions is due, this is the
// fault's status: another thread moves the queue pair to the error state, and `failed`, which belongs to the queue, is
// set. Until that state is reached, all later work completes as flushed. Also carries out a lost connection or an event
// that is due. Called with the lock of the queue held.
ibv_wc_status status_with_faults(Faults& faults, FaultKind queue, QpIdentity& qp, ibv_wc_status status, bool& failed);

}  // namespace uiw::provider
