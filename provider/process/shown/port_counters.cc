// SPDX-License-Identifier: MIT
// The counters of all devices are in a list that only grows, at its front. So the list needs no lock, and is intact in
// the child of a fork.
#include "provider/process/shown/port_counters.h"

#include <memory>

namespace uiw::provider {

namespace {

constinit std::atomic<PortCounters*> first{nullptr};

}  // namespace

PortCounters& port_counters(std::string_view device) {
  std::unique_ptr<PortCounters> made;
  PortCounters* seen = first.load(std::memory_order_acquire);
  for (;;) {
    for (PortCounters* one = seen; one != nullptr; one = one->next_) {
      if (one->device_ == device) return *one;
    }
    if (made == nullptr) made = std::make_unique<PortCounters>(device);
    made->next_ = seen;
    if (first.compare_exchange_weak(seen, made.get(), std::memory_order_acq_rel)) return *made.release();
  }
}

const PortCounters* next_port_counters(const PortCounters* before) {
  return before == nullptr ? first.load(std::memory_order_acquire) : before->next_;
}

void forget_port_counters() {
  for (PortCounters* one = first.load(std::memory_order_acquire); one != nullptr; one = one->next_) {
    for (std::atomic<std::uint64_t>& count : one->counts_) count.store(0, std::memory_order_relaxed);
  }
}

}  // namespace uiw::provider
