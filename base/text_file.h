// SPDX-License-Identifier: MIT
// Text files of /proc and /sys, which are read and closed again in the same call.
#pragma once

#include <fcntl.h>

#include <cstdio>
#include <memory>

#include "base/descriptor.h"

namespace uiw {

struct TextFileCloser {
  void operator()(std::FILE* file) const {
    const DescriptorChange change;
    change.leave(::fileno(file));
    std::fclose(file);
  }
};
using TextFile = std::unique_ptr<std::FILE, TextFileCloser>;

// Null if the file cannot be opened. `path` is absolute.
inline TextFile open_text_file(const char* path) {
  const int fd = DescriptorChange().guard(::open(path, O_RDONLY | O_CLOEXEC));
  std::FILE* file = fd >= 0 ? ::fdopen(fd, "r") : nullptr;
  if (file == nullptr && fd >= 0) close_descriptor(fd);
  return TextFile(file);
}

}  // namespace uiw
