// SPDX-License-Identifier: MIT
// The hooks of libc functions with a path that libibverbs, librdmacm and the tools around them use on sysfs and device
// nodes. Each calls the real function with the rewritten path. Device nodes, and port files whose content changes, are
// opened by the library; before a folder of counters is listed, the library updates them.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/hooks/descriptors.h"
#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/loader.h"

namespace uiw::kernel_abi {
namespace {

// Lets the library open a device node. Returns the descriptor, or -1 with errno: ENXIO if the node is not one of uiw;
// then the caller opens the file in the tree.
int open_device_node(const char* node, int flags) {
  Passthrough guard;
  uint64_t object = 0;
  const int fd = loaded_library()->open(node, flags, &object);
  if (fd < 0) {
    errno = -fd;
    return -1;
  }
  const int error = fd_attach(forget_stale(fd), FdEntry(object));
  if (error == 0) return fd;
  loaded_library()->release(object, fd);
  syscall(SYS_close, fd);
  errno = error;
  return -1;
}

// Opens a file of a port whose content changes, for example a counter, with its current content. For a folder of
// counters, updates the files in the folder and returns -1. For all other paths also returns -1; the caller then opens
// the path in the tree. Keeps errno.
int open_port_file(const RdmaPath& rdma, int flags) {
  char path[PATH_MAX];
  if (rdma.area != RdmaArea::infiniband_class || strstr(rdma.rest, "/ports") == nullptr) return -1;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH) != 0 || !join_rdma_path(".", rdma, path, sizeof path))
    return -1;
  const int saved_errno = errno;
  uint64_t object = 0;
  int fd;
  {
    Passthrough guard;
    fd = loaded_library()->open(path, flags, &object);
  }
  errno = saved_errno;
  return fd < 0 ? -1 : forget_stale(fd);
}

// Rewrites the path of a folder that is to be listed, as rewrite_path() does, and updates the counters in the folder.
const char* rewrite_folder(const RdmaPath& rdma, const char* path, char* buffer) {
  const char* target = rewrite_path(rdma, path, buffer);
  if (target != path) open_port_file(rdma, O_RDONLY | O_DIRECTORY);
  return target;
}

template <typename Call>
inline auto with_folder(int folder, const char* path, Call call) {
  const RdmaPath rdma = rdma_path(folder, path);
  if (__builtin_expect(rdma.area == RdmaArea::none, 1)) return call(path);
  char buffer[PATH_MAX];
  return call(rewrite_folder(rdma, path, buffer));
}

// Lets the library open device nodes of uiw, if `flags` have neither O_PATH nor O_DIRECTORY, and port files whose
// content changes. Opens all other files by `open_real`, which gets the rewritten path.
template <typename OpenReal>
__attribute__((noinline)) int open_rdma_path(const RdmaPath& rdma, const char* path, int flags, OpenReal open_real) {
  char buffer[PATH_MAX];
  char node[NAME_MAX + 1];
  const char* target = rewrite_path(rdma, path, buffer);
  const bool whole_node = target != path && device_node_name(rdma, node, sizeof node);
  if (whole_node && (flags & (O_PATH | O_DIRECTORY)) == 0) {
    const int saved_errno = errno;
    const int fd = open_device_node(node, flags);
    if (fd >= 0 || errno != ENXIO) return fd;
    errno = saved_errno;
  }
  if (target != path) {
    const int fd = open_port_file(rdma, flags);
    if (fd >= 0) return fd;
  }
  return forget_stale(open_real(target));
}

template <typename OpenReal>
inline int open_path(int folder, const char* path, int flags, OpenReal open_real) {
  const RdmaPath rdma = rdma_path(folder, path);
  if (__builtin_expect(rdma.area == RdmaArea::none, 1)) return forget_stale(open_real(path));
  return open_rdma_path(rdma, path, flags, open_real);
}

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

using OpenFunction = int(const char*, int, ...);
using OpenatFunction = int(int, const char*, int, ...);
using Open2Function = int(const char*, int);
using Openat2Function = int(int, const char*, int);
using FopenFunction = FILE*(const char*, const char*);
using OpendirFunction = DIR*(const char*);

inline int call_open(RealFunction<OpenFunction>& real, const char* path, int flags, mode_t mode) {
  return open_path(AT_FDCWD, path, flags, [&](const char* target) {
    if (OpenFunction* function = real.get()) return function(target, flags, mode);
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, target, flags, mode));
  });
}

inline int call_openat(RealFunction<OpenatFunction>& real, int folder, const char* path, int flags, mode_t mode) {
  return open_path(folder, path, flags, [&](const char* target) {
    if (OpenatFunction* function = real.get()) return function(folder, target, flags, mode);
    return static_cast<int>(syscall(SYS_openat, folder, target, flags, mode));
  });
}

