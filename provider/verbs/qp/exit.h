// SPDX-License-Identifier: MIT
// What is done when the program calls exit(3).
#pragma once

namespace uiw::provider {

// From here on, exit(3) sends what queue pairs still have to say. Then it waits until the peers of connections that the
// program has ended have what TCP holds for them, for two seconds at most: if the process ended before, a peer that
// still sends would be answered with RST, and what TCP has lost on the way would not be sent again. Thread-safe.
void act_at_exit();

}  // namespace uiw::provider
