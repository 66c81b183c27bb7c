// SPDX-License-Identifier: MIT
// The table that gives for each descriptor of uiw in this process what it refers to (entry.h).
//
// It is a lock-free array indexed by descriptor number, mapped when the interposer is about to load libuiw.so.1. The
// child of a fork has a copy, and the library knows which entries the child may use. The child of a vfork shares the
// memory but has another pid: it may read the table and must not change it.
//
// Part of the interposer: no allocation, no C++ runtime.
#pragma once

#include <stdint.h>

#include <atomic>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// An entry of the table: 0 for no entry, or an object (entry.h).
class FdEntry {
 public:
  constexpr explicit FdEntry(uint64_t bits = 0) : bits_(bits) {}
  bool present() const { return bits_ != 0; }
  uint64_t object() const { return bits_; }
  unsigned kind() const { return static_cast<unsigned>(bits_ & 7); }
  bool internal() const { return kind() == UIW_OBJECT_INTERNAL; }
  // True if writes to the descriptor are not commands for the library, and its duplicates get no entry.
  bool has_no_commands() const {
    return kind() == UIW_OBJECT_COMPLETION_CHANNEL || kind() == UIW_OBJECT_EPOLL_SET || internal();
  }
  uint64_t bits() const { return bits_; }

 private:
  uint64_t bits_;
};

// The entry of a descriptor that the library itself uses and that the program cannot close. The child of a fork starts
// without such entries, so it can close all descriptors except those that the library protects again in the child.
constexpr uint64_t kInternalObject = UIW_OBJECT_INTERNAL | (UIW_OBJECT_KIND_MASK + 1);

struct FdTable {
  std::atomic<std::atomic<uint64_t>*> slots{nullptr};
  std::atomic<unsigned> capacity{0};
  std::atomic<int> highest{-1};  // no entry has a higher number
  std::atomic<int> owner{0};     // the pid of the process whose entries these are
};
extern FdTable g_fd_table;

// Set in the child of a fork that has inherited a descriptor of rdma_cm, until the child first waits for descriptors
// (hooks/waits.cc).
extern std::atomic<bool> g_fork_left_channels;

// The entry of a descriptor. Inline, since the hooks of write(), close() and others look it up in every call.
inline FdEntry fd_lookup(int fd) {
  std::atomic<uint64_t>* slots = g_fd_table.slots.load(std::memory_order_acquire);
  if (__builtin_expect(slots == nullptr, 1)) return FdEntry();
  if (static_cast<unsigned>(fd) >= g_fd_table.capacity.load(std::memory_order_relaxed)) return FdEntry();
  return FdEntry(slots[fd].load(std::memory_order_acquire));
}

// Whether there is a table. Without one, no descriptor is uiw's.
inline bool fd_table_is_used() { return g_fd_table.slots.load(std::memory_order_acquire) != nullptr; }

// Makes the table if there is none yet. If there is no memory for the table, the process goes on without one.
void fd_table_prepare();

// True if the table is another process's: the caller is the child of a vfork and sees the parent's memory. Also true if
// the process has never had a table.
bool fd_table_is_borrowed();

// Sets the entry of a descriptor. Returns 0; EMFILE if the number is beyond the table; or ENOMEM.
int fd_attach(int fd, FdEntry entry);

// Clears the entry of a descriptor and returns it. Of two threads that do so at the same time, only one gets the entry.
FdEntry fd_take(int fd);
// Clears the entry of a descriptor if it still is `entry`; else returns false.
bool fd_take(int fd, FdEntry entry);

// Clears the entry of a descriptor if it is one of the library's own.
void fd_unprotect(int fd);

}  // namespace uiw::kernel_abi
