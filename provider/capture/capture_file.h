// SPDX-License-Identifier: MIT
// The file of UIW_CAPTURE, to which any number of processes append.
//
// Thread-safe. Where the file can no longer be written (the file system is full, the limit of the process for files is
// reached), capturing ends for this process, a message says so, and nothing else changes.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "provider/capture/capture_blocks.h"
#include "provider/export.h"

namespace uiw::provider {

// Creates the capture file, or checks that it is one of this release. Empty, or a message for people that says what is
// wrong.
UIW_API std::string prepare_capture(const std::string& path);

class CaptureFile {
 public:
  // The file of this process. Null if nothing is captured, or capturing has ended.
  static CaptureFile* get() noexcept;

  // Claims a connection for this end, since one end is enough if both are captured into one file. False if the other
  // end has claimed it. `connection` is the same number at both ends. A claim that has succeeded ends by release().
  bool claim(std::uint64_t connection) noexcept;
  void release(std::uint64_t connection) noexcept;

  // Appends one block of `size` octets. False if some of them are in memory that the program has unmapped meanwhile;
  // then nothing is appended.
  bool append(std::span<const iovec> block, std::size_t size) noexcept;

 private:
  CaptureFile(int fd, int process) : blocks_(fd), process_(process) {}
  static CaptureFile* open() noexcept;

  CaptureBlocks blocks_;
  const int process_;  // the process that has opened the file, and has its locks
  std::atomic<bool> broken_{false};
  Mutex mutex_;
  std::vector<std::uint64_t> claimed_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
