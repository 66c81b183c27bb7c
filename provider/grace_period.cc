// SPDX-License-Identifier: MIT
#include "provider/grace_period.h"

#include <sched.h>

#include <utility>

namespace uiw::provider {

namespace detail {

std::atomic<std::uint64_t> current_period{1};

namespace {

std::atomic<ReaderSlot*> all_slots{nullptr};

// Slots are never freed, only handed from a thread that has ended to the next one.
ReaderSlot* take_slot() {
  for (ReaderSlot* slot = all_slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (!slot->taken.exchange(true, std::memory_order_acq_rel)) return slot;
  }
  auto* slot = new ReaderSlot;
  slot->taken.store(true, std::memory_order_relaxed);
  ReaderSlot* first = all_slots.load(std::memory_order_relaxed);
  do {
    slot->next = first;
  } while (!all_slots.compare_exchange_weak(first, slot, std::memory_order_seq_cst, std::memory_order_relaxed));
  return slot;
}

// Without a destructor, so that it can be asked in the thread's last moments too.
thread_local ReaderSlot* own_slot = nullptr;

struct SlotOwner {
  ~SlotOwner() {
    ReaderSlot* slot = std::exchange(own_slot, nullptr);
    if (slot == nullptr) return;
    slot->entered.store(0, std::memory_order_release);
    slot->taken.store(false, std::memory_order_release);
  }
};

}  // namespace

ReaderSlot& reader_slot() {
  if (own_slot == nullptr) {
    thread_local SlotOwner owner;
    static_cast<void>(owner);
    own_slot = take_slot();
  }
  return *own_slot;
}

}  // namespace detail

void wait_for_readers() {
  using namespace detail;
  const std::uint64_t period = current_period.fetch_add(1, std::memory_order_seq_cst) + 1;
  for (ReaderSlot* slot = all_slots.load(std::memory_order_seq_cst); slot != nullptr; slot = slot->next) {
    for (unsigned spins = 0;; ++spins) {
      const std::uint64_t entered = slot->entered.load(std::memory_order_seq_cst);
      if (entered == 0 || entered >= period) break;
      if (spins > 100) sched_yield();
    }
  }
}

void forget_other_readers() {
  using namespace detail;
  const ReaderSlot* own = &reader_slot();
  for (ReaderSlot* slot = all_slots.load(); slot != nullptr; slot = slot->next) {
    if (slot != own) slot->entered.store(0);
  }
}

}  // namespace uiw::provider
