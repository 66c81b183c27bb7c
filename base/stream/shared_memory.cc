// SPDX-License-Identifier: MIT
#include "base/stream/shared_memory.h"

#include <unistd.h>

#include <atomic>
#include <new>
#include <utility>

#include "base/descriptor.h"

namespace uiw {

namespace {
std::atomic<unsigned> live{0};
std::atomic<pid_t> counting{0};  // the process in which `live` was counted

// In the child of a fork the count begins at 0, since the child does not inherit the memory. If two threads of the
// child race here, `live` may lack one object.
void begin_count_in_child() {
  const pid_t own = ::getpid();
  if (counting.exchange(own) != own) live.store(0);
}

constexpr std::size_t kControlBlocks = 2 * sizeof(RingControl);
static_assert(kControlBlocks <= 4096);
constexpr SealedMemory::Size kSealed = {SharedMemory::kSize, kControlBlocks};
}  // namespace

SharedMemory::SharedMemory(SealedMemory memory) : memory_(std::move(memory)) {
  begin_count_in_child();
  live.fetch_add(1, std::memory_order_relaxed);
}

SharedMemory::~SharedMemory() {
  if (memory_.is_own()) live.fetch_sub(1, std::memory_order_relaxed);
}

unsigned SharedMemory::count() {
  begin_count_in_child();
  return live.load(std::memory_order_relaxed);
}

std::unique_ptr<SharedMemory> SharedMemory::made_of(SealedMemory memory) {
  if (memory.data() == nullptr) return nullptr;
  return std::unique_ptr<SharedMemory>(new (std::nothrow) SharedMemory(std::move(memory)));
}

// Allocates the control blocks (kSealed), since they are accessed without guarded_copy(): if the system has no memory,
// this call fails, and no later access faults.
std::unique_ptr<SharedMemory> SharedMemory::create(int& fd) {
  auto memory = made_of(SealedMemory::create("uiw rings", "shared memory", kSealed, fd));
  if (!memory && fd >= 0) close_descriptor(std::exchange(fd, -1));
  return memory;
}

std::unique_ptr<SharedMemory> SharedMemory::attach(int fd) { return made_of(SealedMemory::attach(fd, kSealed)); }

}  // namespace uiw
