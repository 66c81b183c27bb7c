// SPDX-License-Identifier: MIT
// Checks RLIMIT_FSIZE before a file grows, since SIGXFSZ ends a process that makes a file longer than this limit. The
// limit holds also for a memfd of the library, of which the program knows nothing.
#pragma once

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace uiw {

// Whether RLIMIT_FSIZE allows a file of this size, in octets. If not, callers act as if a system call that makes the
// file grow had failed with EFBIG.
inline bool file_may_have(std::uint64_t size) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || size <= limit.rlim_cur;  // RLIM_INFINITY is the greatest number
}

// Whether `size` octets may be written to an open file, at its current offset or at its end, whichever is later. Always
// true for pipes, terminals and other descriptors that are no regular files.
inline bool may_write(int fd, std::size_t size) {
  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return true;
  const off_t at = std::max<off_t>(status.st_size, ::lseek(fd, 0, SEEK_CUR));
  return file_may_have(static_cast<std::uint64_t>(at) + size);
}

}  // namespace uiw
