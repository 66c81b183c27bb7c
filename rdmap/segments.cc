// SPDX-License-Identifier: MIT
#include "rdmap/segments.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace uiw::rdmap {

namespace {

// One more segment than `depth` fills, as it may begin in the middle of one.
std::uint64_t table_size(std::uint32_t depth) {
  return std::bit_ceil((depth + Segments::kEntries - 1) / Segments::kEntries + 1);
}

}  // namespace

Segments::Segments(std::uint32_t depth, std::size_t entry_size)
    : mask_(table_size(depth) - 1), size_(std::max(entry_size * kEntries, sizeof(std::byte*))) {}

Segments::~Segments() {
  while (std::byte* segment = pop_free()) ::operator delete(segment);
  if (table_ == nullptr) return;
  for (std::uint64_t i = 0; i <= mask_; ++i) ::operator delete(table_[i]);
}

void Segments::provide_first() {
  if (!provide(0, 0)) throw std::bad_alloc();
}

void Segments::push_free(std::byte* segment) {
  std::memcpy(segment, &free_, sizeof free_);
  free_ = segment;
}

std::byte* Segments::pop_free() {
  std::byte* segment = free_;
  if (segment != nullptr) std::memcpy(&free_, segment, sizeof free_);
  return segment;
}

// Entries may be passed over, hence segments too.
bool Segments::provide_segment(std::uint64_t segment, std::uint64_t popped) {
  if (table_ == nullptr) {
    table_.reset(new (std::nothrow) std::byte*[mask_ + 1]());
    if (table_ == nullptr) return false;
  }
  // No number is more than the table's size behind the newest one.
  for (; newest_ != kNone && oldest_ < popped && oldest_ <= newest_; ++oldest_) {
    std::byte*& place = table_[oldest_ & mask_];
    if (place != nullptr) push_free(place);
    place = nullptr;
  }
  std::byte*& place = table_[segment & mask_];
  if (place == nullptr) {
    place = pop_free();
    if (place == nullptr) place = static_cast<std::byte*>(::operator new(size_, std::nothrow));
    if (place == nullptr) return false;
  }
  oldest_ = std::max(oldest_, popped);
  newest_ = newest_ == kNone ? segment : std::max(newest_, segment);
  return true;
}

}  // namespace uiw::rdmap
