// SPDX-License-Identifier: MIT
// The rest of an FPDU that TCP has taken in part. It is a copy, since the CRC covers exactly these octets, and the
// program may already be allowed to change their source. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/bytes.h"
#include "mpa/fpdu_buffer.h"

namespace uiw::mpa {

class FpduRemainder {
 public:
  bool empty() const { return at_ == size_; }
  // The octets that are still to be sent; valid until the next call of a member function that is not const.
  Octets octets() const { return {memory_.get() + at_, size_ - at_}; }
  void take(std::size_t octets) { at_ += octets; }
  void clear() {
    size_ = at_ = 0;
    if (capacity_ <= kMostKept) return;
    give_back_fpdu_buffer(std::move(memory_));
    capacity_ = 0;
  }

  // Returns room for `size` octets; the caller fills the room and then calls keep(). If memory has to be allocated, it
  // has at least `wanted` octets, so that later remainders fit. Neither argument is greater than kFpduBufferSize. Null
  // if there is no memory.
  std::byte* provide(std::size_t size, std::size_t wanted) {
    if (capacity_ < size) {
      const bool small = std::max(size, wanted) <= kMostKept;
      const std::size_t capacity = small ? std::max(size, wanted) : kFpduBufferSize;
      std::unique_ptr<std::byte[]> memory(small ? new (std::nothrow) std::byte[capacity]
                                                : take_fpdu_buffer().release());
      if (!memory) return nullptr;
      memory_ = std::move(memory);
      capacity_ = capacity;
    }
    return memory_.get();
  }
  void keep(std::size_t size) { size_ = size, at_ = 0; }

 private:
  static constexpr std::size_t kMostKept = 4096;  // clear() keeps no more memory than this

  std::unique_ptr<std::byte[]> memory_;  // capacity_ octets; an FpduBuffer if these are more than kMostKept
  std::size_t size_ = 0, at_ = 0, capacity_ = 0;
};

}  // namespace uiw::mpa
