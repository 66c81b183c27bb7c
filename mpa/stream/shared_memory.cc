// SPDX-License-Identifier: MIT
#include "mpa/stream/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "mpa/descriptor.h"

namespace uiw::mpa {

namespace {
std::atomic<unsigned> live{0};
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
static_assert(2 * sizeof(RingControl) <= SharedMemory::kControl);
}  // namespace

SharedMemory::SharedMemory(std::byte* memory) : memory_(memory), process_(::getpid()) {
  live.fetch_add(1, std::memory_order_relaxed);
}

SharedMemory::~SharedMemory() {
  if (::getpid() != process_) return;
  ::munmap(memory_, kSize);
  live.fetch_sub(1, std::memory_order_relaxed);
}

unsigned SharedMemory::count() { return live.load(std::memory_order_relaxed); }

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

namespace {

// A file that becomes longer than this limit ends the process by SIGXFSZ, and a memfd is a file.
bool limit_allows_size() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= SharedMemory::kSize;
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::create(int& fd) {
  if (!limit_allows_size()) return nullptr;
  const int made = take_descriptor(::memfd_create("uiw rings", MFD_CLOEXEC | MFD_ALLOW_SEALING), "shared memory");
  if (made < 0) return nullptr;
  // Allocates the control blocks; the rest stays sparse.
  const bool good = ::ftruncate(made, kSize) == 0 && ::fallocate(made, 0, 0, kControl) == 0 &&
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
  if (::fallocate(fd, 0, 0, kControl) != 0) return nullptr;
  return map(fd);
}

}  // namespace uiw::mpa
