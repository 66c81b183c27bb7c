// SPDX-License-Identifier: MIT
// Finds out to which version of uiw a file belongs, before the file is loaded. So if there are files of two versions,
// uiw can say what to do; the message of the dynamic loader does not say that.
//
// Each binary of uiw contains the name of a version node of symbols (kVersionNode): libuiw.so.1 defines the node, the
// plugins and the command refer to it, and the preload library looks it up.
#pragma once

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace uiw::kernel_abi {

inline constexpr char kVersionMark[] = "UIW_PRIVATE_";
inline constexpr size_t kLongestVersion = 32;  // with the terminating zero

// Finds kVersionMark, directly followed by a version, in these octets, and copies the version. False if there is none.
inline bool find_version(const char* octets, size_t size, char (&version)[kLongestVersion]) {
  constexpr size_t kMark = sizeof kVersionMark - 1;
  const char* const end = octets + size;
  for (const char* at = octets; at < end; ++at) {
    at = static_cast<const char*>(memmem(at, static_cast<size_t>(end - at), kVersionMark, kMark));
    if (at == nullptr) return false;
    const char* const text = at + kMark;
    const size_t length = strnlen(text, static_cast<size_t>(end - text));
    if (length == 0 || length >= kLongestVersion || text + length == end || *text < '0' || *text > '9') continue;
    memcpy(version, text, length + 1);
    return true;
  }
  return false;
}

// False if the file cannot be read or names no version. Makes bare system calls, which the interposer does not hook.
inline bool file_version(const char* path, char (&version)[kLongestVersion]) {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return false;
  // A kVersionMark and the version after it may begin in one piece of the file and end in the next piece, so the end of
  // each piece is kept and searched again together with the next piece.
  constexpr size_t kOverlap = sizeof kVersionMark + kLongestVersion;
  char piece[4096];
  size_t kept = 0;
  bool found = false;
  while (!found) {
    const long got = syscall(SYS_read, fd, piece + kept, sizeof piece - kept);
    if (got <= 0) break;
    const size_t size = kept + static_cast<size_t>(got);
    found = find_version(piece, size, version);
    kept = size < kOverlap ? size : kOverlap;
    memmove(piece, piece + size - kept, kept);
  }
  syscall(SYS_close, fd);
  return found;
}

}  // namespace uiw::kernel_abi
