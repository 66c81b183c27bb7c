// SPDX-License-Identifier: MIT
// Reports when a network interface is removed, and its device with it (netlink, RTM_DELLINK). It works while the thread
// "uiw-cm" runs, that is, after the program has listened or connected for the first time.
#pragma once

#include <functional>
#include <memory>

#include "provider/process/cm_loop.h"

namespace uiw::provider {

// `observer` is called on the thread "uiw-cm" for each interface that is removed. It is kept as long as the process
// lives. Thread-safe. Throws std::bad_alloc.
void observe_removed_interfaces(std::function<void(unsigned ifindex)> observer);

// For CmLoop, which owns the handler. Null if netlink is not available. `fd` becomes the descriptor to watch for
// EPOLLIN.
std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd);

}  // namespace uiw::provider
