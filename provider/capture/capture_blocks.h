// SPDX-License-Identifier: MIT
// A file of pcapng blocks to which any number of processes append: each writes a whole block by one call of write(2),
// and Linux does not interleave these writes.
//
// A process that is killed while it writes leaves a partial block, behind which nothing could be read. So the end of
// the file is checked before each block, unless nobody else has written, and a partial block is turned in place into
// one that readers skip. This does no harm to what other processes append meanwhile, nor if two processes do it.
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

  // Opens the file, or creates it. Returns a descriptor, or a negative errno: EBADMSG if the file is something else
  // than a capture of this release.
  static int open(const char* path) noexcept;

  // Takes ownership of the descriptor.
  explicit CaptureBlocks(int fd) : fd_(fd) {}
  ~CaptureBlocks();
  CaptureBlocks(const CaptureBlocks&) = delete;
  CaptureBlocks& operator=(const CaptureBlocks&) = delete;

  // Appends one block of `size` octets, at most kMostBlock. 0, or an errno: then readers see nothing of the block.
  // EFAULT: some of its octets are in memory that cannot be read. Does not change errno. If somebody has emptied the
  // file, writes its start again.
  int append(std::span<const iovec> block, std::size_t size) noexcept;

  // Locks between processes: each is held by at most one object, and is released when its process ends. False if
  // another one holds it.
  bool try_lock(std::uint64_t number) noexcept;
  void unlock(std::uint64_t number) noexcept;

 private:
  int write(std::size_t size) UIW_REQUIRES(mutex_);
  bool is_own(off_t begin, std::size_t size) const UIW_REQUIRES(mutex_);

  const int fd_;
  Mutex mutex_;
  // Where the last block of this object has ended: the size of the file if nobody else has written.
  off_t known_ UIW_GUARDED_BY(mutex_) = 0;
  // The block that is being written, aligned to pages. A write that a signal ends early has written up to the end of a
  // page, of the file or of this array, so the part of a block that it leaves is a multiple of four octets in either
  // case.
  alignas(4096) std::array<std::byte, kMostBlock> block_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
