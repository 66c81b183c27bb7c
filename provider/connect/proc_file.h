// SPDX-License-Identifier: MIT
// Text files of /proc, which are read line by line and closed again in the same call.
#pragma once

#include <fcntl.h>

#include <cstdio>
#include <memory>

#include "mpa/descriptor.h"

namespace uiw::provider {

struct ProcFileCloser {
  void operator()(std::FILE* file) const {
    mpa::leave_descriptor(::fileno(file));
    std::fclose(file);
  }
};
using ProcFile = std::unique_ptr<std::FILE, ProcFileCloser>;

// Null if the file cannot be opened. `path` is absolute.
inline ProcFile open_proc_file(const char* path) {
  const int fd = mpa::guard_descriptor(::open(path, O_RDONLY | O_CLOEXEC));
  std::FILE* file = fd >= 0 ? ::fdopen(fd, "r") : nullptr;
  if (file == nullptr && fd >= 0) mpa::close_descriptor(fd);
  return ProcFile(file);
}

}  // namespace uiw::provider
