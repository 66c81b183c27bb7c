// SPDX-License-Identifier: MIT
// Which tree does this process see now, and which uverbs numbers in it are ours? Thread-safe.
#pragma once

namespace uiw::kernel_abi {

// The root of the tree, or null where no device is offered: no interface fits, a setting is wrong, or no
// directory can be written (the last two are said once on stderr). The string lives for ever. `rescan` looks
// at the interfaces again; so does a change of the effective user, who may not be able to read the old tree.
const char* device_tree_root(bool rescan);

// True for "uverbsN" where N has been given to one of our devices.
bool is_own_verbs_node(const char* name);

// For fork: the locks of this module stay whole in the child.
void lock_device_tree();
void unlock_device_tree();

}  // namespace uiw::kernel_abi
