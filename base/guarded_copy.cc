// SPDX-License-Identifier: MIT
#include "base/guarded_copy.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/fault_signals.h"

// The short copies below are written in assembly, which AddressSanitizer cannot check.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define UIW_SHORT_COPIES 1
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef UIW_SHORT_COPIES
#endif
#endif
#endif

namespace uiw {

#if defined(UIW_SHORT_COPIES)
// Where execution continues after a fault of an instruction in [begin, end). Each field holds the distance of an
// address from the field itself.
struct FaultExit {
  std::int32_t begin, end, exit;
};
// The linker sets these to the bounds of the section in which UIW_MAY_FAULT collects the exits of this library.
extern "C" __attribute__((visibility("hidden"))) const FaultExit __start_uiw_fault_exits[], __stop_uiw_fault_exits[];
#endif

namespace {

#if defined(UIW_SHORT_COPIES)
// A guard costs more than a copy of a few octets. So short copies have none: they are pieces of assembly that keep
// nothing on the stack, and the fault handler continues execution at a label of the function that has the piece. That
// function has a label `fault`.
#define UIW_MAY_FAULT(instructions)             \
  "771: " instructions                          \
  "\n772: .pushsection uiw_fault_exits,\"a\"\n" \
  ".balign 4\n.long 771b - .\n.long 772b - .\n.long %l[fault] - .\n.popsection"

constexpr std::size_t kShortCopy = 64;

// Copies [1, kShortCopy] octets, in no promised order. False if there was a fault.
inline bool short_copy(void* to, const void* from, std::size_t size) {
  if (size > 32) {
    asm goto(UIW_MAY_FAULT("movups (%[from]), %%xmm0\n movups 16(%[from]), %%xmm1\n"
                           "movups -32(%[from], %[size]), %%xmm2\n movups -16(%[from], %[size]), %%xmm3\n"
                           "movups %%xmm0, (%[to])\n movups %%xmm1, 16(%[to])\n"
                           "movups %%xmm2, -32(%[to], %[size])\n movups %%xmm3, -16(%[to], %[size])")
             :
             : [to] "r"(to), [from] "r"(from), [size] "r"(size)
             : "xmm0", "xmm1", "xmm2", "xmm3", "memory"
             : fault);
  } else if (size >= 16) {
    asm goto(UIW_MAY_FAULT("movups (%[from]), %%xmm0\n movups -16(%[from], %[size]), %%xmm1\n"
                           "movups %%xmm0, (%[to])\n movups %%xmm1, -16(%[to], %[size])")
             :
             : [to] "r"(to), [from] "r"(from), [size] "r"(size)
             : "xmm0", "xmm1", "memory"
             : fault);
  } else if (size >= 8) {
    asm goto(UIW_MAY_FAULT("movq (%[from]), %%rax\n movq -8(%[from], %[size]), %%rdx\n"
                           "movq %%rax, (%[to])\n movq %%rdx, -8(%[to], %[size])")
             :
             : [to] "r"(to), [from] "r"(from), [size] "r"(size)
             : "rax", "rdx", "memory"
             : fault);
  } else if (size >= 4) {
    asm goto(UIW_MAY_FAULT("movl (%[from]), %%eax\n movl -4(%[from], %[size]), %%edx\n"
                           "movl %%eax, (%[to])\n movl %%edx, -4(%[to], %[size])")
             :
             : [to] "r"(to), [from] "r"(from), [size] "r"(size)
             : "rax", "rdx", "memory"
             : fault);
  } else {
    asm goto(UIW_MAY_FAULT("movb (%[from]), %%al\n movb (%[from], %[half]), %%cl\n movb -1(%[from], %[size]), %%dl\n"
                           "movb %%al, (%[to])\n movb %%cl, (%[to], %[half])\n movb %%dl, -1(%[to], %[size])")
             :
             : [to] "r"(to), [from] "r"(from), [size] "r"(size), [half] "r"(size / 2)
             : "rax", "rcx", "rdx", "memory"
             : fault);
  }
  return true;
fault:
  return false;
}

// Copies words of 8 octets to an address that is a multiple of 8, in ascending order. `size` is a multiple of 8, and
// not 0. False if there was a fault.
inline bool copy_words(void* to, const void* from, std::size_t size) {
  asm goto(UIW_MAY_FAULT("xorl %%eax, %%eax\n 1: movq (%[from], %%rax), %%rdx\n movq %%rdx, (%[to], %%rax)\n"
                         "addq $8, %%rax\n cmpq %[size], %%rax\n jb 1b")
           :
           : [to] "r"(to), [from] "r"(from), [size] "r"(size)
           : "rax", "rdx", "memory", "cc"
           : fault);
  return true;
fault:
  return false;
}

// Whether copy_words() is to be used.
inline bool is_few_words(const void* to, std::size_t size) {
  return ((reinterpret_cast<std::uintptr_t>(to) | size) & 7) == 0 && size - 1 < kShortCopy;
}

// True if a short copy has faulted: sets the instruction pointer to its exit.
bool exit_short_copy(mcontext_t& context) {
  const auto address = [](const std::int32_t& field) { return reinterpret_cast<std::intptr_t>(&field) + field; };
  const std::intptr_t at = context.gregs[REG_RIP];
  for (const FaultExit* one = __start_uiw_fault_exits; one != __stop_uiw_fault_exits; ++one) {
    if (at < address(one->begin) || at >= address(one->end)) continue;
    context.gregs[REG_RIP] = address(one->exit);
    return true;
  }
  return false;
}
#endif

// Keeps the compiler from merging or reordering stores. x86 processors keep the order of stores; on other processors a
// release fence does.
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

// Copies one Word if that makes `to` a multiple of twice the size of Word.
template <typename Word>
UIW_AS_BY_DMA __attribute__((always_inline)) inline void align(std::byte*& to, const std::byte*& from,
                                                               std::size_t& size) {
  if (size >= sizeof(Word) && (reinterpret_cast<std::uintptr_t>(to) & sizeof(Word)) != 0) step<Word>(to, from, size);
}

#if defined(__x86_64__)
// Copies blocks of 64 octets until 64 or fewer are left, and returns how many octets it has copied. `to` is aligned to
// 16 octets. A processor may divide a store of 32 octets into two of 16, but both halves become visible before the next
// store. Where another processor has written the source, this is up to a quarter faster than stores of 16 octets.
UIW_AS_BY_DMA __attribute__((noinline, target("avx2"))) std::size_t copy_blocks_avx2(std::byte* to,
                                                                                     const std::byte* from,
                                                                                     std::size_t size) {
  const std::byte* const first = from;
  if ((reinterpret_cast<std::uintptr_t>(to) & 16) != 0) {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    store_order();
    to += 16, from += 16, size -= 16;
  }
  while (size > 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), a);
    store_order();
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + 32), b);
    store_order();
    to += 64, from += 64, size -= 64;
  }
  return static_cast<std::size_t>(from - first);
}
const bool has_avx2 = __builtin_cpu_supports("avx2");
#endif

