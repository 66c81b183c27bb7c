// SPDX-License-Identifier: MIT
#include "provider/progress/driven_list.h"

#include <new>
#include <utility>

#include "base/mutex.h"
#include "base/system_calls.h"

namespace uiw::provider {

namespace {
// After kIdleRounds polls in a row that found nothing at a queue pair, only every kIdleStride-th poll looks at it.
constexpr unsigned kIdleRounds = 64;
constexpr unsigned kIdleStride = 8;
}  // namespace

DrivenList::~DrivenList() {
  for (std::size_t i = 0; i < used_.load(); ++i) {
    const Block& block = *blocks_[i].load();
    if (block.word.load() != nullptr) Doorbells::of_process().give_back(block.word_number);
  }
  clear();
}

void DrivenList::clear() {
  for (std::size_t i = 0; i < used_.load(); ++i) delete blocks_[i].exchange(nullptr);
  used_ = size_ = 0;
}

// A poll opens its ReadSection and then loads `changes_`. remove() clears the slot and counts in `changes_`, and its
// caller then waits for a grace period. So a queue pair lives until a poll that has missed its removal is over.
void DrivenList::note_change() {
  many_ = size_ > kFew;
  changes_.fetch_add(1);
}

std::size_t DrivenList::add(Driven& qp) noexcept {
  const LockGuard lock(mutex_);
  const std::uint32_t before = qp.slot.load(std::memory_order_relaxed);
  if (before < used_.load() * kBits && blocks_[before / kBits].load()->slots[before % kBits].load() == &qp)
    return size_;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (i == used_.load()) {
      auto* const made = new (std::nothrow) Block;
      if (made == nullptr) return 0;
      blocks_[i].store(made, std::memory_order_release);
      used_.store(i + 1, std::memory_order_release);
    }
    Block& block = *blocks_[i].load();
    if (block.free == 0) continue;
    for (std::size_t at = 0; at < kBits; ++at) {
      if (block.slots[at].load() != nullptr) continue;
      qp.slot.store(static_cast<std::uint32_t>(i * kBits + at), std::memory_order_relaxed);
      block.slots[at].store(&qp);
      --block.free;
      ++size_;
      note_change();
      return size_;
    }
  }
  return 0;
}

void DrivenList::remove(Driven& qp) noexcept {
  const LockGuard lock(mutex_);
  const std::uint32_t at = qp.slot.load(std::memory_order_relaxed);
  if (at >= used_.load() * kBits) return;
  Block& block = *blocks_[at / kBits].load();
  if (block.slots[at % kBits].load() != &qp) return;
  block.slots[at % kBits].store(nullptr);
  block.deferring.fetch_and(~(std::uint64_t{1} << (at % kBits)));
  block.due.fetch_and(~(std::uint64_t{1} << (at % kBits)));
  ++block.free;
  --size_;
  note_change();
}

void DrivenList::note_deferred(const Driven& qp, bool deferred) noexcept {
  const std::uint32_t at = qp.slot.load(std::memory_order_relaxed);
  if (at >= used_.load(std::memory_order_acquire) * kBits) return;
  std::atomic<std::uint64_t>& bits = blocks_[at / kBits].load(std::memory_order_acquire)->deferring;
  const std::uint64_t bit = std::uint64_t{1} << (at % kBits);
  if (deferred) {
    bits.fetch_or(bit);
  } else {
    bits.fetch_and(~bit);
  }
}

// This thread sets the bit and then loads `sleepers_`. A thread that is about to sleep first counts itself in
// `sleepers_` and then reads the bits. So at least one of the two threads sees the other's write.
bool DrivenList::request_turn(const Driven& qp) noexcept {
  const std::uint32_t at = qp.slot.load(std::memory_order_relaxed);
  if (at >= used_.load(std::memory_order_acquire) * kBits) return false;
  blocks_[at / kBits].load(std::memory_order_acquire)->due.fetch_or(std::uint64_t{1} << (at % kBits));
  return sleepers_.load() > 0;
}

