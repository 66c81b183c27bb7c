// SPDX-License-Identifier: MIT
// Effects of injected faults (provider/process/faults/) on queue pairs, ports and devices.
#pragma once

#include <infiniband/verbs.h>

#include "provider/export.h"
#include "provider/process/faults/faults.h"

namespace uiw::provider {

struct QpIdentity;

// Starts fault injection if the user has asked for it (Faults::begin). Called before a device is opened. 0 or an errno.
UIW_API int begin_faults();

// The status that is reported for work that has completed with `status`. If an injected fault hits this completion
// (Faults::due), the fault's status is returned, `failed` is set, and another thread moves the queue pair to ERR; while
// `failed` is set, later work that has succeeded completes as flushed. `failed` belongs to the work queue that `queue`
// names. If a fault that loses the connection or reports an async event is due, it is carried out, too. Work that has
// not succeeded gets no fault. Called with the lock of the work queue held.
ibv_wc_status status_with_faults(Faults& faults, FaultKind queue, QpIdentity& qp, ibv_wc_status status, bool& failed);

}  // namespace uiw::provider
