// SPDX-License-Identifier: MIT
#include "rdmap/segments.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace uiw::rdmap {

namespace {

// Entries of a segment, as a power of two: a few, and more in a very deep queue, whose table stays short by that.
unsigned shift_of(std::uint32_t depth) {
  constexpr int kFew = 3, kManySegments = 5;
  const int width = std::bit_width(depth - (depth > 0 ? 1 : 0));
  return static_cast<unsigned>(std::max(std::min(kFew, width), width - kManySegments));
}

// One more segment than `depth` fills, as it may begin in the middle of one.
std::uint64_t table_size(std::uint32_t depth, unsigned shift) {
  return std::bit_ceil(((std::uint64_t{depth} + (std::uint64_t{1} << shift) - 1) >> shift) + 1);
}

}  // namespace

Segments::Segments(std::uint32_t depth, std::size_t entry_size)
    : shift_(shift_of(depth)),
      mask_(table_size(depth, shift_) - 1),
      size_(std::max(entry_size << shift_, sizeof(std::byte*))) {}

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
