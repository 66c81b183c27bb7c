// SPDX-License-Identifier: MIT
// Finds the functions that the interposer hides, each on its first use, by dlsym(RTLD_NEXT).
//
// Calls may come before any constructor, from several threads at once, and from inside dlsym itself (an allocator that
// is interposed, too, may open files while dlsym allocates). So there is one atomic pointer for each function and no
// lock. RealFunction::get() returns null if libc lacks the function, and while this thread looks up a function of the
// same type. The hook that has called get() then makes the system call itself, or fails.
#pragma once

#include <dlfcn.h>

#include <atomic>

static_assert(sizeof(void*) == 8, "the fallbacks by system call assume a 64-bit ABI");

namespace uiw::kernel_abi {

// Not 0 while this thread loads libuiw.so.1, or executes a function of that library that may use paths; hooks then
// leave paths unchanged. The variable is in initial-exec TLS, since access to it must not allocate memory. This TLS
// model is possible because the interposer is loaded at program start.
extern __thread int t_passthrough __attribute__((tls_model("initial-exec")));

class Passthrough {
 public:
  Passthrough() { ++t_passthrough; }
  ~Passthrough() { --t_passthrough; }
  Passthrough(const Passthrough&) = delete;
  Passthrough& operator=(const Passthrough&) = delete;
};

template <typename Function>
class RealFunction {
 public:
  constexpr explicit RealFunction(const char* name) : name_(name) {}

  Function* get() {
    void* known = pointer_.load(std::memory_order_acquire);
    if (__builtin_expect(known == nullptr, 0)) known = resolve();
    return known == missing() ? nullptr : reinterpret_cast<Function*>(known);
  }

 private:
  static void* missing() { return reinterpret_cast<void*>(1); }

  __attribute__((noinline)) void* resolve() {
    static __thread bool t_resolving __attribute__((tls_model("initial-exec")));
    if (t_resolving) return missing();
    t_resolving = true;
    void* found = dlsym(RTLD_NEXT, name_);
    t_resolving = false;
    if (found == nullptr) found = missing();
    pointer_.store(found, std::memory_order_release);
    return found;
  }

  const char* const name_;
  std::atomic<void*> pointer_{nullptr};
};

}  // namespace uiw::kernel_abi
