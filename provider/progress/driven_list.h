// SPDX-License-Identifier: MIT
// The queue pairs that an engine drives, which of them have deferred sends, which have news from a peer on this host
// (doorbells.h), and for which a turn is due. Each queue pair has a numbered slot. In words that are read without a
// lock, the bit with the slot's number stands for the queue pair. Thread-safe, unless said otherwise.
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

  // Returns how many queue pairs there are now, or 0 if there is no memory. Adding one twice has no effect.
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
  // Calls visitor(Driven&) for up to `most` queue pairs with deferred sends; others get their turn in later calls.
  template <typename Visitor>
  void visit_deferring(std::size_t most, Visitor visitor);

  // ---- News from peers on this host ----
  // Returns the descriptor by which peers wake threads that sleep, or -1 if it could not be made. The first call makes
  // the doorbell, and adds it to this epoll set with this event.
  int doorbell(int set, epoll_event event) noexcept;
  // For a thread that has an event of the doorbell: clears it, so that no other thread gets it. The thread then looks
  // for queue pairs that have rung().
  void answer_doorbell();
  // Called by a thread that has answered the doorbell and will not look again: wakes another thread if a peer has rung
  // for a queue pair that is left.
  void pass_doorbell_on();
  // Drops the doorbell's descriptors without closing them, since the program has closed them.
  void forget_doorbell();
  // The number by which peers ring for this queue pair in the page of the process. The queue pair must stay alive
  // during the call. kNoBell: there is none left.
  DoorbellPage::Bell doorbell_of(const Driven& qp) noexcept;
  // Requests a turn of the queue pair, though nothing has arrived. True if a thread of the engine sleeps; then the
  // caller has to wake one. Any thread may call this, with any lock of the queue pair held.
  bool request_turn(const Driven& qp) noexcept;
  // Calls visitor(Driven&) for up to `most` queue pairs for which a peer has rung or a turn is due, once for each
  // request. Returns how many.
  template <typename Visitor>
  std::size_t visit_rung(std::size_t most, Visitor visitor);
  // Whether a peer has rung, or a turn is due. While a thread of the engine is between begin_sleep() and end_sleep(), a
  // peer that rings also writes to the doorbell(). So after begin_sleep() a thread sleeps only if rung() is false.
  bool rung() const;
  void begin_sleep();
  void end_sleep();
  class Asleep;

  // Looks at each queue pair, as a poll does; does nothing if there are many(). True if there was work. For one thread
  // at a time, inside a ReadSection, which keeps queue pairs alive that are removed meanwhile.
  bool poll_each();

  // In the child of a fork: empties the list.
  void after_fork_in_child();

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::size_t kBlocks = kMaxQp / kBits + 16;  // the sockets of datagrams have slots, too
  // Never freed before the list is, so that bits and slots can be read at any time.
  struct Block {
    std::atomic<std::uint64_t> deferring{0};  // a bit for each slot
    std::atomic<std::uint64_t> due{0};        // a bit for each slot, set by request_turn()
    std::array<std::atomic<Driven*>, kBits> slots{};
    std::size_t free = kBits;  // number of free slots; used with the lock held
    std::atomic<DoorbellPage::Word*> word{nullptr};
    std::size_t word_number = 0;  // used with the lock held; valid if there is a word
  };

  // Calls visitor(Driven&) for up to `most` queue pairs whose bit bits_of(block) has and take(block, bit, qp) grants;
  // `qp` may be null. Begins at the slot `next`, and leaves there the first slot that it did not come to. Returns how
  // many.
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
  // Used by poll_each(): a copy of the list as it was after `copied_` changes, so that a poll takes no lock.
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
  // The first block is visited again at the end, for its slots before the first one.
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
  // Another thread may take a bit first. The peer may write anything, so each bit is looked at only once.
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

// While one exists, the calling thread sleeps or is about to sleep.
class DrivenList::Asleep {
 public:
  // `flag` is set while the thread sleeps, so that a sleep that a signal handler has left by longjmp() is not counted
  // twice. Null if no handler can do that.
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
