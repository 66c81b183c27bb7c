// SPDX-License-Identifier: MIT
// malloc in all its forms: each of uiw's calls may find no memory, and what uiw has allocated is known until it is
// freed.
#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/faults/decision.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);
}

namespace faults {
namespace {

// The allocations that live: lists by the address, of entries that come from a fixed store.
class Allocations {
 public:
  void add(void* memory, std::size_t size, const Caller& who) {
    const Lock lock(*this);
    Entry* entry = free_;
    if (entry != nullptr) {
      free_ = entry->next;
    } else if (used_ < kMost) {
      entry = &entries_[used_++];
    } else {
      std::abort();  // the counts would be wrong
    }
    Entry*& head = heads_[bucket(memory)];
    *entry = {memory, size, who.frames, head};
    head = entry;
    live_.fetch_add(1, std::memory_order_relaxed);
  }
  void remove(void* memory) {
    if (live_.load(std::memory_order_relaxed) == 0) return;
    const Lock lock(*this);
    for (Entry** at = &heads_[bucket(memory)]; *at != nullptr; at = &(*at)->next) {
      if ((*at)->memory != memory) continue;
      Entry* const gone = *at;
      *at = gone->next;
      gone->next = free_;
      free_ = gone;
      live_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
  }
  std::size_t count() const { return live_.load(); }
  template <typename Call>
  void each(Call call) {
    const Lock lock(*this);
    for (const Entry* head : heads_)
      for (const Entry* one = head; one != nullptr; one = one->next) call(one->frames, one->size);
  }

 private:
  static constexpr std::size_t kMost = 1 << 15, kBuckets = 1 << 13;
  struct Entry {
    void* memory;
    std::size_t size;
    Frames frames;
    Entry* next;
  };
  // Threads of one process; none holds it when the process forks, since there is only one then.
  struct Lock {
    explicit Lock(Allocations& of) : all(of) {
      while (all.locked_.exchange(true, std::memory_order_acquire)) sched_yield();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() { all.locked_.store(false, std::memory_order_release); }
    Allocations& all;
  };
  static std::size_t bucket(const void* memory) {
    return (reinterpret_cast<std::uintptr_t>(memory) >> 4) * 0x9E3779B97F4A7C15 >> 51;
  }

  std::atomic<bool> locked_{false};
  std::atomic<std::size_t> live_{0};
  std::size_t used_ = 0;
  Entry* free_ = nullptr;
  std::array<Entry*, kBuckets> heads_{};
  std::array<Entry, kMost> entries_{};
};

constinit Allocations g_allocations;

template <typename Allocate>
inline void* allocate(const void* from, std::size_t size, Allocate allocate) {
  if (Inside::already()) return allocate();
  const Inside inside;
  const int before = errno;
  const Caller who = caller(from);
  errno = before;
  if (who.count != 0 && decide(Function::memory, 0, who) != 0) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const memory = allocate();
  if (memory != nullptr && who.count != 0) g_allocations.add(memory, size, who);
  return memory;
}

void release(void* memory) {
  if (memory == nullptr) return;
  g_allocations.remove(memory);
  __libc_free(memory);
}

}  // namespace
}  // namespace faults

#define FAULTS_API extern "C" __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

FAULTS_API std::size_t faults_live(void (*each)(const faults::Frames& frames, std::size_t size)) {
  if (each != nullptr) faults::g_allocations.each(each);
  return faults::g_allocations.count();
}

FAULTS_API void* malloc(std::size_t size) noexcept {
  return faults::allocate(CALLER, size, [=] { return __libc_malloc(size); });
}
FAULTS_API void* calloc(std::size_t count, std::size_t size) noexcept {
  return faults::allocate(CALLER, count * size, [=] { return __libc_calloc(count, size); });
}
FAULTS_API void* realloc(void* memory, std::size_t size) noexcept {
  if (memory == nullptr) return faults::allocate(CALLER, size, [=] { return __libc_malloc(size); });
  return faults::allocate(CALLER, size, [=] {
    faults::g_allocations.remove(memory);
    return __libc_realloc(memory, size);
  });
}
FAULTS_API void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return faults::allocate(CALLER, size, [=] { return __libc_memalign(alignment, size); });
}
FAULTS_API void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return faults::allocate(CALLER, size, [=] { return __libc_memalign(alignment, size); });
}
FAULTS_API int posix_memalign(void** to, std::size_t alignment, std::size_t size) noexcept {
  void* const memory = faults::allocate(CALLER, size, [=] { return __libc_memalign(alignment, size); });
  if (memory == nullptr) return ENOMEM;
  *to = memory;
  return 0;
}
FAULTS_API void free(void* memory) noexcept { faults::release(memory); }