template <typename Result, typename... Parameters, typename... Arguments>
inline Result* call_or_null(RealFunction<Result*(Parameters...)>& real, Arguments... arguments) {
  if (auto* function = real.get()) return function(arguments...);
  errno = ENOSYS;
  return nullptr;
}

__attribute__((noinline)) FILE* open_rdma_file(const RdmaPath& rdma, RealFunction<FopenFunction>& real,
                                               const char* path, const char* mode) {
  char buffer[PATH_MAX];
  const char* target = rewrite_path(rdma, path, buffer);
  if (target != path && mode[0] == 'r' && strchr(mode, '+') == nullptr) {
    const int fd = open_port_file(rdma, strchr(mode, 'e') != nullptr ? O_RDONLY | O_CLOEXEC : O_RDONLY);
    if (fd >= 0) {
      FILE* file = fdopen(fd, mode);
      if (file == nullptr) syscall(SYS_close, fd);
      return file;
    }
  }
  return call_or_null(real, target, mode);
}

inline FILE* open_file(RealFunction<FopenFunction>& real, const char* path, const char* mode) {
  const RdmaPath rdma = rdma_path(AT_FDCWD, path);
  if (__builtin_expect(rdma.area == RdmaArea::none, 1)) return call_or_null(real, path, mode);
  return open_rdma_file(rdma, real, path, mode);
}

constinit RealFunction<OpenFunction> real_open("open"), real_open64("open64");
constinit RealFunction<OpenatFunction> real_openat("openat"), real_openat64("openat64");
constinit RealFunction<Open2Function> real_open_2("__open_2"), real_open64_2("__open64_2");
constinit RealFunction<Openat2Function> real_openat_2("__openat_2"), real_openat64_2("__openat64_2");
constinit RealFunction<FopenFunction> real_fopen("fopen"), real_fopen64("fopen64");
constinit RealFunction<OpendirFunction> real_opendir("opendir");
constinit RealFunction<int(const char*)> real_chdir("chdir");
constinit RealFunction<int(const char*, dirent***, int (*)(const dirent*), int (*)(const dirent**, const dirent**))>
    real_scandir("scandir");
constinit RealFunction<int(const char*, dirent64***, int (*)(const dirent64*),
                           int (*)(const dirent64**, const dirent64**))>
    real_scandir64("scandir64");
constinit RealFunction<char*(const char*, char*)> real_realpath("realpath");
constinit RealFunction<char*(const char*, char*, size_t)> real_realpath_chk("__realpath_chk");
constinit RealFunction<char*(const char*)> real_canonicalize("canonicalize_file_name");
constinit RealFunction<ssize_t(const char*, char*, size_t)> real_readlink("readlink");
constinit RealFunction<ssize_t(int, const char*, char*, size_t)> real_readlinkat("readlinkat");
constinit RealFunction<ssize_t(const char*, char*, size_t, size_t)> real_readlink_chk("__readlink_chk");
constinit RealFunction<ssize_t(const char*, const char*, void*, size_t)> real_getxattr("getxattr"),
    real_lgetxattr("lgetxattr");
constinit RealFunction<int(const char*, int)> real_access("access"), real_euidaccess("euidaccess"),
    real_eaccess("eaccess");
constinit RealFunction<int(int, const char*, int, int)> real_faccessat("faccessat");

int access_by_faccessat(const char* path, int mode, int flags) {
  if (auto* function = real_faccessat.get()) return function(AT_FDCWD, path, mode, flags);
  return static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}

}  // namespace
}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

