// SPDX-License-Identifier: MIT
// What the library does when the program calls exit(3).
#pragma once

namespace uiw::provider {

// After the first call of this function, exit(3) first sends posted work that waits to be sent together with later
// posts. Then it waits, for two seconds at most, until the peers of connections that the program has ended have
// received everything. If the process ended earlier, a peer that is still sending would be answered with RST, and
// TCP would then not send again what was lost on the way. Thread-safe.
void act_at_exit();

}  // namespace uiw::provider
