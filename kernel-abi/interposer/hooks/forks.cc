// SPDX-License-Identifier: MIT
// The hooks of ibv_fork_init() and of the madvise() calls that follow from it.
//
// libibverbs marks registered pages (MADV_DONTFORK) so that a child does not get them. Since Linux 5.13, where the
// kernel itself copies such pages at a fork, the marks are needless. They are also harmful: a child that touches other
// data in a marked page ends by SIGSEGV, and each mark may split a mapping. Since rdma-core 51, libibverbs first asks
// the kernel whether marks are needed. For earlier releases the hook of ibv_fork_init() asks; these releases call that
// function for RDMAV_FORK_SAFE, too. A program that finds the real ibv_fork_init() by dlsym() bypasses the hook of
// ibv_fork_init(); the hook of madvise() then leaves out the marks.
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"

namespace uiw::kernel_abi {
namespace {

constexpr int kUnneeded = 2;  // IBV_FORK_UNNEEDED

constinit RealFunction<int(void*, size_t, int)> real_madvise("madvise");

int call_madvise(void* address, size_t size, int advice) {
  if (auto* function = real_madvise.get()) return function(address, size, advice);
  return static_cast<int>(syscall(SYS_madvise, address, size, advice));
}

// Returns a function of libibverbs, or null if libibverbs is not loaded or lacks the function. Looks only in libibverbs
// itself: the program may have loaded it with RTLD_LOCAL, and dlsym(RTLD_DEFAULT) would then not find the function.
int (*function_of_verbs(const char* name))() {
  void* verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (verbs == nullptr) return nullptr;
  void* function = dlsym(verbs, name);
  dlclose(verbs);
  return reinterpret_cast<int (*)()>(function);
}

// Whether the kernel, or uiw in its place, says that it copies registered pages at a fork. Keeps errno.
bool copied_at_fork() {
  static std::atomic<bool> known{false};
  if (known.load(std::memory_order_relaxed)) return true;
  const int saved_errno = errno;
  const auto state = function_of_verbs("ibv_is_fork_initialized");
  const bool copied = state != nullptr && state() == kUnneeded;
  if (copied) known.store(true, std::memory_order_relaxed);
  errno = saved_errno;
  return copied;
}

bool is_of_verbs(const void* code) {
  Dl_info info;
  return dladdr(code, &info) != 0 && info.dli_fname != nullptr && strstr(info.dli_fname, "/libibverbs.so.") != nullptr;
}

}  // namespace
}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK int ibv_fork_init() {
  if (copied_at_fork()) return 0;
  const auto real = function_of_verbs("ibv_fork_init");
  return real != nullptr ? real() : ENOSYS;
}

UIW_HOOK int madvise(void* address, size_t size, int advice) noexcept {
  const bool marks = advice == MADV_DONTFORK || advice == MADV_DOFORK;
  if (__builtin_expect(marks, 0) && is_of_verbs(__builtin_return_address(0)) && copied_at_fork()) return 0;
  return call_madvise(address, size, advice);
}
