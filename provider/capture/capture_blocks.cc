// SPDX-License-Identifier: MIT
#include "provider/capture/capture_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/file_limit.h"
#include "base/guarded_copy.h"
#include "base/mutex.h"
#include "provider/capture/pcapng_format.h"
#include "provider/version.h"

namespace uiw::provider {

namespace {

constexpr char kComment[] =
    "Written by uiw. The headers of IP and TCP are made up: a packet is what the process gave to the connection, or "
    "took from it, at a time, also where it went through shared memory.";

// The file offsets of octets that serve as locks, far after the end of the data. kStartLock is held while the start of
// the file is written or checked. The octets from kNumberedLocks on are the locks of try_lock().
constexpr off_t kStartLock = off_t{1} << 61;
constexpr off_t kNumberedLocks = off_t{1} << 62;
constexpr off_t lock_of(std::uint64_t number) { return kNumberedLocks + static_cast<off_t>(number >> 2); }

// How many times mend_end() looks for the end of a file to which other processes keep appending.
constexpr int kMostLooks = 3;

// The functions below make most system calls by syscall(2): some of libc's functions are cancellation points or hooked
// by uiw's preload library.

// Locks or unlocks an octet, as `type` says, by a lock of the open file description (F_OFD_SETLK of fcntl(2)), which
// all threads of this process share. 0 or an errno.
int lock_octet(int fd, off_t at, short type, bool waits) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return ::syscall(SYS_fcntl, fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

// The size of the file; negative on failure.
off_t size_of(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? st.st_size : -1;
}

// Reads `size` octets at the offset `at`. False if the file has fewer octets there or cannot be read.
bool read_at(int fd, off_t at, void* octets, std::size_t size) {
  return ::syscall(SYS_pread64, fd, octets, size, at) == static_cast<long>(size);
}

// Whether a block ends at `end`: the length at its start and the length at its end must agree. Also true for offset 0.
bool ends_with_block(int fd, off_t end) {
  std::uint32_t length = 0;
  pcapng::BlockStart start{};
  return end == 0 ||
         (end >= off_t{pcapng::kSmallestBlock} && read_at(fd, end - off_t{sizeof length}, &length, sizeof length) &&
          off_t{length} <= end && read_at(fd, end - off_t{length}, &start, sizeof start) && start.is_valid() &&
          start.length == length);
}

// Reads the starts of blocks that follow each other, many with one system call.
class BlockStarts {
 public:
  explicit BlockStarts(int fd) : fd_(fd) {}
  // Reads the start of the block at `at`. False if the file has too few octets there.
  bool read(off_t at, pcapng::BlockStart& start) {
    if (at < begin_ || at + off_t{sizeof start} > begin_ + size_) {
      begin_ = at;
      size_ = std::max(0L, ::syscall(SYS_pread64, fd_, window_.data(), window_.size(), at));
      if (size_ < off_t{sizeof start}) return false;
    }
    std::memcpy(&start, window_.data() + (at - begin_), sizeof start);
    return true;
  }

 private:
  const int fd_;
  off_t begin_ = 0, size_ = 0;
  std::array<std::byte, 4096> window_;
};

// The offset of a partial packet between the last whole block and `end`; `end` if there is none. `known` is an offset
// at which a block once ended; it is not used if somebody has emptied the file since then.
off_t begin_of_part(int fd, off_t known, off_t end) {
  off_t at = known <= end && ends_with_block(fd, known) ? known : 0;
  BlockStarts starts(fd);
  pcapng::BlockStart start{};
  while (starts.read(at, start) && start.is_valid() && off_t{start.length} <= end - at) at += off_t{start.length};
  const bool is_packet =
      at < end && read_at(fd, at, &start.type, sizeof start.type) && start.type == pcapng::kEnhancedPacket;
  return is_packet ? at : end;
}

// Writes a few octets in the middle of the file. Clears O_APPEND meanwhile, since pwrite(2) would append otherwise.
bool write_at(int fd, off_t at, const void* octets, std::size_t size) {
  const long flags = ::syscall(SYS_fcntl, fd, F_GETFL);
  if (!file_may_have(static_cast<std::uint64_t>(at) + size) || flags < 0 ||
      ::syscall(SYS_fcntl, fd, F_SETFL, flags & ~O_APPEND) != 0)
    return false;
  const bool written = ::syscall(SYS_pwrite64, fd, octets, size, at) == static_cast<long>(size);
  ::syscall(SYS_fcntl, fd, F_SETFL, flags);
  return written;
}

// Turns the octets from `begin` to `end`, which nobody writes any more, into a block that readers skip, or removes them
// from the end of the file.
void skip(int fd, off_t begin, off_t end) {
  const off_t size = end - begin;
  if (size >= off_t{pcapng::kSmallestBlock} && size % off_t{pcapng::kAlignment} == 0) {
    const pcapng::BlockStart start{pcapng::kLeftOver, static_cast<std::uint32_t>(size)};
    if (write_at(fd, end - off_t{sizeof start.length}, &start.length, sizeof start.length))
      write_at(fd, begin, &start, sizeof start);
  } else if (size > 0 && size_of(fd) == end) {
    // These octets are too few for a block, so the file is truncated. A process that is killed leaves so few octets
    // only if its block begins right before a page boundary of the file.
    ::syscall(SYS_ftruncate, fd, begin);
  }
}

// Waits for all writes to the file that have already begun: changing the times of a file takes the lock of its inode,
// as a write does. False if the times cannot be changed.
bool wait_for_writes(int fd) { return ::syscall(SYS_utimensat, fd, nullptr, nullptr, 0) == 0; }

// Turns a partial packet at the end of the file into a block that readers skip. Does nothing if the file ends at
// `known`, where a whole block has ended. Returns the size of the file.
off_t mend_end(int fd, off_t known) {
  off_t end = size_of(fd);
  for (int looks = 0; looks < kMostLooks; ++looks) {
    if (end == known || ends_with_block(fd, end) || !wait_for_writes(fd)) return end;
    // If the file has grown meanwhile, another process has appended, and has checked the old end before that. So only
    // the new end remains to be checked.
    const off_t seen = std::exchange(end, size_of(fd));
    if (end != seen) continue;
    skip(fd, begin_of_part(fd, known, end), end);
    return size_of(fd);
  }
  return end;
}

// Writes the start of an empty file; checks the start of any other file. 0 or an errno: EBADMSG if the file has another
// start, or is no regular file.
int write_start(int fd) noexcept try {
  const std::vector<std::byte> start = pcapng::encode_start(std::string("uiw ") + kVersion, kComment);
  struct stat st {};
  if (::fstat(fd, &st) != 0) return errno;
  if (!S_ISREG(st.st_mode)) return EBADMSG;
  if (st.st_size == 0) {
    if (!file_may_have(start.size())) return EFBIG;
    const long written = ::syscall(SYS_write, fd, start.data(), start.size());
    return written == static_cast<long>(start.size()) ? 0 : written < 0 ? errno : ENOSPC;
  }
  std::vector<std::byte> found(start.size());
  return read_at(fd, 0, found.data(), found.size()) && found == start ? 0 : EBADMSG;
} catch (const std::exception&) {
  return ENOMEM;
}

}  // namespace

int CaptureBlocks::open(const char* path) noexcept {
  // O_NONBLOCK, since opening a device or another file that is not regular may block.
  constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  const int fd =
      DescriptorChange().take(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, kFlags, 0600)), "the capture");
  if (fd < 0) return -errno;
  int error = lock_octet(fd, kStartLock, F_WRLCK, true);
  if (error == 0) {
    error = write_start(fd);
    lock_octet(fd, kStartLock, F_UNLCK, false);
  }
  if (error == 0) {
    mend_end(fd, 0);
    return fd;
  }
  close_descriptor(fd);
  return -error;
}

