// SPDX-License-Identifier: MIT
// The hooks of stat() and its relatives. They rewrite paths and change two kinds of results: an rdma_cm descriptor,
// which is an eventfd, looks like the character device that librdmacm expects; and a uverbs node, which is /dev/null,
// has the device number that its `dev` file in sysfs says, by path as well as by descriptor.
//
// glibc before 2.33 has only the __xstat family; programs built against it use that family on newer versions, too.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/uverbs_node.h"

namespace uiw::kernel_abi {
namespace {

static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit");

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

// N if the path leads to /dev/infiniband/uverbsN, else -1.
int number_of_node(int folder, const char* path) {
  char name[sizeof "uverbs" + 5];
  if (!device_node_name(rdma_path(folder, path), name, sizeof name) || strncmp(name, "uverbs", strlen("uverbs")) != 0)
    return -1;
  int number = 0;
  const char* const digits = name + strlen("uverbs");
  if (*digits == '\0') return -1;
  for (const char* digit = digits; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9') return -1;
    number = 10 * number + (*digit - '0');
  }
  return number;
}

// The members of a result of stat() that the hooks may change.
struct Shown {
  mode_t mode;
  dev_t device;
};
const dev_t kNullDevice = makedev(1, 3);  // also the number in the `dev` file of rdma_cm

// What the program sees of a descriptor. A descriptor of rdma_cm is an eventfd, which has no file type, and one of
// uverbs is /dev/null. If `real` shows another file, the number has been reused, and the program sees that file.
Shown shown_descriptor(int fd, Shown real) {
  const FdEntry entry = fd_lookup(fd);
  if (__builtin_expect(!entry.present(), 1)) return real;
  if (entry.kind() == UIW_OBJECT_CM && (real.mode & S_IFMT) == 0) return {kDeviceMode, kNullDevice};
  if (entry.kind() == UIW_OBJECT_UVERBS && S_ISCHR(real.mode) && real.device == kNullDevice)
    return {real.mode, uverbs_device(uverbs_number(entry.object()))};
  return real;
}

// What the program sees of a path. A uverbs node that is not /dev/null is the host's and is shown unchanged.
Shown shown_path(int folder, const char* path, Shown real) {
  if (!S_ISCHR(real.mode) || real.device != kNullDevice) return real;
  const int number = number_of_node(folder, path);
  return number < 0 ? real : Shown{real.mode, uverbs_device(static_cast<unsigned>(number))};
}

void show(struct stat* status, Shown shown) {
  status->st_mode = shown.mode;
  status->st_rdev = shown.device;
}

int as_device(int fd, int result, struct stat* status) {
  if (result == 0) show(status, shown_descriptor(fd, {status->st_mode, status->st_rdev}));
  return result;
}

int as_node(int folder, const char* path, int result, struct stat* status) {
  if (result == 0) show(status, shown_path(folder, path, {status->st_mode, status->st_rdev}));
  return result;
}

}  // namespace

bool is_folder(int folder, const char* absolute) {
  struct stat one, other;
  const int saved_errno = errno;
  const bool same = stat_by_system_call(folder, "", &one, AT_EMPTY_PATH) == 0 &&
                    stat_by_system_call(AT_FDCWD, absolute, &other, 0) == 0 && one.st_dev == other.st_dev &&
                    one.st_ino == other.st_ino;
  errno = saved_errno;
  return same;
}

namespace {

bool means_descriptor(const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || path[0] == '\0');
}

inline int call_stat(RealFunction<StatFunction>& real, const char* path, struct stat* status, int flags) {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real.get()) return as_node(AT_FDCWD, path, function(target, status), status);
    return as_node(AT_FDCWD, path, stat_by_system_call(AT_FDCWD, target, status, flags), status);
  });
}

inline int call_fstat(RealFunction<FstatFunction>& real, int fd, struct stat* status) {
  if (auto* function = real.get()) return as_device(fd, function(fd, status), status);
  return as_device(fd, stat_by_system_call(fd, "", status, AT_EMPTY_PATH), status);
}

inline int call_fstatat(RealFunction<FstatatFunction>& real, int folder, const char* path, struct stat* status,
                        int flags) {
  return with_path(folder, path, [&](const char* target) {
    auto* function = real.get();
    const int result = function != nullptr ? function(folder, target, status, flags)
                                           : stat_by_system_call(folder, target, status, flags);
    return means_descriptor(path, flags) ? as_device(folder, result, status) : as_node(folder, path, result, status);
  });
}

inline int call_xstat(RealFunction<XstatFunction>& real, int version, const char* path, struct stat* status,
                      int flags) {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real.get()) return as_node(AT_FDCWD, path, function(version, target, status), status);
    return as_node(AT_FDCWD, path, stat_by_system_call(AT_FDCWD, target, status, flags), status);
  });
}

inline int call_fxstat(RealFunction<FxstatFunction>& real, int version, int fd, struct stat* status) {
  if (auto* function = real.get()) return as_device(fd, function(version, fd, status), status);
  return as_device(fd, stat_by_system_call(fd, "", status, AT_EMPTY_PATH), status);
}

inline int call_fxstatat(RealFunction<FxstatatFunction>& real, int version, int folder, const char* path,
                         struct stat* status, int flags) {
  return with_path(folder, path, [&](const char* target) {
    auto* function = real.get();
    const int result = function != nullptr ? function(version, folder, target, status, flags)
                                           : stat_by_system_call(folder, target, status, flags);
    return means_descriptor(path, flags) ? as_device(folder, result, status) : as_node(folder, path, result, status);
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
  return with_path(folder, path, [&](const char* target) {
    auto* function = real_statx.get();
    const int result = function != nullptr ? function(folder, target, flags, mask, status)
                                           : static_cast<int>(syscall(SYS_statx, folder, target, flags, mask, status));
    if (result != 0) return result;
    const Shown real{status->stx_mode, makedev(status->stx_rdev_major, status->stx_rdev_minor)};
    const Shown shown = means_descriptor(path, flags) ? shown_descriptor(folder, real) : shown_path(folder, path, real);
    status->stx_mode = static_cast<uint16_t>(shown.mode);
    status->stx_rdev_major = major(shown.device);
    status->stx_rdev_minor = minor(shown.device);
    return result;
  });
}
