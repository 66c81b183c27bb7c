// SPDX-License-Identifier: MIT
// Watches network interfaces by netlink (RTNLGRP_LINK and RTNLGRP_*_IFADDR): reports that an interface goes up or down,
// gets or loses an address, or is removed. Works while the thread "uiw-cm" runs, which starts when the process first
// opens a device, listens for connections, or connects.
#pragma once

#include <cstddef>
#include <memory>

#include "provider/process/cm_loop.h"
#include "provider/process/device.h"

namespace uiw::provider {

struct InterfaceNews {
  enum class Kind { removed, link, address_added, address_removed, missed };
  Kind kind;
  unsigned ifindex = 0;  // the interface; not set for `missed`
  bool active = false;   // for `link`: whether the interface is up (is_active() of device.h)
  Gid gid{};             // the address that was added or removed
};

// The thread "uiw-cm" calls `observer` for each change of an interface from now on, as long as the process lives. After
// `missed` any change may have happened: the observer has to read the current state itself. When this thread starts, it
// reports `missed` once. Thread-safe. At most kInterfaceObservers functions can be registered; a function that is
// passed twice is called once for each change.
constexpr std::size_t kInterfaceObservers = 4;
using InterfaceObserver = void (*)(const InterfaceNews& news);
void observe_interfaces(InterfaceObserver observer);

// Called by CmLoop when it begins to watch interfaces: reports `missed`, since earlier changes were not observed.
void look_at_interfaces();
// Makes the handler of netlink messages for CmLoop, which owns the handler. Null if netlink is not available. `fd`
// becomes the descriptor to watch for EPOLLIN.
std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd);

}  // namespace uiw::provider
