// SPDX-License-Identifier: MIT
#include "mpa/stream/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "mpa/descriptor.h"
#include "mpa/file_limit.h"

namespace uiw::mpa {

namespace {
std::atomic<unsigned> live{0};
std::atomic<pid_t> counting{0};  // the process

// In the child of a fork the memory is the parent's. Two threads that come first may count one too few.
void begin_count_in_child() {
  const pid_t own = ::getpid();
  if (counting.exchange(own) != own) live.store(0);
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kControlBlocks = 2 * sizeof(RingControl);
static_assert(kControlBlocks <= 4096);

// Where the system can be told to make no memory executable, it may allow no other.
int make_memfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING, kNoExecSeal = 0x8U;
  const int made = ::memfd_create("uiw rings", kFlags | kNoExecSeal);
  return made < 0 && errno == EINVAL ? ::memfd_create("uiw rings", kFlags) : made;
}
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
  void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::unique_ptr<SharedMemory> made(new (std::nothrow) SharedMemory(static_cast<std::byte*>(memory)));
  if (!made) {
    ::munmap(memory, kSize);
    return nullptr;
  }
  ::madvise(memory, kSize, MADV_DONTFORK);
  return made;
}

std::unique_ptr<SharedMemory> SharedMemory::create(int& fd) {
  if (!file_may_have(kSize)) return nullptr;
  const int made = DescriptorChange().take(make_memfd(), "shared memory");
  if (made < 0) return nullptr;
  // Allocates the control blocks; the rest stays sparse.
  const bool good = ::ftruncate(made, kSize) == 0 && ::fallocate(made, 0, 0, kControlBlocks) == 0 &&
                    ::fcntl(made, F_ADD_SEALS, kSeals) == 0;
  auto memory = good ? map(made) : nullptr;
  if (!memory) {
    close_descriptor(made);
    return nullptr;
  }
  fd = made;
  return memory;
}

std::unique_ptr<SharedMemory> SharedMemory::attach(int fd) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return nullptr;
  if (::fstat(fd, &status) != 0 || status.st_size != kSize) return nullptr;
  // The peer may have punched a hole where the control blocks are.
  if (::fallocate(fd, 0, 0, kControlBlocks) != 0) return nullptr;
  return map(fd);
}

}  // namespace uiw::mpa
