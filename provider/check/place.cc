// SPDX-License-Identifier: MIT
#include "provider/check/place.h"

#include <execinfo.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/guarded_copy.h"

namespace uiw::provider::check {

namespace {

// The frames of a stack from one on, and where the stack has their return addresses.
struct Walk {
  std::array<const void*, 4> frames{};
  std::array<std::uintptr_t, 4> slots{};
  std::size_t count = 0;
  const void* first = nullptr;
};

_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  const void* const address = reinterpret_cast<const void*>(_Unwind_GetIP(context));
  if (walk.count == 0 && address != walk.first) return _URC_NO_REASON;
  walk.frames[walk.count] = address;
  walk.slots[walk.count++] = _Unwind_GetCFA(context) - sizeof(void*);
  return walk.count < walk.frames.size() ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// Whether the stack still has these return addresses where it had them. Then it is the same stack, since what a
// function has stored there stays as long as it is called.
bool is_same(const Walk& walk) {
  for (std::size_t i = 0; i < walk.count; ++i) {
    const void* there = nullptr;
    if (!guarded_copy(&there, reinterpret_cast<const void*>(walk.slots[i]), sizeof there) || there != walk.frames[i])
      return false;
  }
  return walk.count != 0;
}

// The latest walks of this thread. To walk a stack takes a microsecond, to compare it with an earlier one a fraction.
using Walks = std::array<Walk, 64>;
thread_local std::unique_ptr<Walks> walks;

}  // namespace

Place Place::here() {
  std::array<void*, 12> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  Place place;
  place.count_ = static_cast<std::size_t>(std::max(count, 0));
  std::copy_n(frames.begin(), place.count_, place.frames_.begin());
  return place;
}

Place Place::of_call(const void* return_address) {
  if (walks == nullptr) walks = std::make_unique<Walks>();
  const auto number = reinterpret_cast<std::uintptr_t>(return_address);
  Walk& known = (*walks)[(number ^ (number >> 6)) % walks->size()];
  if (known.first != return_address || !is_same(known)) {
    known = {};
    known.first = return_address;
    ::_Unwind_Backtrace(step, &known);
    if (known.count == 0) known.frames[0] = return_address;
  }
  Place place;
  place.count_ = std::max<std::size_t>(known.count, 1);
  std::copy_n(known.frames.begin(), place.count_, place.frames_.begin());
  return place;
}

}  // namespace uiw::provider::check
