// SPDX-License-Identifier: MIT
// When posted work is looked at that may have waited for its peer for too long (Attachable::check_retry_timer()).
// Thread-safe; nothing here blocks.
#pragma once

namespace uiw::provider {

// A connection begins whose work may wait for too long. Throws std::bad_alloc.
void prepare_retry_timers();
// Work has been posted to such a connection, or one begins for which work was posted before: from here on the retry
// timers of all queue pairs are checked from time to time, until none has posted work. Costs one load if that is
// running already.
void start_retry_timers() noexcept;
// Called before each round of checks, on the thread of CmLoop.
void before_retry_checks(void (*function)()) noexcept;
// In the child of a fork: the connections are the parent's.
void forget_retry_timers();

}  // namespace uiw::provider
