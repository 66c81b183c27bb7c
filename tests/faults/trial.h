// SPDX-License-Identifier: MIT
// One run of a life in a process of its own, in which one call of uiw's fails.
#pragma once

#include <string>

#include "tests/faults/faults.h"

namespace faults {

// What the child says in the end; lives in memory that it shares with its parent.
struct Verdict {
  bool finished = false;
  bool worked = false;                    // the life went as without a fault
  char outcome[256] = {};                 // the call that failed, or the completion, or the event
  int error = 0;                          // its errno
  char wrong[4096] = {};                  // what must not be; empty where all is well
  long descriptors = 0, allocations = 0;  // in the end
};

struct Shared {
  Control control;
  Verdict verdict;
};

struct Course {
  std::string life;
  bool warm = false;   // the process has lived one life already, and has another connection all the while
  bool fresh = false;  // the runtime directory is empty at first
  // Allocations are judged like descriptors. For a person who looks at each finding: threads, tables and caches of a
  // process allocate at moments of their own, too.
  bool allocations = false;
};

// What is open and allocated in the end of a run without a fault.
struct Reference {
  long descriptors = 0, allocations = 0;
};

// Runs in the child, with the plan that stands in `shared.control`; `reference` is null in a run without a fault.
void run_trial(const Course& course, Shared& shared, const Reference* reference);

// "libuiw+0x1234 library+0x56 ...", from the inside to the outside.
std::string text_of(const Frames& frames);

// Whether libfaults.so is there.
bool is_preloaded();

}  // namespace faults
