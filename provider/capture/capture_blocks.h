// SPDX-License-Identifier: MIT
// A file of pcapng blocks to which any number of processes append: each writes a whole block by one call of write(2),
// and Linux does not interleave these writes.
//
// A process that is killed while it writes may leave a partial block, after which readers find no further block. So
// append() checks the end of the file, if it is not the end of the block that this object has written last, and turns a
// partial block in place into a block that readers skip. Other processes may append, or repair the same block, at the
// same time.
//
// Thread-safe. Errors are numbers of errno.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mutex.h"

namespace uiw::provider {

class CaptureBlocks {
 public:
  // The largest block in octets: the largest IP packet and what pcapng adds to it.
  static constexpr std::size_t kMostBlock = 65536 + 128;

  // Opens the file, or creates it. Returns a descriptor, or a negative errno: EBADMSG if the file is not a capture of
  // this release.
  static int open(const char* path) noexcept;

  // Takes ownership of the descriptor.
  explicit CaptureBlocks(int fd) : fd_(fd) {}
  ~CaptureBlocks();
  CaptureBlocks(const CaptureBlocks&) = delete;
  CaptureBlocks& operator=(const CaptureBlocks&) = delete;

  // Appends one block of `size` octets, at most kMostBlock. Returns 0 or an errno; after an error readers see nothing
  // of the block. EFAULT: some octets of the block are in memory that cannot be read. Keeps errno. If somebody has
  // emptied the file, writes its start again.
  int append(std::span<const iovec> block, std::size_t size) noexcept;

  // Locks between processes, by number; numbers that differ only in the lowest two bits share one lock. At most one
  // CaptureBlocks holds a lock, and the kernel releases the lock when no process has its descriptor open any more.
  // False if another CaptureBlocks holds it; true also if the file system has no locks.
  bool try_lock(std::uint64_t number) noexcept;
  void unlock(std::uint64_t number) noexcept;

 private:
  int write(std::size_t size) UIW_REQUIRES(mutex_);
  bool is_own(off_t begin, std::size_t size) const UIW_REQUIRES(mutex_);

  const int fd_;
  Mutex mutex_;
  // The offset at which the last block of this object ends. It equals the size of the file if nobody else has written.
  off_t known_ UIW_GUARDED_BY(mutex_) = 0;
  // The block that is being written, aligned to pages. A signal can end a write early only at the end of a page of the
  // file or of this array. So a partial block always has a multiple of four octets, as readers require.
  alignas(4096) std::array<std::byte, kMostBlock> block_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
