// SPDX-License-Identifier: MIT
#include "mpa/stream/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "mpa/descriptor.h"
#include "mpa/file_limit.h"

namespace uiw::mpa {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Where the system can be told to make no memory executable, it may allow no other.
int make_memfd(const char* name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING, kNoExecSeal = 0x8U;
  const int made = ::memfd_create(name, kFlags | kNoExecSeal);
  return made < 0 && errno == EINVAL ? ::memfd_create(name, kFlags) : made;
}

}  // namespace

int make_sealed_memory(const char* name, const char* purpose, SealedSize size) {
  if (!file_may_have(size.size)) return -1;
  const int made = DescriptorChange().take(make_memfd(name), purpose);
  if (made < 0) return -1;
  const bool good = ::ftruncate(made, static_cast<off_t>(size.size)) == 0 &&
                    ::fallocate(made, 0, 0, static_cast<off_t>(size.allocated)) == 0 &&
                    ::fcntl(made, F_ADD_SEALS, kSeals) == 0;
  if (good) return made;
  close_descriptor(made);
  return -1;
}

bool is_sealed_memory(int fd, SealedSize size) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return false;
  if (::fstat(fd, &status) != 0 || status.st_size != static_cast<off_t>(size.size)) return false;
  // The peer may have punched a hole where memory is to be.
  return ::fallocate(fd, 0, 0, static_cast<off_t>(size.allocated)) == 0;
}

std::byte* map_sealed_memory(int fd, std::size_t size) {
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, size, MADV_DONTFORK);
  return static_cast<std::byte*>(memory);
}

}  // namespace uiw::mpa
