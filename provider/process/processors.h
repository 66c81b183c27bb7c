// SPDX-License-Identifier: MIT
// The number of processors that this process may use.
#pragma once

#include <sched.h>

namespace uiw::provider {

// 1 if the system does not report it.
inline unsigned usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

}  // namespace uiw::provider
