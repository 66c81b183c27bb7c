// SPDX-License-Identifier: MIT
// The hooks of libc functions about the type of a path or a descriptor. They see rewritten paths; and an rdma_cm
// descriptor, which is an eventfd, must look like the character device that librdmacm expects.
//
// glibc before 2.33 has only the __xstat family; programs built against it use that family on newer versions, too.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/hook.h"
#include "kernel-abi/interposer/real_functions.h"

namespace uiw::kernel_abi {
namespace {

static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit");

constexpr unsigned kNullMajor = 1;  // as in the tree's `dev` files; the major number of /dev/null
constexpr unsigned kNullMinor = 3;
constexpr mode_t kDeviceMode = S_IFCHR | 0666;

using StatFunction = int(const char*, struct stat*);
using FstatFunction = int(int, struct stat*);
using FstatatFunction = int(int, const char*, struct stat*, int);
using XstatFunction = int(int, const char*, struct stat*);
using FxstatFunction = int(int, int, struct stat*);
using FxstatatFunction = int(int, int, const char*, struct stat*, int);
using StatxFunction = int(int, const char*, int, unsigned, struct statx*);

constinit RealFunction<StatFunction> real_stat("stat"), real_stat64("stat64"), real_lstat("lstat"),
    real_lstat64("lstat64");
constinit RealFunction<FstatFunction> real_fstat("fstat"), real_fstat64("fstat64");
constinit RealFunction<FstatatFunction> real_fstatat("fstatat"), real_fstatat64("fstatat64");
constinit RealFunction<XstatFunction> real_xstat("__xstat"), real_xstat64("__xstat64");
constinit RealFunction<XstatFunction> real_lxstat("__lxstat"), real_lxstat64("__lxstat64");
constinit RealFunction<FxstatFunction> real_fxstat("__fxstat"), real_fxstat64("__fxstat64");
constinit RealFunction<FxstatatFunction> real_fxstatat("__fxstatat"), real_fxstatat64("__fxstatat64");
constinit RealFunction<StatxFunction> real_statx("statx");

int stat_by_system_call(int folder, const char* path, void* result, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, result, flags));
}

inline bool is_cm(int fd) {
  const FdEntry entry = fd_lookup(fd);
  return __builtin_expect(entry.present(), 0) && entry.kind() == UIW_OBJECT_CM;
}

// An eventfd has no file type; if the descriptor has one, the number is used for something else by now.
int as_device(int fd, int result, struct stat* status) {
  if (result == 0 && is_cm(fd) && (status->st_mode & S_IFMT) == 0) {
    status->st_mode = kDeviceMode;
    status->st_rdev = makedev(kNullMajor, kNullMinor);
  }
  return result;
}

bool means_descriptor(const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || path[0] == '\0');
}

inline int call_stat(RealFunction<StatFunction>& real, const char* path, struct stat* status, int flags) {
  return with_path(path, [&](const char* target) {
    if (auto* function = real.get()) return function(target, status);
    return stat_by_system_call(AT_FDCWD, target, status, flags);
  });
}

inline int call_fstat(RealFunction<FstatFunction>& real, int fd, struct stat* status) {
  if (auto* function = real.get()) return as_device(fd, function(fd, status), status);
  return as_device(fd, stat_by_system_call(fd, "", status, AT_EMPTY_PATH), status);
}

inline int call_fstatat(RealFunction<FstatatFunction>& real, int folder, const char* path, struct stat* status,
                        int flags) {
  return with_path(path, [&](const char* target) {
    auto* function = real.get();
    const int result = function != nullptr ? function(folder, target, status, flags)
                                           : stat_by_system_call(folder, target, status, flags);
    return means_descriptor(path, flags) ? as_device(folder, result, status) : result;
  });
}

inline int call_xstat(RealFunction<XstatFunction>& real, int version, const char* path, struct stat* status,
                      int flags) {
  return with_path(path, [&](const char* target) {
    if (auto* function = real.get()) return function(version, target, status);
    return stat_by_system_call(AT_FDCWD, target, status, flags);
  });
}