UIW_AS_BY_DMA __attribute__((noinline)) void ordered_copy(std::byte* to, const std::byte* from, std::size_t size) {
  align<std::uint8_t>(to, from, size);
  align<std::uint16_t>(to, from, size);
  align<std::uint32_t>(to, from, size);
#if defined(__SSE2__)
  align<std::uint64_t>(to, from, size);
#if defined(__x86_64__)
  if (size >= 256 && has_avx2) {  // fewer octets are not worth the call
    const std::size_t copied = copy_blocks_avx2(to, from, size);
    to += copied, from += copied, size -= copied;
  }
#endif
  // In a long copy most octets go in aligned 16-octet stores, four in each iteration. The narrower stores below copy
  // the last octets, 64 at most.
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

// A guarded access in progress on this thread: which memory it accesses, and where execution continues after a fault. A
// signal handler of the program may interrupt the access. That handler may fault at other memory, so covers() checks
// the address; or that handler may begin another guarded access, so guards are nested.
class Guard {
 public:
  Guard(const void* a, std::size_t a_size, const void* b, std::size_t b_size);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // From here on, if this thread faults at the guarded memory, its execution continues at `resume`.
  void begin();
  bool covers(const siginfo_t& info) const { return a_.covers(info) || b_.covers(info); }

  sigjmp_buf resume;

 private:
  struct Range {
    std::uintptr_t start;
    std::size_t size;

    bool covers(const siginfo_t& info) const {
      // Addresses are compared without their tag bits, which some processors have. The range is extended to the
      // beginning of its first page, since some processors report only the page of a fault.
      constexpr std::uintptr_t kAddress = (std::uintptr_t{1} << 56) - 1;
      constexpr std::uintptr_t kInPage = 4095;
      // x86 reports a fault at a non-canonical address without that address (SI_KERNEL). Only a range that reaches
      // beyond kHighest, such as memory that is registered without bounds, can be its cause.
      constexpr std::uintptr_t kHighest = (std::uintptr_t{1} << 47) - 1;
      if (info.si_code == SI_KERNEL) return start > kHighest || size > kHighest - start;
      const auto fault = reinterpret_cast<std::uintptr_t>(info.si_addr);
      return size != 0 && ((fault - (start & ~kInPage)) & kAddress) < (start & kInPage) + size;
    }
  };

  const Range a_, b_;
  Guard* const outer_;
};

// Initial-exec, so that the signal handler reads it without a call into the loader.
__attribute__((tls_model("initial-exec"))) thread_local Guard* innermost = nullptr;

inline Guard::Guard(const void* a, std::size_t a_size, const void* b, std::size_t b_size)
    : a_{reinterpret_cast<std::uintptr_t>(a), a_size},
      b_{reinterpret_cast<std::uintptr_t>(b), b_size},
      outer_(innermost) {}
inline void Guard::begin() {
  keep_faults_open();
  innermost = this;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
inline Guard::~Guard() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  innermost = outer_;
}

// The fault handler continues execution here, as if the instruction that faulted had called this function. On x86 the
// stack may be misaligned at that instruction, so the function aligns it.
#if defined(__x86_64__)
#define UIW_ALIGNS_STACK __attribute__((force_align_arg_pointer))
#else
#define UIW_ALIGNS_STACK
#endif
[[noreturn]] UIW_ALIGNS_STACK void give_up(Guard* guard) { siglongjmp(guard->resume, 1); }

// Called by our signal handler. True if the fault is that of a guarded access, which is then abandoned. Where possible
// the signal handler returns into give_up(), so that the kernel restores the signal mask and the alternate stack.
bool end_access(siginfo_t* info, void* context) {
  if (is_sent(*info)) return false;
  auto* const interrupted = static_cast<ucontext_t*>(context);
#if defined(UIW_SHORT_COPIES)
  if (exit_short_copy(interrupted->uc_mcontext)) return true;
#endif
  Guard* const guard = innermost;
  if (guard == nullptr || !guard->covers(*info)) return false;
#if defined(__x86_64__)
  interrupted->uc_mcontext.gregs[REG_RDI] = reinterpret_cast<greg_t>(guard);
  interrupted->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(give_up);
  return true;
#elif defined(__aarch64__)
  interrupted->uc_mcontext.regs[0] = reinterpret_cast<std::uint64_t>(guard);
  interrupted->uc_mcontext.pc = reinterpret_cast<std::uint64_t>(give_up);
  return true;
#else
  // The kernel has written only the first octets of uc_sigmask, so only these are used.
  sigset_t mask;
  sigemptyset(&mask);
  std::memcpy(&mask, &interrupted->uc_sigmask, (NSIG - 1) / 8);
  set_kernel_mask(mask);
  give_up(guard);
#endif
}

}  // namespace

