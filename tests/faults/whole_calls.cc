// SPDX-License-Identifier: MIT
// Functions of libc that work as a whole or fail.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <type_traits>

#include "tests/faults/epoll_registry.h"
#include "tests/faults/through.h"

using faults::Function;
using faults::Next;
using faults::verdict;

FAULTS_WHOLE(int, accept4, (int fd, sockaddr* address, socklen_t* length, int flags), (fd, address, length, flags))
FAULTS_WHOLE(int, access, (const char* path, int mode), (path, mode))
FAULTS_WHOLE(int, bind, (int fd, const sockaddr* address, socklen_t length), (fd, address, length))
FAULTS_WHOLE(int, connect, (int fd, const sockaddr* address, socklen_t length), (fd, address, length))
FAULTS_WHOLE(int, epoll_create1, (int flags), (flags))
FAULTS_WHOLE(int, epoll_wait, (int fd, epoll_event* events, int most, int patience), (fd, events, most, patience))
FAULTS_WHOLE(int, eventfd, (unsigned value, int flags), (value, flags))
FAULTS_WHOLE(int, fallocate, (int fd, int mode, off_t from, off_t size), (fd, mode, from, size))
FAULTS_WHOLE(DIR*, fdopendir, (int fd), (fd))
FAULTS_WHOLE(FILE*, fopen, (const char* path, const char* mode), (path, mode))
FAULTS_WHOLE(int, fstatat, (int fd, const char* path, struct stat* into, int flags), (fd, path, into, flags))
FAULTS_WHOLE(int, ftruncate, (int fd, off_t size), (fd, size))
FAULTS_WHOLE(int, getpeername, (int fd, sockaddr* address, socklen_t* length), (fd, address, length))
FAULTS_WHOLE(int, getsockname, (int fd, sockaddr* address, socklen_t* length), (fd, address, length))
FAULTS_WHOLE(int, getsockopt, (int fd, int level, int name, void* value, socklen_t* size),
             (fd, level, name, value, size))
FAULTS_WHOLE(int, listen, (int fd, int backlog), (fd, backlog))
FAULTS_WHOLE(int, madvise, (void* from, std::size_t size, int advice), (from, size, advice))
FAULTS_WHOLE(int, memfd_create, (const char* name, unsigned flags), (name, flags))
FAULTS_WHOLE(int, mkdirat, (int fd, const char* path, mode_t mode), (fd, path, mode))
FAULTS_WHOLE(char*, mkdtemp, (char* path), (path))
FAULTS_WHOLE(DIR*, opendir, (const char* path), (path))
FAULTS_WHOLE(int, pipe2, (int* ends, int flags), (ends, flags))
FAULTS_WHOLE(int, poll, (pollfd * which, nfds_t count, int patience), (which, count, patience))
FAULTS_WHOLE(ssize_t, process_vm_readv,
             (pid_t of, const iovec* here, unsigned long count, const iovec* there, unsigned long theirs,
              unsigned long flags),
             (of, here, count, there, theirs, flags))
FAULTS_WHOLE(ssize_t, process_vm_writev,
             (pid_t of, const iovec* here, unsigned long count, const iovec* there, unsigned long theirs,
              unsigned long flags),
             (of, here, count, there, theirs, flags))
FAULTS_WHOLE(ssize_t, readlinkat, (int fd, const char* path, char* into, std::size_t size), (fd, path, into, size))
FAULTS_WHOLE(int, renameat, (int fd, const char* from, int to_fd, const char* to), (fd, from, to_fd, to))
FAULTS_WHOLE(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t size),
             (fd, level, name, value, size))
