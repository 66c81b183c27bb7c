// SPDX-License-Identifier: MIT
// The processors that this process may use: those on which it was allowed to run when it started, whatever affinity the
// program has set for its threads since. If they are unknown, the affinity of the calling thread is used. Thread-safe.
#pragma once

#include <sched.h>

#include <atomic>

namespace uiw {

namespace detail {
inline std::atomic<const cpu_set_t*> starting_processors{nullptr};
}

// `set` is null if the processors are unknown. The set must never be destroyed.
inline void set_starting_processors(const cpu_set_t* set) { detail::starting_processors.store(set); }

// The number of processors that this process may use; 1 if the system does not report it.
inline unsigned usable_processors() {
  if (const cpu_set_t* const set = detail::starting_processors.load()) return static_cast<unsigned>(CPU_COUNT(set));
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

// Lets the calling thread, a new one of the library, run on all usable processors. The thread has inherited the
// affinity of its creator, which the program may have pinned. If the system refuses, or the processors are unknown, the
// affinity stays as it is.
inline void use_all_processors() {
  if (const cpu_set_t* const set = detail::starting_processors.load()) sched_setaffinity(0, sizeof *set, set);
}

}  // namespace uiw
