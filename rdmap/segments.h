// SPDX-License-Identifier: MIT
// Memory of a queue whose entries are numbered on and on, as much of it as is in use: segments of a few entries, which
// are made when the queue first gets so long, and serve again once it has moved on. So a deep queue that is short most
// of the time takes little, and what it takes stays in cache.
//
// One pusher asks for the place of an entry before it fills it in; of() is for whoever the entry belongs to. That the
// taker may look at one and is done with one is for the two to tell each other, with release and acquire: only then may
// the pusher say that entries are popped. Memory that cannot be had is no exception, but for the first segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace uiw::rdmap {

class Segments {
 public:
  static constexpr std::uint64_t kEntries = 8;  // of a segment

  // At most `depth` entries of so many octets are in use at a time. Nothing is there yet.
  Segments(std::uint32_t depth, std::size_t entry_size);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  // Is there memory for the entry `number`, where those before `popped` are not in use any more? The pusher.
  bool provide(std::uint64_t number, std::uint64_t popped) {
    return number / kEntries == newest_ || provide_segment(number / kEntries, popped / kEntries);
  }
  // std::bad_alloc if not.
  void provide_first();

  // The segment in which the entry is, and the how manieth it is there. Memory was provided, and it is not popped.
  std::byte* of(std::uint64_t number) const { return table_[(number / kEntries) & mask_]; }
  static std::size_t index(std::uint64_t number) { return number % kEntries; }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  bool provide_segment(std::uint64_t segment, std::uint64_t popped);
  void push_free(std::byte* segment);
  std::byte* pop_free();

  std::unique_ptr<std::byte*[]> table_;
  const std::uint64_t mask_;
  const std::size_t size_;  // of a segment, in octets
  // The pusher's own.
  std::uint64_t oldest_ = 0;      // segments before this one are not in the table
  std::uint64_t newest_ = kNone;  // nor is any behind this one
  std::byte* free_ = nullptr;     // each says which is the next
};

}  // namespace uiw::rdmap