FAULTS_WHOLE(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
FAULTS_WHOLE(int, symlinkat, (const char* to, int fd, const char* path), (to, fd, path))
FAULTS_WHOLE(int, timerfd_create, (int clock, int flags), (clock, flags))
FAULTS_WHOLE(int, timerfd_settime, (int fd, int flags, const itimerspec* to, itimerspec* old), (fd, flags, to, old))
FAULTS_WHOLE(int, unlinkat, (int fd, const char* path, int flags), (fd, path, flags))
FAULTS_WHOLE(ssize_t, vmsplice, (int fd, const iovec* from, std::size_t count, unsigned flags),
             (fd, from, count, flags))

FAULTS_API void* faults_mmap(void* at, std::size_t size, int rights, int flags, int fd, off_t from) __asm__("mmap");
FAULTS_API void* faults_mmap(void* at, std::size_t size, int rights, int flags, int fd, off_t from) {
  static constinit Next<void*(void*, std::size_t, int, int, int, off_t)> next("mmap");
  if (const int error = verdict(Function::mmap, CALLER); error != 0) {
    errno = error;
    return MAP_FAILED;
  }
  return next.get()(at, size, rights, flags, fd, from);
}

// These return the errno.
FAULTS_API int faults_pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*run)(void*),
                                     void* argument) __asm__("pthread_create");
FAULTS_API int faults_pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*run)(void*),
                                     void* argument) {
  static constinit Next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)> next("pthread_create");
  if (const int error = verdict(Function::pthread_create, CALLER); error != 0) return error;
  return next.get()(made, attributes, run, argument);
}
FAULTS_API int faults_pthread_key_create(pthread_key_t* key, void (*end)(void*)) __asm__("pthread_key_create");
FAULTS_API int faults_pthread_key_create(pthread_key_t* key, void (*end)(void*)) {
  static constinit Next<int(pthread_key_t*, void (*)(void*))> next("pthread_key_create");
  if (const int error = verdict(Function::pthread_key_create, CALLER); error != 0) return error;
  return next.get()(key, end);
}

// The descriptor is gone, whatever close() says.
FAULTS_API int faults_close(int fd) __asm__("close");
FAULTS_API int faults_close(int fd) {
  static constinit Next<int(int)> next("close");
  faults::forget_watched(fd);
  const int error = verdict(Function::close, CALLER);
  const int result = next.get()(fd);
  return error != 0 && result == 0 ? faults::failed<int>(error) : result;
}

FAULTS_API int faults_epoll_ctl(int set, int what, int fd, epoll_event* event) __asm__("epoll_ctl");
FAULTS_API int faults_epoll_ctl(int set, int what, int fd, epoll_event* event) {
  static constinit Next<int(int, int, int, epoll_event*)> next("epoll_ctl");
  return faults::watch(set, what, fd, event, CALLER, [=] { return next.get()(set, what, fd, event); });
}

namespace {

// Of fcntl only what makes a descriptor or seals a file can fail.
bool may_fail(int command) { return command == F_DUPFD || command == F_DUPFD_CLOEXEC || command == F_ADD_SEALS; }

template <typename Signature>
int open_at(Next<Signature>& next, Function function, const void* from, auto... arguments) {
  if (const int error = verdict(function, from); error != 0) return faults::failed<int>(error);
  return next.get()(arguments...);
}

}  // namespace

FAULTS_API int faults_fcntl(int fd, int command, void* argument) __asm__("fcntl");
FAULTS_API int faults_fcntl(int fd, int command, void* argument) {
  static constinit Next<int(int, int, ...)> next("fcntl");
  if (may_fail(command)) {
    if (const int error = verdict(Function::fcntl, CALLER); error != 0) return faults::failed<int>(error);
  }
  return next.get()(fd, command, argument);
}
FAULTS_API int faults_open(const char* path, int flags, mode_t mode) __asm__("open");
FAULTS_API int faults_open(const char* path, int flags, mode_t mode) {
  static constinit Next<int(const char*, int, ...)> next("open");
  return open_at(next, Function::open, CALLER, path, flags, mode);
}
FAULTS_API int faults_openat(int fd, const char* path, int flags, mode_t mode) __asm__("openat");
FAULTS_API int faults_openat(int fd, const char* path, int flags, mode_t mode) {
  static constinit Next<int(int, const char*, int, ...)> next("openat");
  return open_at(next, Function::openat, CALLER, fd, path, flags, mode);
}
