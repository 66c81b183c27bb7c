// SPDX-License-Identifier: MIT
// Mutual exclusion between calls by which the program closes descriptors, and times at which the library has open
// descriptors that are not yet, or no longer, in the table (fd_table.h).
//
// A new descriptor of the library has the lowest free number, and enters the table a moment later. In between, a
// program that closes all descriptors that it does not know would close it; and if a file of the program then got the
// number, the library would later close that file. So each side waits for the other: the library for at most 0.1 s,
// the program for at most 1 s, since a thread of the other side may be stopped. After such a timeout nobody waits for
// that side until one of its changes or closings has ended. No thread waits for itself.
//
// In the child of a vfork, whose descriptors are its own, nothing waits. Part of the interposer. All functions are
// thread-safe and keep errno; those of the program's side may be called in signal handlers.
#pragma once

#include <atomic>

#include "kernel-abi/interposer/fd_table.h"

namespace uiw::kernel_abi {

// Called by the library around a change to its own descriptors, as UiwHost::begin_change and end_change. The pairs of
// one thread may be nested.
void fd_begin_change();
void fd_end_change();

// Brackets a call by which the program closes descriptors: while an object of this class lives, the library delays its
// changes, for 0.1 s at most. Does nothing without a table of descriptors, or in the child of a vfork.
class FdClosing {
 public:
  FdClosing() : active_(fd_table_is_used() && begin()) {}
  ~FdClosing() {
    if (active_) end();
  }
  FdClosing(const FdClosing&) = delete;
  FdClosing& operator=(const FdClosing&) = delete;
  // False if this object does nothing: there is no table of descriptors, or the process is the child of a vfork.
  bool is_active() const { return active_; }

 private:
  static bool begin();
  static void end();

  const bool active_;
};

// Called in the child of a fork, where only this thread exists: resets the counters to what this thread has begun.
void fd_changes_after_fork();

}  // namespace uiw::kernel_abi
