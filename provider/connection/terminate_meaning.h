// SPDX-License-Identifier: MIT
// What a Terminate message means to the program, on either side (RFC 5040 section 4.8; Verbs draft sections 6.2 and
// 8.3).
#pragma once

#include <infiniband/verbs.h>

#include "rdmap/rdmap_format.h"
#include "rdmap/work.h"

namespace uiw::provider {

// The completion status of the work request that the peer's Terminate is about (RFC 5040 section 4.8; Verbs draft
// section 8.3.2).
rdmap::Status completion_status_of(const rdmap::Terminate& terminate);

// The async event that is reported to the program of the side that sends this Terminate, since it has found the error
// (Verbs draft figures 24 and 25).
ibv_event_type event_of(const rdmap::Terminate& terminate);

}  // namespace uiw::provider
