// SPDX-License-Identifier: MIT
#include "tests/unit/provider/process/refusing_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (uiw::test::refuses_allocation()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
constexpr std::size_t kAlign = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, kAlign); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, kAlign); }
void* operator new(std::size_t size, std::align_val_t to) {
  return allocate_or_throw(size, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t size, std::align_val_t to) {
  return allocate_or_throw(size, static_cast<std::size_t>(to));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, kAlign); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, kAlign); }
void* operator new(std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(to));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
