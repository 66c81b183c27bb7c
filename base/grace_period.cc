// SPDX-License-Identifier: MIT
#include "base/grace_period.h"

#include <array>
#include <cstddef>
#include <new>

#include "base/short_wait.h"
#include "base/thread_exit.h"

namespace uiw {

namespace detail {

constinit thread_local ReaderSlot* own_slot = nullptr;
std::atomic<std::uint64_t> current_period{1};

namespace {

std::atomic<ReaderSlot*> all_slots{nullptr};

// Spare slots for threads that start while memory is short. A thread needs a slot to look anything up, also in calls
// that destroy objects, and these must not fail for lack of memory.
std::array<ReaderSlot, 256> reserve;
std::atomic<std::size_t> reserve_used{0};

ReaderSlot* new_slot() {
  if (auto* slot = new (std::nothrow) ReaderSlot) return slot;
  std::size_t used = reserve_used.load(std::memory_order_relaxed);
  while (used < reserve.size()) {
    if (reserve_used.compare_exchange_weak(used, used + 1, std::memory_order_relaxed)) return &reserve[used];
  }
  return nullptr;
}

// Slots are never freed. A thread that ends leaves its slot to the next thread that needs one.
ReaderSlot* take_slot() {
  ReaderSlot* slot = nullptr;
  for (ShortWait wait;; wait.turn()) {  // retry until there is memory or a thread ends
    for (slot = all_slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
      if (!slot->taken.exchange(true, std::memory_order_acq_rel)) return slot;
    }
    slot = new_slot();
    if (slot != nullptr) break;
  }
  slot->taken.store(true, std::memory_order_relaxed);
  ReaderSlot* first = all_slots.load(std::memory_order_relaxed);
  do {
    slot->next = first;
  } while (!all_slots.compare_exchange_weak(first, slot, std::memory_order_seq_cst, std::memory_order_relaxed));
  return slot;
}

const ThreadExit at_exit([](void* own) {
  own_slot = nullptr;
  auto* slot = static_cast<ReaderSlot*>(own);
  slot->entered.store(0, std::memory_order_release);
  slot->taken.store(false, std::memory_order_release);
});

}  // namespace

ReaderSlot& take_own_slot() noexcept {
  own_slot = take_slot();
  at_exit.note(own_slot);  // if this fails, the slot stays taken for ever
  return *own_slot;
}

}  // namespace detail

void wait_for_readers() {
  using namespace detail;
  const std::uint64_t period = current_period.fetch_add(1, std::memory_order_seq_cst) + 1;
  for (ReaderSlot* slot = all_slots.load(std::memory_order_seq_cst); slot != nullptr; slot = slot->next) {
    for (ShortWait wait;; wait.turn()) {
      const std::uint64_t entered = slot->entered.load(std::memory_order_seq_cst);
      if (entered == 0 || entered >= period) break;
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

}  // namespace uiw