CaptureBlocks::~CaptureBlocks() { close_descriptor(fd_); }

int CaptureBlocks::append(std::span<const iovec> block, std::size_t size) noexcept {
  const int saved_errno = errno;
  const LockGuard lock(mutex_);
  int error = size <= block_.size() ? 0 : EMSGSIZE;
  std::size_t filled = 0;
  for (const iovec& piece : block) {
    if (error != 0) break;
    if (!guarded_copy_unordered(block_.data() + filled, piece.iov_base, piece.iov_len)) error = EFAULT;
    filled += piece.iov_len;
  }
  if (error == 0) error = write(size);
  errno = saved_errno;
  return error;
}

// Writes the `size` octets of block_.
int CaptureBlocks::write(std::size_t size) {
  const off_t known = known_;
  off_t end = mend_end(fd_, known);
  if (!file_may_have(static_cast<std::uint64_t>(end) + size)) return EFBIG;
  if (end == 0) {
    if (const int error = write_start(fd_); error != 0) return error;
    end = size_of(fd_);
  }
  const long written = ::syscall(SYS_write, fd_, block_.data(), size);
  if (written < 0) return errno;
  known_ = ::lseek(fd_, 0, SEEK_CUR);
  const off_t begin = known_ - off_t{written};
  const bool whole = static_cast<std::size_t>(written) == size;
  // This write may have waited for the write of another process that was killed meanwhile and has left a partial block
  // in front of this block.
  const bool behind_part = begin != end && !ends_with_block(fd_, begin);
  // Some file systems do not report the offset to which a write with O_APPEND goes. So the file is repaired only if the
  // block is found at the reported offset.
  if ((behind_part || !whole) && is_own(begin, static_cast<std::size_t>(written))) {
    if (behind_part) skip(fd_, begin_of_part(fd_, known, begin), begin);
    if (!whole) skip(fd_, begin, known_);
  }
  return whole ? 0 : ENOSPC;
}

// Whether the block, of which `size` octets were written, is at this offset. Compares only its beginning (PacketStart).
bool CaptureBlocks::is_own(off_t begin, std::size_t size) const {
  std::array<std::byte, sizeof(pcapng::PacketStart)> found;
  const std::size_t compared = std::min(size, found.size());
  return read_at(fd_, begin, found.data(), compared) && std::memcmp(found.data(), block_.data(), compared) == 0;
}

bool CaptureBlocks::try_lock(std::uint64_t number) noexcept {
  const int error = lock_octet(fd_, lock_of(number), F_WRLCK, false);
  return error != EAGAIN && error != EACCES;
}

void CaptureBlocks::unlock(std::uint64_t number) noexcept { lock_octet(fd_, lock_of(number), F_UNLCK, false); }

}  // namespace uiw::provider
