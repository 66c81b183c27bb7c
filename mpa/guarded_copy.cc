// SPDX-License-Identifier: MIT
#include "mpa/guarded_copy.h"

#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace uiw::mpa {

namespace {

// Keeps the compiler from merging or reordering stores. The processor keeps the order itself on x86; elsewhere a
// release fence stands in.
inline void store_order() {
#if defined(__x86_64__) || defined(__i386__)
  asm volatile("" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

template <typename Word>
UIW_AS_BY_DMA __attribute__((always_inline)) inline void store_word(std::byte* to, const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  std::memcpy(to, &word, sizeof word);
  store_order();
}

template <typename Word>
UIW_AS_BY_DMA __attribute__((always_inline)) inline void step(std::byte*& to, const std::byte*& from,
                                                              std::size_t& size) {
  store_word<Word>(to, from);
  to += sizeof(Word);
  from += sizeof(Word);
  size -= sizeof(Word);
}

// The step that brings an odd multiple of Word's size to an even one.
template <typename Word>
UIW_AS_BY_DMA __attribute__((always_inline)) inline void align(std::byte*& to, const std::byte*& from,
                                                               std::size_t& size) {
  if (size >= sizeof(Word) && (reinterpret_cast<std::uintptr_t>(to) & sizeof(Word)) != 0) step<Word>(to, from, size);
}

UIW_AS_BY_DMA __attribute__((noinline)) void ordered_copy(std::byte* to, const std::byte* from, std::size_t size) {
  align<std::uint8_t>(to, from, size);
  align<std::uint16_t>(to, from, size);
  align<std::uint32_t>(to, from, size);
#if defined(__SSE2__)
  align<std::uint64_t>(to, from, size);
  // The bulk in aligned 16-octet stores, four a turn; the last block is left to the 8-octet stores below.
  while (size > 64) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 48));
    _mm_store_si128(reinterpret_cast<__m128i*>(to), a);
    store_order();
    _mm_store_si128(reinterpret_cast<__m128i*>(to + 16), b);
    store_order();
    _mm_store_si128(reinterpret_cast<__m128i*>(to + 32), c);
    store_order();
    _mm_store_si128(reinterpret_cast<__m128i*>(to + 48), d);
    store_order();
    to += 64, from += 64, size -= 64;
  }
#endif
  while (size >= 8) step<std::uint64_t>(to, from, size);
  if (size >= 4) step<std::uint32_t>(to, from, size);
  if (size >= 2) step<std::uint16_t>(to, from, size);
  if (size >= 1) step<std::uint8_t>(to, from, size);
}

// The jump target of the copy in progress on this thread. Initial-exec, so that the signal handler reads it
// without a call into the loader.
__attribute__((tls_model("initial-exec"))) thread_local sigjmp_buf* guard_target = nullptr;

struct sigaction previous_segv, previous_bus;

void pass_on(const struct sigaction& previous, int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // Back to the default; the faulting instruction runs again and ends the program as it would have without us.
    struct sigaction original = previous;
    sigaction(signal, &original, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by kill(2): no instruction will fault again
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (sigjmp_buf* target = guard_target; target != nullptr && info->si_code > 0) {
    guard_target = nullptr;
    // The jump does not restore the mask; whoever called this handler may have blocked more than we asked for.
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
    siglongjmp(*target, 1);
  }
  pass_on(signal == SIGSEGV ? previous_segv : previous_bus, signal, info, context);
}

std::atomic<bool> guard_installed{false};

}  // namespace

void install_copy_guard() {
  if (guard_installed.exchange(true)) return;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  // SA_NODEFER: the jump out of the handler leaves the signal unblocked.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, nullptr, &previous_segv);
  sigaction(SIGBUS, nullptr, &previous_bus);
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

bool guarded_call(void (*function)(void*), void* argument) {
  sigjmp_buf target;
  if (sigsetjmp(target, 0) != 0) return false;
  guard_target = &target;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  function(argument);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  guard_target = nullptr;
  return true;
}

bool guarded_copy(void* to, const void* from, std::size_t size) {
  sigjmp_buf target;
  if (sigsetjmp(target, 0) != 0) return false;
  guard_target = &target;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  ordered_copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  guard_target = nullptr;
  return true;
}

}  // namespace uiw::mpa
