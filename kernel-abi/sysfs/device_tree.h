// SPDX-License-Identifier: MIT
// The sysfs tree that this process uses, and the uverbs numbers of uiw in it. Thread-safe.
#pragma once

#include <vector>

#include "kernel-abi/sysfs/tree_content.h"

namespace uiw::kernel_abi {

// The root of the tree; null if there are no devices: no interface is suitable, a setting is wrong, or no directory can
// be written (the last two are reported once on stderr). The string is never freed. `rescan` looks at the interfaces
// again; so does a change of the effective user, who may not be able to read the old tree.
const char* device_tree_root(bool rescan);

// The devices that the tree shows, in the order of their interfaces; none if there is no tree. `rescan` as above.
// Throws std::bad_alloc.
std::vector<NumberedDevice> numbered_devices(bool rescan);

// True for "uverbsN" if N belongs to a device of uiw.
bool is_own_verbs_node(const char* name);

// Called before and after a fork, so that the child finds the locks free.
void lock_device_tree();
void unlock_device_tree();

}  // namespace uiw::kernel_abi
