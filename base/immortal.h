// SPDX-License-Identifier: MIT
// An object that lives until the process ends, in static memory.
//
// Locks and tables of the process are created while the library is loaded (provider/verbs/fork.h), or at their first
// use. While it is loaded, a failed allocation could not be reported, and an exception would end the program, so these
// objects are in static memory. They are never destroyed, since the program may use them while the process exits.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace uiw {

template <typename Object>
class Immortal {
 public:
  // May throw what the constructor of the object throws.
  template <typename... Arguments>
  explicit Immortal(Arguments&&... arguments) : object_(new (memory_) Object(std::forward<Arguments>(arguments)...)) {}
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  Object& operator*() const { return *object_; }
  Object* operator->() const { return object_; }

 private:
  alignas(Object) std::byte memory_[sizeof(Object)];
  Object* const object_;
};

}  // namespace uiw
