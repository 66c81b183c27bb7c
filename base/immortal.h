// SPDX-License-Identifier: MIT
// An object that lives until the process ends, and is made in memory that the library has anyway.
//
// What guards the state of a process is made when the library is loaded (provider/verbs/fork.h), and there a lack of
// memory could not be reported: an exception would end the program. It is never destroyed, since threads and
// destructors of the program may use it while the process exits.
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
