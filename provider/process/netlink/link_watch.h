// SPDX-License-Identifier: MIT
// Watches network interfaces: reports that one goes up or down, gets or loses an address, or is removed, and its device
// with it (netlink, RTNLGRP_LINK and RTNLGRP_*_IFADDR). Works while the thread "uiw-cm" runs, which starts with the
// first device that the process opens, or the first listener or call.
#pragma once

#include <cstddef>
#include <memory>

#include "provider/process/cm_loop.h"
#include "provider/process/device.h"

namespace uiw::provider {

struct InterfaceNews {
  enum class Kind { removed, link, address_added, address_removed, missed };
  Kind kind;
  unsigned ifindex = 0;  // of the interface; not for `missed`
  bool active = false;   // `link`: as is_active() of device.h
  Gid gid{};             // address_*: of the address
};

// `observer` is called on the thread "uiw-cm" for all that happens from here on, as long as the process lives. After
// `missed` anything may have happened: the observer has to find the current state itself. Each observer gets `missed`
// once at the start. Thread-safe. At most kInterfaceObservers functions; a function that is passed twice is called
// once.
constexpr std::size_t kInterfaceObservers = 4;
using InterfaceObserver = void (*)(const InterfaceNews& news);
void observe_interfaces(InterfaceObserver observer);

// For CmLoop, when it begins to watch: reports `missed`, since earlier changes were not observed.
void look_at_interfaces();
// Makes the handler for CmLoop, which owns it. Null if netlink is not available. `fd` becomes the descriptor to watch
// for EPOLLIN.
std::shared_ptr<CmLoop::Handler> make_link_watch(int& fd);

}  // namespace uiw::provider
