// SPDX-License-Identifier: MIT
// Memory for the entries of a queue whose entry numbers only grow. The memory comes in blocks of a few entries. A block
// whose entries have all been popped is used again for later entries, and a new block is allocated only if there is no
// such block. So a deep queue that is short most of the time takes little memory, and this memory stays in cache.
//
// Threads: one pusher calls provide() before it fills in an entry. of() may be called by the thread that owns the entry
// at that moment, the pusher or the one taker. The queue synchronizes the two with release and acquire: the pusher
// passes as `popped` only entries that the taker has released. Errors: provide() returns false if memory is short;
// provide_first() throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace uiw::rdmap {

class QueueMemory {
 public:
  static constexpr std::uint64_t kEntries = 8;  // in a block

  // At most `depth` entries of `entry_size` octets are in use at a time. Allocates nothing yet.
  QueueMemory(std::uint32_t depth, std::size_t entry_size);
  ~QueueMemory();
  QueueMemory(const QueueMemory&) = delete;
  QueueMemory& operator=(const QueueMemory&) = delete;

  // For the pusher: makes sure that there is memory for the entry `number`. Entries before `popped` are no longer in
  // use. False if there is no memory.
  bool provide(std::uint64_t number, std::uint64_t popped) {
    return number / kEntries == newest_ || provide_block(number / kEntries, popped / kEntries);
  }
  // As provide() for the entry 0, but throws std::bad_alloc if there is no memory.
  void provide_first();

  // of() is the block that has the entry `number`, index() the index of the entry in this block. of() may be called for
  // an entry for which provide() has succeeded and which is not popped.
  std::byte* of(std::uint64_t number) const { return table_[(number / kEntries) & mask_]; }
  static std::size_t index(std::uint64_t number) { return number % kEntries; }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  bool provide_block(std::uint64_t block, std::uint64_t popped);
  void push_free(std::byte* block);
  std::byte* pop_free();

  std::unique_ptr<std::byte*[]> table_;
  const std::uint64_t mask_;
  const std::size_t size_;  // of a block, in octets
  // The following members are used by the pusher only.
  std::uint64_t oldest_ = 0;      // the table has no blocks with lower numbers
  std::uint64_t newest_ = kNone;  // the table has no blocks with higher numbers; kNone: no blocks at all
  std::byte* free_ = nullptr;     // a list of free blocks; each block begins with the address of the next one
};

}  // namespace uiw::rdmap
