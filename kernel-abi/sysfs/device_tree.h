// SPDX-License-Identifier: MIT
// The sysfs tree that this process uses, and the uverbs numbers of uiw in it. Thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "kernel-abi/sysfs/tree_content.h"

namespace uiw::kernel_abi {

// The root of the tree; null if there are no devices: no interface is suitable, a setting is wrong, or no directory can
// be written (the last two are reported once on stderr). The string is never freed. With `rescan` the interfaces are
// listed again. They are also listed again after a change of the effective user, who may not be able to read the old
// tree.
const char* device_tree_root(bool rescan);

// The devices that the tree shows, in the order of their interfaces; none if there is no tree. `rescan` lists the
// interfaces again.
// Throws std::bad_alloc.
std::vector<NumberedDevice> numbered_devices(bool rescan);

// Returns N if `name` is "uverbsN" and this node belongs to a device of uiw; otherwise nullopt.
std::optional<unsigned> own_verbs_node(const char* name);

// Opens a file of a port whose content changes, by its path in the tree
// ("class/infiniband/uiw_eth0/ports/1/counters/symbol_error", ".../state", ".../gids/0"). Returns a descriptor from
// which the current content is read; -ENXIO for other paths, and if the device, the interface or the index of a GID
// does not exist; another negative errno if there is no descriptor. For a folder that has counters in it or below,
// updates all counters (refresh_counters()) and returns -ENXIO. Throws std::bad_alloc.
int open_port_file(const char* path);
// Updates the counters in the tree, for programs that read it without the interposer. Throws std::bad_alloc.
void refresh_counters();

// Called before a fork, and after it in both parent and child. In between the forking thread holds the lock of the
// tree: if another thread held it during the fork, nobody could unlock the child's copy of the lock.
void lock_device_tree();
void unlock_device_tree();

}  // namespace uiw::kernel_abi