// Declares `mode`, and reads it from the variable arguments if `flags` require one.
#define UIW_READ_MODE(flags)          \
  mode_t mode = 0;                    \
  if (takes_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

UIW_HOOK int open(const char* path, int flags, ...) {
  UIW_READ_MODE(flags)
  return call_open(real_open, path, flags, mode);
}

UIW_HOOK int open64(const char* path, int flags, ...) {
  UIW_READ_MODE(flags)
  return call_open(real_open64, path, flags, mode);
}

UIW_HOOK int openat(int folder, const char* path, int flags, ...) {
  UIW_READ_MODE(flags)
  return call_openat(real_openat, folder, path, flags, mode);
}

UIW_HOOK int openat64(int folder, const char* path, int flags, ...) {
  UIW_READ_MODE(flags)
  return call_openat(real_openat64, folder, path, flags, mode);
}

// With _FORTIFY_SOURCE, calls of open() and openat() without a mode may be compiled as calls of __open_2() and
// __openat_2(). The real functions end the program if `flags` require a mode.
UIW_HOOK int __open_2(const char* path, int flags) {
  return open_path(AT_FDCWD, path, flags, [&](const char* target) {
    Open2Function* function = real_open_2.get();
    return function != nullptr ? function(target, flags) : call_open(real_open, target, flags, 0);
  });
}

UIW_HOOK int __open64_2(const char* path, int flags) {
  return open_path(AT_FDCWD, path, flags, [&](const char* target) {
    Open2Function* function = real_open64_2.get();
    return function != nullptr ? function(target, flags) : call_open(real_open64, target, flags, 0);
  });
}

UIW_HOOK int __openat_2(int folder, const char* path, int flags) {
  return open_path(folder, path, flags, [&](const char* target) {
    Openat2Function* function = real_openat_2.get();
    return function != nullptr ? function(folder, target, flags) : call_openat(real_openat, folder, target, flags, 0);
  });
}

UIW_HOOK int __openat64_2(int folder, const char* path, int flags) {
  return open_path(folder, path, flags, [&](const char* target) {
    Openat2Function* function = real_openat64_2.get();
    return function != nullptr ? function(folder, target, flags) : call_openat(real_openat64, folder, target, flags, 0);
  });
}

UIW_HOOK FILE* fopen(const char* path, const char* mode) { return open_file(real_fopen, path, mode); }

UIW_HOOK FILE* fopen64(const char* path, const char* mode) { return open_file(real_fopen64, path, mode); }

UIW_HOOK DIR* opendir(const char* path) {
  return with_folder(AT_FDCWD, path, [&](const char* target) { return call_or_null(real_opendir, target); });
}

// For an RDMA path changes to the folder in the tree of uiw; the kernel then resolves relative paths inside that tree.
UIW_HOOK int chdir(const char* path) noexcept {
  return with_folder(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_chdir.get()) return function(target);
    return static_cast<int>(syscall(SYS_chdir, target));
  });
}

UIW_HOOK int scandir(const char* path, dirent*** names, int (*select)(const dirent*),
                     int (*compare)(const dirent**, const dirent**)) {
  return with_folder(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_scandir.get()) return function(target, names, select, compare);
    errno = ENOSYS;
    return -1;
  });
}

UIW_HOOK int scandir64(const char* path, dirent64*** names, int (*select)(const dirent64*),
                       int (*compare)(const dirent64**, const dirent64**)) {
  return with_folder(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_scandir64.get()) return function(target, names, select, compare);
    errno = ENOSYS;
    return -1;
  });
}

UIW_HOOK int access(const char* path, int mode) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_access.get()) return function(target, mode);
    return access_by_faccessat(target, mode, 0);
  });
}

UIW_HOOK int euidaccess(const char* path, int mode) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_euidaccess.get()) return function(target, mode);
    return access_by_faccessat(target, mode, AT_EACCESS);
  });
}

UIW_HOOK int eaccess(const char* path, int mode) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_eaccess.get()) return function(target, mode);
    return access_by_faccessat(target, mode, AT_EACCESS);
  });
}

UIW_HOOK int faccessat(int folder, const char* path, int mode, int flags) noexcept {
  return with_path(folder, path, [&](const char* target) {
    if (auto* function = real_faccessat.get()) return function(folder, target, mode, flags);
    return static_cast<int>(syscall(SYS_faccessat, folder, target, mode));
  });
}

UIW_HOOK ssize_t readlink(const char* path, char* buffer, size_t size) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_readlink.get()) return function(target, buffer, size);
    return syscall(SYS_readlinkat, AT_FDCWD, target, buffer, size);
  });
}

UIW_HOOK ssize_t readlinkat(int folder, const char* path, char* buffer, size_t size) noexcept {
  return with_path(folder, path, [&](const char* target) {
    if (auto* function = real_readlinkat.get()) return function(folder, target, buffer, size);
    return syscall(SYS_readlinkat, folder, target, buffer, size);
  });
}

UIW_HOOK ssize_t __readlink_chk(const char* path, char* buffer, size_t size, size_t available) {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_readlink_chk.get()) return function(target, buffer, size, available);
    return syscall(SYS_readlinkat, AT_FDCWD, target, buffer, size < available ? size : available);
  });
}

UIW_HOOK char* realpath(const char* path, char* resolved) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) { return call_or_null(real_realpath, target, resolved); });
}

UIW_HOOK char* __realpath_chk(const char* path, char* resolved, size_t size) {
  return with_path(AT_FDCWD, path,
                   [&](const char* target) { return call_or_null(real_realpath_chk, target, resolved, size); });
}

UIW_HOOK char* canonicalize_file_name(const char* path) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) { return call_or_null(real_canonicalize, target); });
}

// getxattr() and lgetxattr() are hooked since `ls -l` calls one of them for every file that it lists.
UIW_HOOK ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_getxattr.get()) return function(target, name, value, size);
    return syscall(SYS_getxattr, target, name, value, size);
  });
}

UIW_HOOK ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return with_path(AT_FDCWD, path, [&](const char* target) {
    if (auto* function = real_lgetxattr.get()) return function(target, name, value, size);
    return syscall(SYS_lgetxattr, target, name, value, size);
  });
}
