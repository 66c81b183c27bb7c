// SPDX-License-Identifier: MIT
// Grace periods: how an object that others look up without a lock is taken away safely.
//
// Whoever looks up and uses such an object does so inside a ReadSection. Whoever takes one away first makes it
// impossible to find, then calls wait_for_readers(), which returns once every section that was open has closed;
// then nobody can have it any more. Entering and leaving costs one store each, to memory of the thread's own.
// Sections nest and must be short; wait_for_readers() must not be called inside one.
#pragma once

#include <atomic>
#include <cstdint>

namespace uiw::provider {

namespace detail {
struct alignas(64) ReaderSlot {
  std::atomic<std::uint64_t> entered{0};  // 0 outside, else the period in which the section was entered
  std::atomic<bool> taken{false};
  ReaderSlot* next = nullptr;
  unsigned depth = 0;
};
ReaderSlot& reader_slot();
extern std::atomic<std::uint64_t> current_period;
}  // namespace detail

class ReadSection {
 public:
  ReadSection() : slot_(detail::reader_slot()) {
    if (slot_.depth++ == 0) {
      // Sequentially consistent: the look-ups that follow must not be seen before this.
      slot_.entered.store(detail::current_period.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    }
  }
  ~ReadSection() {
    if (--slot_.depth == 0) slot_.entered.store(0, std::memory_order_release);
  }
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;

 private:
  detail::ReaderSlot& slot_;
};

void wait_for_readers();

// In the child of a fork: the threads whose sections were open are not there.
void forget_other_readers();

}  // namespace uiw::provider
