// SPDX-License-Identifier: MIT
#include "provider/qp_table.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "provider/grace_period.h"
#include "provider/limits.h"
#include "provider/qp.h"

namespace uiw::provider {

namespace {

constexpr std::uint32_t kFirst = 1024U << 8;

struct Table {
  std::array<std::atomic<Qp*>, kMaxQp> slots{};
  std::mutex mutex;
  std::vector<bool> taken = std::vector<bool>(kMaxQp, false);
  std::uint32_t next = 0;
};
Table& table() {
  static auto* instance = new Table;
  return *instance;
}

}  // namespace

std::uint32_t take_qp_number(Qp& qp) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  for (std::uint32_t tries = 0; tries < kMaxQp; ++tries) {
    const std::uint32_t slot = t.next;
    t.next = (t.next + 1) % kMaxQp;
    if (t.taken[slot]) continue;
    t.taken[slot] = true;
    t.slots[slot].store(&qp, std::memory_order_release);
    return kFirst + slot;
  }
  return 0;
}

void hide_qp(std::uint32_t number) {
  if (number >= kFirst && number - kFirst < kMaxQp) table().slots[number - kFirst].store(nullptr);
}

void free_qp_number(std::uint32_t number) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  if (number >= kFirst && number - kFirst < kMaxQp) t.taken[number - kFirst] = false;
}

void for_each_qp(const std::function<void(Qp&)>& function) {
  for (std::uint32_t slot = 0; slot < kMaxQp; ++slot) {
    if (table().slots[slot].load(std::memory_order_relaxed) == nullptr) continue;
    const ReadSection section;
    if (Qp* qp = table().slots[slot].load(std::memory_order_acquire)) function(*qp);
  }
}

Qp* find_qp(std::uint32_t number) {
  if (number < kFirst || number - kFirst >= kMaxQp) return nullptr;
  return table().slots[number - kFirst].load(std::memory_order_acquire);
}

}  // namespace uiw::provider
