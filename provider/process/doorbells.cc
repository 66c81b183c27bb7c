// SPDX-License-Identifier: MIT
#include "provider/process/doorbells.h"

#include <algorithm>
#include <mutex>

#include "mpa/descriptor.h"

namespace uiw::provider {

Doorbells& Doorbells::of_process() {
  static Doorbells doorbells;
  return doorbells;
}

// Called with the lock held.
bool Doorbells::make() {
  if (page_.load() == nullptr) page_.store(mpa::DoorbellPage::create(fd_).release());
  return page_.load() != nullptr;
}

int Doorbells::descriptor() {
  const std::lock_guard lock(mutex_);
  return make() ? fd_ : -1;
}

std::optional<std::size_t> Doorbells::take() {
  const std::lock_guard lock(mutex_);
  if (!make()) return std::nullopt;
  const auto free = std::ranges::find(taken_, false);
  if (free == taken_.end()) return std::nullopt;
  *free = true;
  return static_cast<std::size_t>(free - taken_.begin());
}

void Doorbells::give_back(std::size_t word) {
  const std::lock_guard lock(mutex_);
  taken_[word] = false;
}

void Doorbells::after_fork_in_child() {
  page_.store(nullptr);  // not mapped here
  if (fd_ >= 0) mpa::close_descriptor(fd_);
  fd_ = -1;
  taken_ = {};
}

}  // namespace uiw::provider
