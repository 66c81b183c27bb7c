// SPDX-License-Identifier: MIT
#include "base/stream/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/file_limit.h"

namespace uiw {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Sets MFD_NOEXEC_SEAL if the kernel knows this flag: such a kernel can be configured to refuse a memfd without it.
int make_memfd(const char* name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING, kNoExecSeal = 0x8U;
  const int made = ::memfd_create(name, kFlags | kNoExecSeal);
  return made < 0 && errno == EINVAL ? ::memfd_create(name, kFlags) : made;
}

}  // namespace

SealedMemory SealedMemory::create(const char* name, const char* purpose, Size size, int& fd) {
  fd = file_may_have(size.size) ? DescriptorChange().take(make_memfd(name), purpose) : -1;
  if (fd < 0) return {-1, 0};
  const bool good = ::ftruncate(fd, static_cast<off_t>(size.size)) == 0 &&
                    ::fallocate(fd, 0, 0, static_cast<off_t>(size.allocated)) == 0 &&
                    ::fcntl(fd, F_ADD_SEALS, kSeals) == 0;
  SealedMemory made(good ? fd : -1, size.size);
  if (made.data() == nullptr) close_descriptor(std::exchange(fd, -1));
  return made;
}

SealedMemory SealedMemory::attach(int fd, Size size) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool good = seals >= 0 && (seals & kSeals) == kSeals && ::fstat(fd, &status) == 0 &&
                    status.st_size == static_cast<off_t>(size.size) &&
                    // The peer may have punched a hole; this call allocates the memory there again.
                    ::fallocate(fd, 0, 0, static_cast<off_t>(size.allocated)) == 0;
  return {good ? fd : -1, size.size};
}

SealedMemory::SealedMemory(int fd, std::size_t size) {
  if (fd < 0) return;
  void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return;
  ::madvise(mapped, size, MADV_DONTFORK);
  data_ = static_cast<std::byte*>(mapped);
  size_ = size;
  process_ = ::getpid();
}

SealedMemory::SealedMemory(SealedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_), process_(other.process_) {}

SealedMemory::~SealedMemory() {
  if (data_ != nullptr && is_own()) ::munmap(data_, size_);
}

bool SealedMemory::is_own() const { return ::getpid() == process_; }

}  // namespace uiw