int DrivenList::doorbell(int set, epoll_event event) noexcept {
  const auto made_before = [this] {
    assume_held(mutex_);
    return doorbell_.passed_on() >= 0;
  };
  UniqueLock lock(mutex_);
  if (!made_before()) {
    lock.unlock();  // if no descriptor is left, create() writes a message, which may block
    auto made = Doorbell::create();
    if (!made || sys::epoll_ctl(set, EPOLL_CTL_ADD, made.watched(), &event) != 0) return -1;
    lock.lock();
    if (!made_before()) doorbell_ = std::move(made);
  }
  return doorbell_ ? doorbell_.passed_on() : -1;
}

// If a peer has shut the doorbell's sockets down, this end is closed. After that, a peer that has to wake a thread here
// gets an error and ends its stream, and later streams stay on TCP.
void DrivenList::answer_doorbell() {
  const LockGuard lock(mutex_);
  if (doorbell_ && !doorbell_.drain()) doorbell_.shut();
}

void DrivenList::pass_doorbell_on() {
  if (sleepers_.load() == 0 || !rung()) return;
  const LockGuard lock(mutex_);
  if (doorbell_) doorbell_.ring();
}

void DrivenList::forget_doorbell() {
  const LockGuard lock(mutex_);
  doorbell_.forget();
}

DoorbellPage::Bell DrivenList::doorbell_of(const Driven& qp) noexcept {
  const LockGuard lock(mutex_);
  const std::uint32_t at = qp.slot.load(std::memory_order_relaxed);
  if (at >= used_.load() * kBits) return DoorbellPage::kNoBell;
  Block& block = *blocks_[at / kBits].load();
  if (block.word.load() == nullptr) {
    const auto taken = Doorbells::of_process().take();
    if (!taken) return DoorbellPage::kNoBell;
    block.word_number = *taken;
    block.word.store(&Doorbells::of_process().word(*taken));
    show_sleepers();
  }
  return DoorbellPage::bell(block.word_number, at % kBits);
}

bool DrivenList::rung() const {
  const std::size_t used = used_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    const Block& block = *blocks_[i].load(std::memory_order_acquire);
    const auto* const word = block.word.load(std::memory_order_acquire);
    if ((word != nullptr && word->rung.load() != 0) || block.due.load() != 0) return true;
  }
  return false;
}

// Tells peers whether a thread that serves this list sleeps. A peer sets its bit and then reads `asleep`; this end sets
// `asleep` and then reads the bits. So at least one end sees the other's write. Called with the lock held.
void DrivenList::show_sleepers() {
  for (std::size_t i = 0; i < used_.load(); ++i) {
    if (auto* const word = blocks_[i].load()->word.load()) word->asleep.store(sleepers_ > 0 ? 1 : 0);
  }
}

void DrivenList::begin_sleep() {
  const LockGuard lock(mutex_);
  if (++sleepers_ == 1) show_sleepers();
}

void DrivenList::end_sleep() {
  const LockGuard lock(mutex_);
  if (--sleepers_ == 0) show_sleepers();
}

// Copies the list for poll_each() if it has changed. False if it has more than kFew queue pairs.
bool DrivenList::copy_few() {
  if (changes_.load() != copied_) {
    const LockGuard lock(mutex_);
    copied_ = changes_.load(std::memory_order_relaxed);
    count_ = 0;
    if (size_ > kFew) {
      count_ = size_;
    } else {
      for_each_unlocked([this](Driven& qp) { few_[count_++] = &qp; });
    }
  }
  return count_ <= kFew;
}

bool DrivenList::poll_each() {
  if (!copy_few()) return false;
  bool work = false;
  ++round_;
  for (std::size_t i = 0; i < count_; ++i) {
    Driven& qp = *few_[i];
    if (qp.idle_rounds >= kIdleRounds && round_ % kIdleStride != 0) continue;
    if (qp.progress(Driver::poll)) {
      work = true;
      qp.idle_rounds = 0;
    } else {
      ++qp.idle_rounds;
    }
  }
  return work;
}

void DrivenList::after_fork_in_child() {
  assume_held(mutex_);
  clear();
  doorbell_ = {};
  sleepers_ = 0;
  note_change();
}

}  // namespace uiw::provider
