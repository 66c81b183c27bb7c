// SPDX-License-Identifier: MIT
// Which descriptors of this process are ours?
//
// A lock-free array indexed by descriptor number, mapped when the first descriptor of ours appears. An entry
// belongs to the process that made it:
//   * after fork, the child's inherited entries are dead: commands fail, close only closes;
//   * a vfork child shares the memory under another pid: it may read the table, never change it.
// Part of the interposer: no allocation, no C++ runtime.
#pragma once

#include <stdint.h>

#include <atomic>

#include "kernel-abi/interposer/entry.h"

namespace uiw::kernel_abi {

// One entry: 0, or the object of entry.h, with a mark where it was inherited over fork.
class FdEntry {
 public:
  constexpr explicit FdEntry(uint64_t bits = 0) : bits_(bits) {}
  bool present() const { return bits_ != 0; }
  bool dead() const { return (bits_ & kDead) != 0; }
  uint64_t object() const { return bits_ & ~kDead; }
  unsigned kind() const { return static_cast<unsigned>(bits_ & 7); }
  bool internal() const { return kind() == UIW_OBJECT_INTERNAL; }
  uint64_t bits() const { return bits_; }

  static constexpr uint64_t kDead = uint64_t{1} << 63;

 private:
  uint64_t bits_;
};

// A descriptor that is the library's own: to the program there is none under its number. Not in the child of a fork,
// which may close all that it has.
constexpr uint64_t kInternalObject = UIW_OBJECT_INTERNAL | (UIW_OBJECT_KIND_MASK + 1);

struct FdTable {
  std::atomic<std::atomic<uint64_t>*> slots{nullptr};
  std::atomic<unsigned> capacity{0};
  std::atomic<int> highest{-1};  // no entry lies above
  std::atomic<int> owner{0};     // the pid whose entries these are
};
extern FdTable g_fd_table;

// The look-up that every write and close makes.
inline FdEntry fd_lookup(int fd) {
  std::atomic<uint64_t>* slots = g_fd_table.slots.load(std::memory_order_acquire);
  if (__builtin_expect(slots == nullptr, 1)) return FdEntry();
  if (static_cast<unsigned>(fd) >= g_fd_table.capacity.load(std::memory_order_relaxed)) return FdEntry();
  return FdEntry(slots[fd].load(std::memory_order_acquire));
}

// True where the table is another process's, seen through vfork.
bool fd_table_is_borrowed();

// Sets an entry. 0, EMFILE where the number lies beyond the table, or ENOMEM.
int fd_attach(int fd, FdEntry entry);

// Clears an entry and returns what it was; of two concurrent callers one gets it.
FdEntry fd_take(int fd);

// Clears the entry of an internal descriptor, and no other.
void fd_unprotect(int fd);

}  // namespace uiw::kernel_abi
