// SPDX-License-Identifier: MIT
// Reports when a network interface is removed, and its device with it (netlink, RTM_DELLINK). It works while the thread
// "uiw-cm" runs, that is, after the program has listened or connected for the first time.
#pragma once

#include <cstddef>
#include <memory>

#include "provider/process/cm_loop.h"

namespace uiw::provider {

// `observer` is called on the thread "uiw-cm" for each interface that is removed, from here on as long as the process
// lives. Thread-safe. At most kRemovalObservers functions; one that is known already is called once.
constexpr std::size_t kRemovalObservers = 4;
using RemovalObserver = void (*)(unsigned ifindex);
void observe_removed_interfaces(RemovalObserver observer);

// For CmLoop, which owns the handler. Null if netlink is not available. `fd` becomes the descriptor to watch for
// EPOLLIN.
std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd);

}  // namespace uiw::provider
