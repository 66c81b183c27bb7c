// SPDX-License-Identifier: MIT
// The queue pairs that an engine serves: which of them have deferred sends, for which a peer on this host has rung a
// doorbell (doorbells.h), and for which request_turn() was called. Each queue pair has a numbered slot, and each slot
// has a bit in atomic words of 64 bits, which are read without a lock. Thread-safe, unless said otherwise.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "base/stream/doorbell.h"
#include "provider/process/doorbells.h"
#include "provider/process/limits.h"
#include "provider/progress/driven.h"

namespace uiw::provider {

class DrivenList {
 public:
  static constexpr std::size_t kFew = 8;  // with more queue pairs it takes too long to look at each

  DrivenList() = default;
  ~DrivenList();
  DrivenList(const DrivenList&) = delete;
  DrivenList& operator=(const DrivenList&) = delete;

  // Returns how many queue pairs there are now, or 0 if there is no memory or no free slot. Adding a queue pair twice
  // has no effect.
  std::size_t add(Driven& qp) noexcept;
  void remove(Driven& qp) noexcept;
  bool many() const { return many_.load(std::memory_order_relaxed); }
  // Calls visitor(Driven&) for each queue pair, with the list locked.
  template <typename Visitor>
  void for_each(Visitor visitor) {
    const LockGuard lock(mutex_);
    for_each_unlocked(visitor);
  }

  // Records whether the queue pair has deferred sends from now on. The queue pair must stay alive during the call, and
  // two threads must not call this at a time for one queue pair.
  void note_deferred(const Driven& qp, bool deferred) noexcept;
  // Calls visitor(Driven&) for up to `most` queue pairs with deferred sends; later calls go on with the next ones.
  template <typename Visitor>
  void visit_deferring(std::size_t most, Visitor visitor);

  // ---- News from peers on this host ----
  // Returns the descriptor by which peers wake threads that sleep, or -1 if it could not be made or a peer has shut
  // it down. The first call makes the doorbell, and adds it to the epoll set `set` with `event`.
  int doorbell(int set, epoll_event event) noexcept;
  // Called by a thread that has an event of the doorbell: empties the socket, so that no other thread gets the event.
  // The thread then calls visit_rung().
  void answer_doorbell();
  // Wakes a thread if one sleeps and there still is a queue pair for which a peer has rung or request_turn() was
  // called. Called by a thread that has called answer_doorbell() and will not call visit_rung() again.
  void pass_doorbell_on();
  // Drops the doorbell's descriptors without closing them, since the program has closed them.
  void forget_doorbell();
  // The number of the bit that a peer sets in this process's doorbell page to ring for this queue pair, or kNoBell if
  // none is left or the page cannot be made. The queue pair must stay alive during the call.
  DoorbellPage::Bell doorbell_of(const Driven& qp) noexcept;
  // Asks for a call of the queue pair's progress(), though nothing has arrived. True if a thread of the engine sleeps;
  // then the caller has to wake one. Any thread may call this, with any lock of the queue pair held.
  bool request_turn(const Driven& qp) noexcept;
  // Calls visitor(Driven&) for up to `most` queue pairs for which a peer has rung or request_turn() was called since
  // the last visit, once for each queue pair. Returns the number of calls.
  template <typename Visitor>
  std::size_t visit_rung(std::size_t most, Visitor visitor);
  // Whether a peer has rung or request_turn() was called, for any queue pair. While a thread is between begin_sleep()
  // and end_sleep(), a peer that rings also writes to the doorbell(). So after begin_sleep() a thread sleeps only if
  // rung() is false.
  bool rung() const;
  void begin_sleep();
  void end_sleep();
  class Asleep;

  // Calls progress() for each queue pair on behalf of a poll, more rarely if it has long been idle; does nothing if
  // many() is true. True if any progress() returned true. For one thread at a time, inside a ReadSection, which keeps
  // queue pairs alive that are removed meanwhile.
  bool poll_each();

  // In the child of a fork: empties the list.
  void after_fork_in_child();

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::size_t kBlocks = kMaxQp / kBits + 16;  // datagram ports have slots, too
  // A block is not freed before the list is, so its bits and slots can be read at any time.
  struct Block {
    std::atomic<std::uint64_t> deferring{0};  // a bit for each slot
    std::atomic<std::uint64_t> due{0};        // a bit for each slot, set by request_turn()
    std::array<std::atomic<Driven*>, kBits> slots{};
    std::size_t free = kBits;  // number of free slots; used with the lock held
    std::atomic<DoorbellPage::Word*> word{nullptr};
    std::size_t word_number = 0;  // used with the lock held; valid if `word` is not null
  };

  // Calls visitor(Driven&) for up to `most` queue pairs whose bit is set in bits_of(block), if take(block, bit, qp)
  // returns true; `qp` is null for a free slot. Begins at the slot `next`, and if it stops early, stores in `next`
  // where to go on. Returns the number of calls.
  template <typename Bits, typename Take, typename Visitor>
  std::size_t visit_marked(std::atomic<std::size_t>& next, std::size_t most, Bits bits_of, Take take, Visitor visitor);
  template <typename Visitor>
  void for_each_unlocked(Visitor visitor) const UIW_REQUIRES(mutex_);
  void clear() UIW_REQUIRES(mutex_);
  void show_sleepers() UIW_REQUIRES(mutex_);
  void note_change() UIW_REQUIRES(mutex_);
  bool copy_few();

