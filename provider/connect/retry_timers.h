// SPDX-License-Identifier: MIT
// Periodic checks for posted work that has waited for its peer for too long (Attachable::check_retry_timer()).
// Thread-safe; nothing here blocks.
#pragma once

namespace uiw::provider {

// To be called when a connection begins whose work may wait for too long. Throws std::bad_alloc.
void prepare_retry_timers();
// To be called when work is posted to such a connection, or when one begins that has posted work: from here on the
// retry timers of all queue pairs are checked from time to time, until none has posted work. Costs one load if they are
// being checked already.
void start_retry_timers() noexcept;
// Sets the function that is called before each round of checks, on the thread of CmLoop.
void before_retry_checks(void (*function)()) noexcept;
// In the child of a fork: the connections are the parent's.
void forget_retry_timers();

}  // namespace uiw::provider
