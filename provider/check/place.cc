// SPDX-License-Identifier: MIT
#include "provider/check/place.h"

#include <pthread.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "base/guarded_copy.h"

namespace uiw::provider::check {

namespace {

// The frames of a stack, from `first` on if that is not null, and where the stack has their return addresses.
template <std::size_t size>
struct Walk {
  std::array<const void*, size> frames{};
  std::array<std::uintptr_t, size> slots{};
  std::size_t count = 0;
  const void* first = nullptr;
};

template <std::size_t size>
_Unwind_Reason_Code step(_Unwind_Context* context, void* argument) {
  Walk<size>& walk = *static_cast<Walk<size>*>(argument);
  const void* const address = reinterpret_cast<const void*>(_Unwind_GetIP(context));
  if (walk.count == 0 && walk.first != nullptr && address != walk.first) return _URC_NO_REASON;
  walk.frames[walk.count] = address;
  walk.slots[walk.count++] = _Unwind_GetCFA(context) - sizeof(void*);
  return walk.count < size ? _URC_NO_REASON : _URC_END_OF_STACK;
}

using ShortWalk = Walk<4>;

// Whether the stack still has these return addresses where it had them. Then it is the same stack, since what a
// function has stored there stays as long as it is called.
bool is_same(const ShortWalk& walk) {
  for (std::size_t i = 0; i < walk.count; ++i) {
    const void* there = nullptr;
    if (!guarded_copy(&there, reinterpret_cast<const void*>(walk.slots[i]), sizeof there) || there != walk.frames[i])
      return false;
  }
  return walk.count != 0;
}

// The latest walks of this thread. To walk a stack takes a microsecond, to compare it with an earlier one a fraction.
struct Walks {
  std::array<ShortWalk, 32> all{};
  std::uintptr_t stack = 0;  // where the thread's stack begins; 0: not known yet
  std::size_t stack_size = 0;
};
// Null, or allocated until the thread ends; `ended` is true once they are freed, since what ends later may post, too.
thread_local Walks* walks = nullptr;
thread_local bool ended = false;

Walks* walks_of_thread() {
  if (walks != nullptr || ended) return walks;
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    ::pthread_key_create(&made, [](void* memory) {
      delete static_cast<Walks*>(memory);
      walks = nullptr;
      ended = true;
    });
    return made;
  }();
  walks = new (std::nothrow) Walks();
  if (walks != nullptr) ::pthread_setspecific(key, walks);
  return walks;
}

}  // namespace

Place Place::here() {
  Walk<12> walk;
  ::_Unwind_Backtrace(step<12>, &walk);
  Place place;
  place.count_ = walk.count;
  std::copy_n(walk.frames.begin(), place.count_, place.frames_.begin());
  return place;
}

Place Place::of_call(const void* return_address) {
  const auto number = reinterpret_cast<std::uintptr_t>(return_address);
  ShortWalk own;
  Walks* const all = walks_of_thread();
  ShortWalk& known = all != nullptr ? all->all[(number ^ (number >> 6)) % all->all.size()] : own;
  if (known.first != return_address || !is_same(known)) {
    known = {};
    known.first = return_address;
    ::_Unwind_Backtrace(step<4>, &known);
    if (known.count == 0) known.frames[0] = return_address;
  }
  Place place;
  place.count_ = std::max<std::size_t>(known.count, 1);
  std::copy_n(known.frames.begin(), place.count_, place.frames_.begin());
  return place;
}

bool is_on_stack(const void* address) {
  Walks* const own = walks_of_thread();
  if (own == nullptr) return false;
  if (own->stack == 0) {
    pthread_attr_t attributes;
    void* stack = nullptr;
    if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
    ::pthread_attr_getstack(&attributes, &stack, &own->stack_size);
    ::pthread_attr_destroy(&attributes);
    own->stack = reinterpret_cast<std::uintptr_t>(stack);
  }
  return reinterpret_cast<std::uintptr_t>(address) - own->stack < own->stack_size;
}

}  // namespace uiw::provider::check
