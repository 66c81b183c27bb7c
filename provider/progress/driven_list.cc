// SPDX-License-Identifier: MIT
#include "provider/progress/driven_list.h"

namespace uiw::provider {

namespace {
constexpr unsigned kIdleRounds = 64;  // a queue pair without work for so many rounds...
constexpr unsigned kIdleStride = 8;   // ...is tried only in every 8th
}  // namespace

// Called with the lock held. Either a thread that is inside its section sees the change, or whoever waits for the
// sections after a removal sees that section.
void DrivenList::note_change() {
  many_ = entries_.size() > kFew;
  changes_.fetch_add(1);
}

std::size_t DrivenList::add(Driven& qp) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(entries_, &qp);
  bool added = true;
  try {
    entries_.push_back(&qp);
  } catch (const std::bad_alloc&) {
    added = false;
  }
  note_change();
  return added ? entries_.size() : 0;
}

void DrivenList::remove(Driven& qp) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(entries_, &qp);
  note_change();
}

// False if there are too many.
bool DrivenList::copy_few() {
  if (changes_.load() != copied_) {
    const std::lock_guard lock(mutex_);
    copied_ = changes_.load(std::memory_order_relaxed);
    count_ = entries_.size();
    if (count_ <= kFew) std::copy(entries_.begin(), entries_.end(), few_.begin());
  }
  return count_ <= kFew;
}

bool DrivenList::poll_each(bool waits) {
  if (!copy_few()) return false;
  bool work = false;
  ++round_;
  for (std::size_t i = 0; i < count_; ++i) {
    Driven& qp = *few_[i];
    if (waits && qp.sends().posts_wait()) carry_out(qp, [](Driven& one) { one.sends().send_waiting_posts(); });
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
  new (&entries_) std::vector<Driven*>;
  note_change();
}

}  // namespace uiw::provider