inline int call_fxstat(RealFunction<FxstatFunction>& real, int version, int fd, struct stat* status) {
  if (auto* function = real.get()) return as_device(fd, function(version, fd, status), status);
  return as_device(fd, stat_by_system_call(fd, "", status, AT_EMPTY_PATH), status);
}

inline int call_fxstatat(RealFunction<FxstatatFunction>& real, int version, int folder, const char* path,
                         struct stat* status, int flags) {
  return with_path(path, [&](const char* target) {
    auto* function = real.get();
    const int result = function != nullptr ? function(version, folder, target, status, flags)
                                           : stat_by_system_call(folder, target, status, flags);
    return means_descriptor(path, flags) ? as_device(folder, result, status) : result;
  });
}

struct stat* same(struct stat64* status) {
  return reinterpret_cast<struct stat*>(status);
}

}  // namespace
}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK int stat(const char* path, struct stat* status) noexcept { return call_stat(real_stat, path, status, 0); }

UIW_HOOK int stat64(const char* path, struct stat64* status) noexcept {
  return call_stat(real_stat64, path, same(status), 0);
}

UIW_HOOK int lstat(const char* path, struct stat* status) noexcept {
  return call_stat(real_lstat, path, status, AT_SYMLINK_NOFOLLOW);
}

UIW_HOOK int lstat64(const char* path, struct stat64* status) noexcept {
  return call_stat(real_lstat64, path, same(status), AT_SYMLINK_NOFOLLOW);
}

UIW_HOOK int fstat(int fd, struct stat* status) noexcept { return call_fstat(real_fstat, fd, status); }

UIW_HOOK int fstat64(int fd, struct stat64* status) noexcept { return call_fstat(real_fstat64, fd, same(status)); }

UIW_HOOK int fstatat(int folder, const char* path, struct stat* status, int flags) noexcept {
  return call_fstatat(real_fstatat, folder, path, status, flags);
}

UIW_HOOK int fstatat64(int folder, const char* path, struct stat64* status, int flags) noexcept {
  return call_fstatat(real_fstatat64, folder, path, same(status), flags);
}

UIW_HOOK int __xstat(int version, const char* path, struct stat* status) noexcept {
  return call_xstat(real_xstat, version, path, status, 0);
}

UIW_HOOK int __xstat64(int version, const char* path, struct stat64* status) noexcept {
  return call_xstat(real_xstat64, version, path, same(status), 0);
}

UIW_HOOK int __lxstat(int version, const char* path, struct stat* status) noexcept {
  return call_xstat(real_lxstat, version, path, status, AT_SYMLINK_NOFOLLOW);
}

UIW_HOOK int __lxstat64(int version, const char* path, struct stat64* status) noexcept {
  return call_xstat(real_lxstat64, version, path, same(status), AT_SYMLINK_NOFOLLOW);
}

UIW_HOOK int __fxstat(int version, int fd, struct stat* status) noexcept {
  return call_fxstat(real_fxstat, version, fd, status);
}

UIW_HOOK int __fxstat64(int version, int fd, struct stat64* status) noexcept {
  return call_fxstat(real_fxstat64, version, fd, same(status));
}

UIW_HOOK int __fxstatat(int version, int folder, const char* path, struct stat* status, int flags) noexcept {
  return call_fxstatat(real_fxstatat, version, folder, path, status, flags);
}

UIW_HOOK int __fxstatat64(int version, int folder, const char* path, struct stat64* status, int flags) noexcept {
  return call_fxstatat(real_fxstatat64, version, folder, path, same(status), flags);
}

UIW_HOOK int statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) noexcept {
  return with_path(path, [&](const char* target) {
    auto* function = real_statx.get();
    const int result = function != nullptr ? function(folder, target, flags, mask, status)
                                           : static_cast<int>(syscall(SYS_statx, folder, target, flags, mask, status));
    if (result == 0 && means_descriptor(path, flags) && is_cm(folder) && (status->stx_mode & S_IFMT) == 0) {
      status->stx_mode = kDeviceMode;
      status->stx_rdev_major = kNullMajor;
      status->stx_rdev_minor = kNullMinor;
    }
    return result;
  });
}
