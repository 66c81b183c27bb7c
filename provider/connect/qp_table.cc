// SPDX-License-Identifier: MIT
#include "provider/connect/qp_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "base/grace_period.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "provider/connect/numbered.h"
#include "provider/connect/qp_port.h"
#include "provider/process/limits.h"

namespace uiw::provider {

namespace {

struct Slots {
  std::array<std::atomic<Numbered*>, kSlotsPerPort> qps{};
  std::bitset<kSlotsPerPort> taken;
  std::uint32_t next = 0;
  std::uint16_t port = 0;
};

// The Slots of a port are never freed, since readers hold no lock. Untouched pages of this array take no memory.
std::array<std::atomic<Slots*>, 65536> by_port;

struct Table {
  TableMutex mutex;
  std::vector<Slots*> reserved UIW_GUARDED_BY(mutex), released UIW_GUARDED_BY(mutex);
  std::size_t turn UIW_GUARDED_BY(mutex) = 0;
  std::uint32_t count UIW_GUARDED_BY(mutex) = 0;
};
Table& table() {
  static Immortal<Table> instance;
  return *instance;
}

// Slots are taken in turn, so that a number is used again as late as possible.
std::uint32_t take(Table& t, Slots& slots, Numbered& qp) UIW_REQUIRES(t.mutex) {
  if (slots.taken.all()) return 0;
  while (slots.taken[slots.next]) slots.next = (slots.next + 1) % kSlotsPerPort;
  const std::uint32_t slot = slots.next;
  slots.next = (slot + 1) % kSlotsPerPort;
  slots.taken[slot] = true;
  ++t.count;
  slots.qps[slot].store(&qp, std::memory_order_release);
  return static_cast<std::uint32_t>(slots.port) << 8 | slot;
}

std::atomic<Numbered*>* entry_of(std::uint32_t number) {
  if (number < kFirstQpNumber || number >> 24 != 0) return nullptr;
  Slots* slots = by_port[port_of(number)].load(std::memory_order_acquire);
  return slots == nullptr ? nullptr : &slots->qps[number % kSlotsPerPort];
}

}  // namespace

std::uint32_t take_qp_number(Numbered& qp) {
  Table& t = table();
  const LockGuard lock(t.mutex);
  if (t.count == kMaxQp) return 0;
  for (std::size_t tries = 0; tries < t.reserved.size(); ++tries) {
    Slots& slots = *t.reserved[t.turn];
    if (const std::uint32_t number = take(t, slots, qp); number != 0) return number;
    t.turn = (t.turn + 1) % t.reserved.size();
  }
  // A released port is tried first. Its Slots still exist, so its numbers continue after the last one that was taken.
  std::uint16_t port = 0;
  // The table's memory is allocated before a port is reserved, so that nothing has to be undone if std::bad_alloc is
  // thrown. The room in `released` is for free_qp_number(), which must not fail.
  t.reserved.reserve(t.reserved.size() + 1);
  t.released.reserve(t.released.size() + t.reserved.size() + 1);
  const std::uint32_t first = std::random_device()() % kSlotsPerPort;  // so that the port does not reveal the number
  auto made = std::make_unique<Slots>();
  for (; port == 0 && !t.released.empty(); t.released.pop_back()) {
    if (reserve_again(t.released.back()->port)) port = t.released.back()->port;
  }
  if (port == 0) port = reserve_port();
  if (port == 0) return 0;
  Slots* slots = by_port[port].load();
  if (slots == nullptr) {
    slots = made.release();
    slots->port = port;
    slots->next = first;
    by_port[port].store(slots, std::memory_order_release);
  }
  t.turn = t.reserved.size();
  t.reserved.push_back(slots);
  return take(t, *slots, qp);
}

void hide_qp(std::uint32_t number) {
  if (std::atomic<Numbered*>* entry = entry_of(number)) entry->store(nullptr);
}

void free_qp_number(std::uint32_t number) {
  Table& t = table();
  const LockGuard lock(t.mutex);
  if (entry_of(number) == nullptr) return;
  Slots* slots = by_port[port_of(number)].load();
  slots->taken[number % kSlotsPerPort] = false;
  --t.count;
  // A port that the parent reserved before a fork is not in t.reserved, so it is not released here.
  if (slots->taken.any() || std::erase(t.reserved, slots) == 0) return;
  t.turn = 0;
  t.released.push_back(slots);
  release_port(slots->port);
}

void for_each_numbered(const std::function<void(std::uint32_t, Numbered&)>& function) {
  // Goes from the last port to the first, and does not copy the list of ports, which would need memory. If a port is
  // removed meanwhile, the ports after it in the list move forward, so the objects of a port may be visited twice.
  for (std::size_t left = SIZE_MAX; left > 0; --left) {
    const Slots* slots = nullptr;
    {
      const LockGuard lock(table().mutex);
      left = std::min(left, table().reserved.size());
      if (left == 0) return;
      slots = table().reserved[left - 1];
    }
    for (std::uint32_t slot = 0; slot < kSlotsPerPort; ++slot) {
      const std::atomic<Numbered*>& entry = slots->qps[slot];
      if (entry.load(std::memory_order_relaxed) == nullptr) continue;
      const ReadSection section;
      if (Numbered* qp = entry.load()) function(static_cast<std::uint32_t>(slots->port) << 8 | slot, *qp);
    }
  }
}

void lock_qp_numbers() UIW_ACQUIRE(table().mutex) { table().mutex.lock(); }
void unlock_qp_numbers() UIW_RELEASE(table().mutex) { table().mutex.unlock(); }

// In the child the numbers of the parent's queue pairs stay taken, so that no queue pair of the child gets one of them.
void forget_qp_numbers() {
  Table& t = table();
  assume_held(t.mutex);
  for (Slots* slots : t.reserved) {
    for (const std::atomic<Numbered*>& entry : slots->qps) {
      if (Numbered* qp = entry.load()) qp->after_fork_in_child();
    }
  }
  t.reserved.clear();
  t.released.clear();
  t.turn = 0;
  t.mutex.unlock();
}

Numbered* find_numbered(std::uint32_t number) {
  const std::atomic<Numbered*>* entry = entry_of(number);
  return entry == nullptr ? nullptr : entry->load();  // a sequentially consistent load, see grace_period.h
}

Attachable* find_attachable(std::uint32_t number) {
  Numbered* const found = find_numbered(number);
  return found == nullptr ? nullptr : found->attachable();
}

}  // namespace uiw::provider
