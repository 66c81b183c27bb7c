// SPDX-License-Identifier: MIT
// The memory of a completion queue's ring of entries, from the heap or from the program's own allocator
// (ibv_alloc_parent_domain(3)).
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace uiw::provider {

// The program's allocator. Its functions are called only inside the program's own calls that create, resize or destroy
// the object to which the memory belongs, at a time when such a call holds no lock.
struct ProgramAllocator {
  // Returns memory for `size` octets, null, or IBV_ALLOCATOR_USE_DEFAULT, for which the heap is used.
  void* (*alloc)(void* owner, std::size_t size, std::size_t alignment) = nullptr;
  void (*free)(void* owner, void* memory) = nullptr;
  void* owner = nullptr;
};

// Frees the memory of a ring with the allocator from which the memory came.
struct RingDeleter {
  ProgramAllocator from{};  // the heap if its functions are null

  void operator()(void* memory) const {
    if (from.free != nullptr) return from.free(from.owner, memory);
    ::operator delete(memory);
  }
};

template <typename Entry>
using Ring = std::unique_ptr<Entry[], RingDeleter>;

inline constexpr std::size_t kRingAlignment = 64;  // a cache line

// Null if there is no memory. The entries are not initialized.
template <typename Entry>
Ring<Entry> make_ring(const ProgramAllocator& from, std::size_t entries) {
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_trivially_destructible_v<Entry>);
  const std::size_t size = entries * sizeof(Entry);
  void* const use_heap = reinterpret_cast<void*>(-1);  // IBV_ALLOCATOR_USE_DEFAULT
  void* memory = from.alloc != nullptr ? from.alloc(from.owner, size, kRingAlignment) : use_heap;
  const bool heap = memory == use_heap;
  if (heap) memory = ::operator new(size, std::nothrow);
  return Ring<Entry>(static_cast<Entry*>(memory), RingDeleter{heap ? ProgramAllocator() : from});
}

}  // namespace uiw::provider
