// SPDX-License-Identifier: MIT
// The capture file that UIW_CAPTURE names, to which any number of processes append.
//
// Thread-safe. If the file can no longer be written (the file system is full, RLIMIT_FSIZE is reached), capturing ends
// for this process, with a message; connections go on.
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

// Creates the capture file, or checks that an existing file is a capture of this release. Returns an empty string, or a
// message for the user that says what is wrong.
UIW_API std::string prepare_capture(const std::string& path);

class CaptureFile {
 public:
  // The file of this process. Null if UIW_CAPTURE is not set, if the file cannot be opened, or if capturing has ended.
  static CaptureFile* get() noexcept;

  // Claims a connection for this end, so that only one end writes the connection's segments if both ends capture into
  // one file (on a file system without locks, both ends may write). False if the other end has claimed the connection,
  // or if there is no memory. `connection` is a number that is the same at both ends. A claim lasts until release().
  bool claim(std::uint64_t connection) noexcept;
  void release(std::uint64_t connection) noexcept;

  // Appends one block of `size` octets. False, and nothing is appended, if some of the octets are in memory that cannot
  // be read, since the program has unmapped it. True in all other cases, also if capturing has ended.
  bool append(std::span<const iovec> block, std::size_t size) noexcept;

 private:
  CaptureFile(int fd, int process) : blocks_(fd), process_(process) {}
  static CaptureFile* open() noexcept;

  CaptureBlocks blocks_;
  const int process_;  // the id of the process that has opened the file
  std::atomic<bool> broken_{false};
  Mutex mutex_;
  std::vector<std::uint64_t> claimed_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