void install_copy_guard() {
  static std::atomic<bool> installed{false};
  if (installed.load(std::memory_order_acquire)) return;
  install_fault_handler(end_access);
  installed.store(true, std::memory_order_release);
}

bool guarded_call(void (*function)(void*), void* argument, const void* memory, std::size_t size) {
  Guard guard(memory, size, nullptr, 0);
  if (sigsetjmp(guard.resume, 0) != 0) return false;
  guard.begin();
  function(argument);
  return true;
}

bool guarded_copy(void* to, const void* from, std::size_t size) {
#if defined(UIW_SHORT_COPIES)
  if (is_few_words(to, size)) {
    keep_faults_open();
    return copy_words(to, from, size);
  }
#endif
  Guard guard(to, size, from, size);
  if (sigsetjmp(guard.resume, 0) != 0) return false;
  guard.begin();
  ordered_copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size);
  return true;
}

bool guarded_copy_unordered(void* to, const void* from, std::size_t size) {
#if defined(__SANITIZE_THREAD__)
  return guarded_copy(to, from, size);  // ThreadSanitizer checks memcpy, whoever calls it
#else
  if (size == 0) return true;
#if defined(UIW_SHORT_COPIES)
  if (size <= kShortCopy) {
    keep_faults_open();
    return short_copy(to, from, size);
  }
#endif
  Guard guard(to, size, from, size);
  if (sigsetjmp(guard.resume, 0) != 0) return false;
  guard.begin();
  std::memcpy(to, from, size);
  // Keeps the compiler from ending the guard before the copy is complete.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return true;
#endif
}

}  // namespace uiw
