// SPDX-License-Identifier: MIT
// Tells when a network interface goes away, and its device with it (netlink, RTM_DELLINK). Looks out as long as the
// thread "uiw-cm" runs, that is once a program listens or connects.
#pragma once

#include <functional>
#include <memory>

#include "provider/export.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

// `observer` runs on the thread "uiw-cm" for each interface that has gone. It stays for the life of the process.
// Thread-safe.
UIW_API void observe_removed_interfaces(std::function<void(unsigned ifindex)> observer);

// For the loop, which keeps the handler. Null where netlink is not to be had. `fd` is what to watch for EPOLLIN.
std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd);

}  // namespace uiw::provider
