// SPDX-License-Identifier: MIT
// Grace periods: how to safely destroy an object that other threads look up without a lock.
//
// A reader looks up and uses such an object inside a ReadSection. The thread that destroys an object first makes sure
// that no look-up finds the object any more. Then it calls wait_for_readers(), which returns when all sections that
// were open at the time of the call have closed. After that no thread uses the object. Entering and leaving a section
// costs one store each, to memory of the thread's own. Sections may be nested and must be short; wait_for_readers()
// must not be called inside a section. No function throws.
//
// Memory order: a reader first stores that it has entered, then looks up the object. A destroyer first stores that the
// object cannot be found, then reads which sections are open. All four accesses are sequentially consistent, so either
// the reader does not find the object, or the destroyer sees the open section and waits. So StagTable and the table of
// queue pairs look objects up by sequentially consistent loads: on processors with a weaker order than x86, an acquire
// load could be executed before the store that enters the section. A reader loads the period with acquire order. So a
// reader that sees the new period also sees that the object cannot be found, and the destroyer need not wait for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock_annotations.h"
#include "base/mutex.h"

namespace uiw {

namespace detail {
struct alignas(64) ReaderSlot {
  std::atomic<std::uint64_t> entered{0};  // 0 outside of sections, else the period in which the section was entered
  std::atomic<bool> taken{false};
  ReaderSlot* next = nullptr;
  unsigned depth = 0;

  void enter();
  void leave();
};
extern constinit thread_local ReaderSlot* own_slot;
ReaderSlot& take_own_slot() noexcept;
inline ReaderSlot& reader_slot() noexcept { return own_slot != nullptr ? *own_slot : take_own_slot(); }
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

// A mutex whose holder is inside a ReadSection: lock() opens the section before it takes the mutex, and unlock() closes
// the section last. Holders use memory of the program, which is allowed only inside a section.
class UIW_CAPABILITY("mutex") SectionMutex {
 public:
  void lock() UIW_ACQUIRE() {
    detail::reader_slot().enter();
    mutex_.lock();
  }
  bool try_lock() UIW_TRY_ACQUIRE(true) {
    detail::ReaderSlot& slot = detail::reader_slot();
    slot.enter();
    if (mutex_.try_lock()) return true;
    slot.leave();
    return false;
  }
  void unlock() UIW_RELEASE() {
    mutex_.unlock();
    detail::reader_slot().leave();
  }

 private:
  Mutex mutex_;
};

// Returns when every ReadSection that is open now has closed. Not to be called inside a section.
void wait_for_readers();

// In the child of a fork: closes the sections of the parent's other threads, which do not exist here.
void forget_other_readers();

}  // namespace uiw
