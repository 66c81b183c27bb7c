// SPDX-License-Identifier: MIT
// Grace periods: how an object that others look up without a lock is taken away safely.
//
// Whoever looks up and uses such an object does so inside a ReadSection. Whoever takes one away first makes it
// impossible to find, then calls wait_for_readers(), which returns once every section that was open has closed;
// then nobody can have it any more. Entering and leaving costs one store each, to memory of the thread's own.
// Sections nest and must be short; wait_for_readers() must not be called inside one.
//
// The order that this stands on: a reader stores that it has entered, then looks; who takes away stores that there is
// nothing to find, then looks who has entered. One of the two sees the other, since all four accesses are sequentially
// consistent: the look-ups (StagTable, the table of queue pairs) too, for on processors that order less than x86 an
// acquire load may overtake the store in front of it. The period is read with acquire, so that who reads the new one
// also finds nothing.
#pragma once

#include <atomic>
#include <cstdint>

#include "provider/process/mutex.h"

namespace uiw::provider {

namespace detail {
struct alignas(64) ReaderSlot {
  std::atomic<std::uint64_t> entered{0};  // 0 outside, else the period in which the section was entered
  std::atomic<bool> taken{false};
  ReaderSlot* next = nullptr;
  unsigned depth = 0;

  void enter();
  void leave();
};
ReaderSlot& reader_slot() noexcept;
extern std::atomic<std::uint64_t> current_period;

inline void ReaderSlot::enter() {
  if (depth++ == 0) entered.store(current_period.load(std::memory_order_acquire), std::memory_order_seq_cst);
}
inline void ReaderSlot::leave() {
  if (--depth == 0) entered.store(0, std::memory_order_release);
}
}  // namespace detail

class ReadSection {
 public:
  ReadSection() : slot_(detail::reader_slot()) { slot_.enter(); }
  ~ReadSection() { slot_.leave(); }
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;

 private:
  detail::ReaderSlot& slot_;
};

// A mutex that is held inside a ReadSection only: it opens one before it is taken. What it guards uses memory of the
// program, so that nobody can do that outside of a section.
class SectionMutex {
 public:
  void lock() {
    detail::reader_slot().enter();
    mutex_.lock();
  }
  bool try_lock() {
    detail::ReaderSlot& slot = detail::reader_slot();
    slot.enter();
    if (mutex_.try_lock()) return true;
    slot.leave();
    return false;
  }
  void unlock() {
    mutex_.unlock();
    detail::reader_slot().leave();
  }

 private:
  Mutex mutex_;
};

void wait_for_readers();

// In the child of a fork: the threads whose sections were open are not there.
void forget_other_readers();

}  // namespace uiw::provider
