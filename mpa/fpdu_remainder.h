// SPDX-License-Identifier: MIT
// The rest of an FPDU of which TCP has taken a part, kept as it is to go out: its CRC covers these octets and no
// others, and their source may be the program's again. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "mpa/bytes.h"

namespace uiw::mpa {

class FpduRemainder {
 public:
  bool empty() const { return at_ == size_; }
  // Valid until the next call that is not const.
  Octets octets() const { return {memory_.get() + at_, size_ - at_}; }
  void take(std::size_t octets) { at_ += octets; }
  void clear() { size_ = at_ = 0; }

  // Room for `size` octets, to be filled by keep(); `wanted`: what further ones may need. Null where there is no
  // memory.
  std::byte* provide(std::size_t size, std::size_t wanted) {
    if (capacity_ < size) {
      const std::size_t capacity = std::max(size, wanted);
      std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[capacity]);
      if (!memory) return nullptr;
      memory_ = std::move(memory);
      capacity_ = capacity;
    }
    return memory_.get();
  }
  void keep(std::size_t size) { size_ = size, at_ = 0; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0, at_ = 0, capacity_ = 0;
};

}  // namespace uiw::mpa
