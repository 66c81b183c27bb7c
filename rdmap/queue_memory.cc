// SPDX-License-Identifier: MIT
#include "rdmap/queue_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace uiw::rdmap {

namespace {

// The number of blocks that the table has room for, a power of two. It is at least one more than the number of blocks
// that `depth` entries fill, since the first entry in use may be in the middle of a block.
std::uint64_t table_size(std::uint32_t depth) {
  return std::bit_ceil((depth + QueueMemory::kEntries - 1) / QueueMemory::kEntries + 1);
}

}  // namespace

QueueMemory::QueueMemory(std::uint32_t depth, std::size_t entry_size)
    : mask_(table_size(depth) - 1), size_(std::max(entry_size * kEntries, sizeof(std::byte*))) {}

QueueMemory::~QueueMemory() {
  while (std::byte* block = pop_free()) ::operator delete(block);
  if (table_ == nullptr) return;
  for (std::uint64_t i = 0; i <= mask_; ++i) ::operator delete(table_[i]);
}

void QueueMemory::provide_first() {
  if (!provide(0, 0)) throw std::bad_alloc();
}

void QueueMemory::push_free(std::byte* block) {
  std::memcpy(block, &free_, sizeof free_);
  free_ = block;
}

std::byte* QueueMemory::pop_free() {
  std::byte* block = free_;
  if (block != nullptr) std::memcpy(&free_, block, sizeof free_);
  return block;
}

// A queue may ask for memory for only some of its entries (for operands of atomic operations, for example). So the
// table may lack blocks between others.
bool QueueMemory::provide_block(std::uint64_t block, std::uint64_t popped) {
  if (table_ == nullptr) {
    table_.reset(new (std::nothrow) std::byte*[mask_ + 1]());
    if (table_ == nullptr) return false;
  }
  // Blocks whose entries are all popped go to the free list. The table has room for all other blocks, so after this
  // loop each of them has a slot for itself.
  for (; newest_ != kNone && oldest_ < popped && oldest_ <= newest_; ++oldest_) {
    std::byte*& slot = table_[oldest_ & mask_];
    if (slot != nullptr) push_free(slot);
    slot = nullptr;
  }
  std::byte*& slot = table_[block & mask_];
  if (slot == nullptr) {
    slot = pop_free();
    if (slot == nullptr) slot = static_cast<std::byte*>(::operator new(size_, std::nothrow));
    if (slot == nullptr) return false;
  }
  oldest_ = std::max(oldest_, popped);
  newest_ = newest_ == kNone ? block : std::max(newest_, block);
  return true;
}

}  // namespace uiw::rdmap
