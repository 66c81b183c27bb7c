// SPDX-License-Identifier: MIT
// The way of a call through libfaults.so: to the next object that has the function, unless it fails here.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "tests/faults/decision.h"

namespace faults {

// The function of this name behind libfaults.so. As a constinit variable it works before constructors have run.
template <typename Signature>
class Next {
 public:
  constexpr explicit Next(const char* name) : name_(name) {}
  Signature* get() {
    Signature* function = found_.load(std::memory_order_acquire);
    if (function != nullptr) return function;
    function = reinterpret_cast<Signature*>(::dlsym(RTLD_NEXT, name_));
    found_.store(function, std::memory_order_release);
    return function;
  }

 private:
  const char* const name_;
  std::atomic<Signature*> found_{nullptr};
};

// The errno or kShort with which the call ends, or 0. `traits` is asked only where it matters.
template <typename Traits>
int verdict(Function function, const void* from, Traits traits) {
  if (!is_watching() || Inside::already()) return 0;
  const Inside inside;
  const int before = errno;
  const Caller who = caller(from);
  const int error = who.count != 0 ? decide(function, traits(), who) : 0;
  errno = before;
  return error;
}
inline int verdict(Function function, const void* from) {
  return verdict(function, from, [] { return 0U; });
}

template <typename Result>
Result failed(int error) {
  errno = error;
  if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else
    return -1;
}

}  // namespace faults

#define FAULTS_API extern "C" __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

// A function of libc that fails as a whole. The definition has a name of its own, since libc's header declares the
// function with an exception specification that depends on its version.
#define FAULTS_WHOLE(result, name, parameters, arguments)                                  \
  FAULTS_API result faults_##name parameters __asm__(#name);                               \
  FAULTS_API result faults_##name parameters {                                             \
    static constinit ::faults::Next<result parameters> next(#name);                        \
    if (const int error = ::faults::verdict(::faults::Function::name, CALLER); error != 0) \
      return ::faults::failed<result>(error);                                              \
    return next.get() arguments;                                                           \
  }
