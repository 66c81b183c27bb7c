// SPDX-License-Identifier: MIT
#include "mpa/stream/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "mpa/descriptor.h"
#include "mpa/stream/sealed_memory.h"

namespace uiw::mpa {

namespace {
std::atomic<unsigned> live{0};
std::atomic<pid_t> counting{0};  // the process

// In the child of a fork the memory is the parent's. Two threads that come first may count one too few.
void begin_count_in_child() {
  const pid_t own = ::getpid();
  if (counting.exchange(own) != own) live.store(0);
}

constexpr std::size_t kControlBlocks = 2 * sizeof(RingControl);
static_assert(kControlBlocks <= 4096);
constexpr SealedSize kSealed = {SharedMemory::kSize, kControlBlocks};
}  // namespace

SharedMemory::SharedMemory(std::byte* memory) : memory_(memory), process_(::getpid()) {
  begin_count_in_child();
  live.fetch_add(1, std::memory_order_relaxed);
}

SharedMemory::~SharedMemory() {
  if (::getpid() != process_) return;
  ::munmap(memory_, kSize);
  live.fetch_sub(1, std::memory_order_relaxed);
}

unsigned SharedMemory::count() {
  begin_count_in_child();
  return live.load(std::memory_order_relaxed);
}

// The first page is asked for at once, so that a system without memory says so here: the control blocks are accessed
// without a guard.
std::unique_ptr<SharedMemory> SharedMemory::map(int fd) {
  std::byte* const memory = map_sealed_memory(fd, kSize);
  if (memory == nullptr) return nullptr;
  std::unique_ptr<SharedMemory> made(new (std::nothrow) SharedMemory(memory));
  if (!made) ::munmap(memory, kSize);
  return made;
}

std::unique_ptr<SharedMemory> SharedMemory::create(int& fd) {
  const int made = make_sealed_memory("uiw rings", "shared memory", kSealed);
  if (made < 0) return nullptr;
  auto memory = map(made);
  if (memory) {
    fd = made;
  } else {
    close_descriptor(made);
  }
  return memory;
}

std::unique_ptr<SharedMemory> SharedMemory::attach(int fd) { return is_sealed_memory(fd, kSealed) ? map(fd) : nullptr; }

}  // namespace uiw::mpa
