// SPDX-License-Identifier: MIT
// Periodic checks for posted work that has waited for its peer for too long (Attachable::check_retry_timer()).
// Thread-safe; nothing here blocks.
#pragma once

namespace uiw::provider {

// To be called before a connection with a retry timer, or an attempt to make one, begins. Throws std::bad_alloc.
void prepare_retry_timers();
// To be called when work is posted to such a connection, or when such a connection begins with posted work. From here
// on the retry timers of all queue pairs are checked periodically, until none has posted work. Costs only two loads if
// the checks run already.
void start_retry_timers() noexcept;
// Sets the function that is called before each round of checks, on the thread "uiw-cm" (CmLoop).
void before_retry_checks(void (*function)()) noexcept;
// To be called in the child of a fork: stops the checks, since the connections belong to the parent.
void forget_retry_timers();

}  // namespace uiw::provider
