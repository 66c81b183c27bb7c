// SPDX-License-Identifier: MIT
#include "provider/process/notice.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/descriptor.h"
#include "base/file_limit.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};

Identity standard_error() {
  struct stat status;
  return ::fstat(STDERR_FILENO, &status) == 0 ? Identity{status.st_dev, status.st_ino} : Identity{};
}

const Identity at_load = standard_error();
std::array<std::atomic<bool>, static_cast<std::size_t>(Cause::kCount)> said{};

void tell_of_descriptors(const char* purpose, unsigned long limit, bool by_limit) {
  if (by_limit) {
    say_once(
        Cause::descriptors,
        "no descriptor could be had for %s: the process may have %lu (soft RLIMIT_NOFILE), of which uiw leaves the "
        "last %d to the program; allow more with ulimit -n",
        purpose, limit, kDescriptorsLeft);
  } else {
    say_once(Cause::descriptors,
             "no descriptor could be had for %s: all that the system may have are in use; allow more with sysctl "
             "fs.file-max",
             purpose);
  }
}

// Registers tell_of_descriptors() when the library is loaded, before the first descriptor is taken.
[[maybe_unused]] const bool registered = (set_descriptors_exhausted(tell_of_descriptors), true);

}  // namespace

void write_to_standard_error(const char* line, std::size_t size) {
  if (at_load == Identity{} || standard_error() != at_load || !may_write(STDERR_FILENO, size)) return;
  // write() of libc would be a cancellation point.
  [[maybe_unused]] const long written = ::syscall(SYS_write, STDERR_FILENO, line, size);
}

void say_once(Cause cause, const char* format, ...) {
  const int saved_errno = errno;
  if (settings().values.messages && !said[static_cast<std::size_t>(cause)].exchange(true)) {
    char line[512] = "uiw: ";
    const std::size_t start = std::strlen(line);
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(line + start, sizeof line - start - 1, format, arguments);
    va_end(arguments);
    if (length >= 0) {
      const std::size_t end = std::strlen(line);
      line[end] = '\n';
      write_to_standard_error(line, end + 1);
    }
  }
  errno = saved_errno;
}

}  // namespace uiw::provider
