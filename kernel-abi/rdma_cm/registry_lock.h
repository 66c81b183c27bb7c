// SPDX-License-Identifier: MIT
// The registry's lock, which guards the channels, the ids, their states and their events. It is taken after the command
// lock of an id, and before the lock of CmLoop. It is never held while a function of provider/ is called that may call
// back into this folder.
#pragma once

#include "base/mutex.h"

namespace uiw::kernel_abi {

inline constinit TableMutex g_registry_lock;

}  // namespace uiw::kernel_abi
