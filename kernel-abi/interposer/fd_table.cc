// SPDX-License-Identifier: MIT
// The memory of the descriptor table, and what fork does to it.
#include "kernel-abi/interposer/fd_table.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernel-abi/interposer/fd_changes.h"

namespace uiw::kernel_abi {

FdTable g_fd_table;
std::atomic<bool> g_fork_left_channels{false};

namespace {

constexpr unsigned kLeastCapacity = 1024;
constexpr unsigned kMostCapacity = 1U << 20;

void after_fork_in_child() {
  fd_changes_after_fork();
  std::atomic<uint64_t>* slots = g_fd_table.slots.load(std::memory_order_relaxed);
  g_fd_table.owner.store(getpid(), std::memory_order_relaxed);
  if (slots == nullptr) return;
  const int highest = g_fd_table.highest.load(std::memory_order_relaxed);
  for (int fd = 0; fd <= highest; ++fd) {
    const uint64_t bits = slots[fd].load(std::memory_order_relaxed);
    if (bits == 0) continue;
    const FdEntry entry(bits);
    if (entry.internal()) slots[fd].store(0, std::memory_order_relaxed);
    if (entry.kind() == UIW_OBJECT_CM) g_fork_left_channels.store(true, std::memory_order_relaxed);
  }
}

std::atomic<uint64_t>* make_table() {
  rlimit limit = {};
  unsigned capacity = kMostCapacity;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < kMostCapacity)
    capacity = limit.rlim_max < kLeastCapacity ? kLeastCapacity : static_cast<unsigned>(limit.rlim_max);
  const size_t size = capacity * sizeof(std::atomic<uint64_t>);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;

  auto* slots = static_cast<std::atomic<uint64_t>*>(memory);
  // The capacity is stored before the slots, since a thread that sees the slots must see the capacity, too. If the
  // limit changes, two threads may compute different capacities. A mapping with less room than the stored capacity is
  // dropped.
  unsigned known = 0;
  if (!g_fd_table.capacity.compare_exchange_strong(known, capacity) && known > capacity) {
    munmap(memory, size);
    return nullptr;
  }
  g_fd_table.owner.store(getpid(), std::memory_order_release);
  // The fork handler is registered before other threads can see the table, so that every child runs it. If two threads
  // both register it, that does no harm.
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  std::atomic<uint64_t>* other = nullptr;
  if (!g_fd_table.slots.compare_exchange_strong(other, slots)) {
    munmap(memory, size);
    return other;
  }
  return slots;
}

}  // namespace

void fd_table_prepare() {
  if (!fd_table_is_used()) make_table();
}

bool fd_table_is_borrowed() { return g_fd_table.owner.load(std::memory_order_relaxed) != getpid(); }

int fd_attach(int fd, FdEntry entry) {
  std::atomic<uint64_t>* slots = g_fd_table.slots.load(std::memory_order_acquire);
  if (slots == nullptr) slots = make_table();
  if (slots == nullptr) return ENOMEM;
  if (fd < 0 || static_cast<unsigned>(fd) >= g_fd_table.capacity.load(std::memory_order_relaxed)) return EMFILE;
  int highest = g_fd_table.highest.load(std::memory_order_relaxed);
  while (highest < fd && !g_fd_table.highest.compare_exchange_weak(highest, fd)) {
  }
  slots[fd].store(entry.bits(), std::memory_order_release);
  return 0;
}

FdEntry fd_take(int fd) {
  if (!fd_lookup(fd).present()) return FdEntry();
  return FdEntry(g_fd_table.slots.load(std::memory_order_relaxed)[fd].exchange(0, std::memory_order_acq_rel));
}

bool fd_take(int fd, FdEntry entry) {
  uint64_t bits = entry.bits();
  return fd_lookup(fd).present() &&
         g_fd_table.slots.load(std::memory_order_relaxed)[fd].compare_exchange_strong(bits, 0);
}

void fd_unprotect(int fd) { fd_take(fd, FdEntry(kInternalObject)); }

}  // namespace uiw::kernel_abi
