// SPDX-License-Identifier: MIT
// Where the program has made a call: the innermost part of the stack of the calling thread. It has only numbers, which
// are cheap to keep; what they mean (function, file and line) is looked up when a fault is reported (source_line.h).
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "provider/export.h"

namespace uiw::provider::check {

class Place {
 public:
  Place() = default;
  // The call that is under way.
  static Place here();
  // The call that is under way, which returns to this address; only the frames from there on, and few of them. For
  // functions of the provider that the program calls directly, as those that libibverbs' header defines inline
  // (ibv_post_send, ibv_poll_cq and others). Takes half a microsecond.
  UIW_API static Place of_call(const void* return_address);

  bool operator==(const Place&) const = default;
  std::span<const void* const> frames() const { return {frames_.data(), count_}; }

 private:
  std::array<const void*, 12> frames_{};
  std::size_t count_ = 0;
};

// Whether the address is on the stack of this thread; not on another that the program has switched it to.
bool is_on_stack(const void* address);

}  // namespace uiw::provider::check
