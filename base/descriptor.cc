// SPDX-License-Identifier: MIT
#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace uiw {

namespace {

// The library's descriptors are moved to numbers from this one on, or from half of the soft limit on if that is lower.
// The program needs those numbers least, since select() cannot use numbers from 1024 on. Much higher numbers would
// enlarge the descriptor table of the process, which each fork copies.
constexpr unsigned long kHighNumbers = 1024;

std::atomic<const DescriptorGuard*> the_guard{nullptr};
std::atomic<DescriptorsExhausted> exhausted{nullptr};

// Counting the open descriptors is expensive, so one count serves many calls. takings_left: how many more descriptors
// the library may take before it counts again. A count subtracts the 16 numbers that stay with the program
// (kDescriptorsLeft) from the free numbers below the limit, and sets takings_left to half of the rest. lowest_then: the
// lowest free number at the last count. The kernel gives the program's own descriptors the lowest free numbers, so the
// growth of the lowest free number since the count tells how many of them are new. The library counts again as soon as
// takings_left is not greater than this growth. If threads race, a count is made too often or somewhat too late; this
// does no harm, since takings_left is only half of the numbers that may be used.
std::atomic<unsigned long> counted_limit{0};
std::atomic<long> takings_left{0};
std::atomic<int> lowest_then{0};

unsigned long soft_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kHighNumbers;
  return std::min<rlim_t>(limit.rlim_cur, 1UL << 30);
}

// Calls the kernel directly, since libc's close() is a cancellation point, and the close() of libuiw-preload.so refuses
// to close the library's descriptors.
void close_number(int fd) {
  const int saved_errno = errno;
#if defined(__SANITIZE_THREAD__)
  ::close(fd);  // ThreadSanitizer must see this close, or it mistakes the next descriptor with this number for `fd`
#else
  ::syscall(SYS_close, fd);
#endif
  errno = saved_errno;
}

// Moves `fd` to a high number and returns that number. Returns `fd` itself if its number is high already or no high
// number is free; -1 with EBADF if another thread has closed `fd` meanwhile.
int move_up(int fd, unsigned long limit) {
  const int least = static_cast<int>(std::min(limit / 2, kHighNumbers));
  if (fd >= least) return fd;
  const auto moved = static_cast<int>(::syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, least));
  if (moved < 0) return errno == EBADF ? -1 : fd;
  close_number(fd);
  return moved;
}

// The number of open descriptors below the limit, from /proc; -1 with errno if /proc cannot be read.
long count_listed(unsigned long limit) {
  const int folder = DescriptorChange().guard(
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (folder < 0) return -1;
  struct Entry {  // linux_dirent64, see getdents64(2)
    std::uint64_t inode;
    std::int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[1];
  };
  alignas(Entry) char octets[8192];
  long count = 0;
  long size;
  while ((size = ::syscall(SYS_getdents64, folder, octets, sizeof octets)) > 0) {
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const Entry*>(octets + at);
      at += entry->size;
      const int number = entry->name[0] == '.' ? -1 : std::atoi(entry->name);
      if (number >= 0 && number != folder && static_cast<unsigned long>(number) < limit) ++count;
    }
  }
  close_descriptor(folder);
  return size < 0 ? -1 : count;
}

long count_open(unsigned long limit) {
  if (const long listed = count_listed(limit); listed >= 0) return listed;
  if (errno == EMFILE || errno == ENFILE) return static_cast<long>(limit);
  // Without /proc: tries each number below the limit, but none above kMostAsked, since few programs use higher ones.
  constexpr unsigned long kMostAsked = 4096;
  long count = 0;
  for (unsigned long number = 0; number < std::min(limit, kMostAsked); ++number)
    count += ::syscall(SYS_fcntl, static_cast<int>(number), F_GETFD) >= 0;
  return count;
}

// Whether `wanted` descriptors are free below the limit. `lowest_free` was the lowest free number a moment ago; -1 if
// unknown.
bool are_free(long wanted, unsigned long limit, int lowest_free) {
  const long grown = std::max(0, lowest_free - lowest_then.load(std::memory_order_relaxed));
  if (counted_limit.load(std::memory_order_relaxed) == limit &&
      takings_left.fetch_sub(1, std::memory_order_relaxed) > grown)
    return true;
  const long free = static_cast<long>(limit) - count_open(limit);
  counted_limit.store(limit, std::memory_order_relaxed);
  if (lowest_free >= 0) lowest_then.store(lowest_free, std::memory_order_relaxed);
  takings_left.store((free - wanted) / 2, std::memory_order_relaxed);
  return free >= wanted;
}

void report(const char* purpose, unsigned long limit, int error) {
  if (error != EMFILE && error != ENFILE) return;
  if (const DescriptorsExhausted tell = exhausted.load()) tell(purpose, limit, error == EMFILE);
}

}  // namespace

DescriptorChange::DescriptorChange() : guard_(the_guard.load(std::memory_order_acquire)) {
  if (guard_ != nullptr) guard_->begin_change();
}

// The destructor calls end_change() before it reports that take() has failed: writing the message may block, and until
// end_change() the program's calls that close descriptors wait.
DescriptorChange::~DescriptorChange() {
  const int saved_errno = errno;
  if (guard_ != nullptr) guard_->end_change();
  if (refused_ != nullptr) report(refused_, soft_limit(), error_);
  errno = saved_errno;
}

int DescriptorChange::take(int fd, const char* purpose) {
  if (fd >= 0 && are_free(kDescriptorsLeft, soft_limit(), fd)) return guard(fd);
  error_ = fd < 0 ? errno : EMFILE;
  refused_ = purpose;
  if (fd >= 0) close_number(fd);
  errno = error_;
  return -1;
}

int DescriptorChange::guard(int fd) const {
  if (fd < 0) return fd;
  fd = move_up(fd, soft_limit());
  if (fd >= 0 && guard_ != nullptr) guard_->protect(fd);
  return fd;
}

void DescriptorChange::leave(int fd) const {
  if (guard_ != nullptr) guard_->unprotect(fd);
}

void DescriptorChange::drop(int fd) {
  if (fd >= 0) close_number(fd);
}

bool may_take_descriptor(const char* purpose) {
  const unsigned long limit = soft_limit();
  if (are_free(kDescriptorsLeft + 1, limit, -1)) return true;
  report(purpose, limit, EMFILE);
  errno = EMFILE;
  return false;
}

void close_descriptor(int fd) {
  const DescriptorChange change;
  change.leave(fd);
  close_number(fd);
}

void set_descriptor_guard(const DescriptorGuard* guard) { the_guard.store(guard, std::memory_order_release); }

void set_descriptors_exhausted(DescriptorsExhausted function) { exhausted.store(function); }

}  // namespace uiw