  Mutex mutex_;  // guards changes of the list; taken after the locks of a queue pair
  std::array<std::atomic<Block*>, kBlocks> blocks_{};
  std::atomic<std::size_t> used_{0};       // number of blocks
  std::atomic<std::size_t> next_{0};       // slot at which visit_deferring() begins
  std::atomic<std::size_t> next_rung_{0};  // slot at which visit_rung() begins
  std::atomic<unsigned> sleepers_{0};      // written with the lock held
  Doorbell doorbell_ UIW_GUARDED_BY(mutex_);
  std::size_t size_ UIW_GUARDED_BY(mutex_) = 0;
  std::atomic<unsigned> changes_{0};
  std::atomic<bool> many_{false};
  // Used by poll_each(): a copy of the list, made when `changes_` was `copied_`, so that a poll takes no lock.
  unsigned copied_ = 0;
  std::size_t count_ = 0;
  std::array<Driven*, kFew> few_;
  unsigned round_ = 0;
};

template <typename Visitor>
void DrivenList::for_each_unlocked(Visitor visitor) const {
  for (std::size_t i = 0; i < used_.load(std::memory_order_relaxed); ++i) {
    for (const auto& slot : blocks_[i].load(std::memory_order_relaxed)->slots) {
      if (Driven* const qp = slot.load(std::memory_order_relaxed)) visitor(*qp);
    }
  }
}

template <typename Bits, typename Take, typename Visitor>
std::size_t DrivenList::visit_marked(std::atomic<std::size_t>& next, std::size_t most, Bits bits_of, Take take,
                                     Visitor visitor) {
  const std::size_t used = used_.load(std::memory_order_acquire);
  const std::size_t first = used > 0 ? next.load(std::memory_order_relaxed) % (used * kBits) : 0;
  std::size_t visited = 0;
  // The first block is visited again at the end, for its slots before the slot `first`.
  for (std::size_t i = 0; i < used + (first % kBits != 0 ? 1 : 0); ++i) {
    const std::size_t at = (first / kBits + i) % used;
    Block& block = *blocks_[at].load(std::memory_order_acquire);
    const std::uint64_t from_first = ~std::uint64_t{0} << first % kBits;
    const std::uint64_t wanted = i == 0 ? from_first : i == used ? ~from_first : ~std::uint64_t{0};
    for (std::uint64_t bits = bits_of(block) & wanted; bits != 0; bits &= bits - 1) {
      const auto slot = static_cast<unsigned>(__builtin_ctzll(bits));
      if (visited == most) {
        next.store(at * kBits + slot, std::memory_order_relaxed);
        return visited;
      }
      const ReadSection section;
      Driven* const qp = block.slots[slot].load();
      if (!take(block, std::uint64_t{1} << slot, qp) || qp == nullptr) continue;
      ++visited;
      visitor(*qp);
    }
  }
  return visited;
}

template <typename Visitor>
void DrivenList::visit_deferring(std::size_t most, Visitor visitor) {
  const auto bits_of = [](const Block& block) { return block.deferring.load(); };
  const auto take = [](Block&, std::uint64_t, const Driven* qp) { return qp != nullptr && qp->has_deferred(); };
  visit_marked(next_, most, bits_of, take, visitor);
}

template <typename Visitor>
std::size_t DrivenList::visit_rung(std::size_t most, Visitor visitor) {
  const auto rung_for = [](const Block& block) -> std::atomic<std::uint64_t>* {
    DoorbellPage::Word* const word = block.word.load(std::memory_order_acquire);
    return word != nullptr ? &word->rung : nullptr;
  };
  const auto bits_of = [&](const Block& block) {
    const auto* const rung = rung_for(block);
    return (rung != nullptr ? rung->load() : 0) | block.due.load();
  };
  // Clears the bit; false if another thread has cleared it first. A hostile peer may set the bit again at any time, so
  // visit_marked() looks at each bit only once.
  const auto take = [&](Block& block, std::uint64_t bit, const Driven*) {
    const auto takes = [bit](std::atomic<std::uint64_t>& bits) {
      return (bits.load() & bit) != 0 && (bits.fetch_and(~bit) & bit) != 0;
    };
    auto* const rung = rung_for(block);
    const bool due = takes(block.due);
    return (rung != nullptr && takes(*rung)) || due;
  };
  return visit_marked(next_rung_, most, bits_of, take, visitor);
}

// While an object of this class exists, the thread that has made it sleeps or is about to sleep.
class DrivenList::Asleep {
 public:
  // `flag` is set while the thread sleeps. If a signal handler leaves the sleep by longjmp(), the destructor does not
  // run, and `flag` keeps the next sleep from being counted twice. Null if no handler can do that.
  explicit Asleep(DrivenList& driven, std::atomic<bool>* flag = nullptr) : driven_(driven), flag_(flag) {
    if (flag_ == nullptr || !flag_->exchange(true)) driven_.begin_sleep();
  }
  ~Asleep() {
    if (flag_ != nullptr) flag_->store(false);
    driven_.end_sleep();
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  DrivenList& driven_;
  std::atomic<bool>* const flag_;
};

}  // namespace uiw::provider
