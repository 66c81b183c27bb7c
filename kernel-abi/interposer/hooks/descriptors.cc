// SPDX-License-Identifier: MIT
// The hooks of libc functions about descriptors. write() and ioctl() take commands, and read() waits for events. dup()
// in all its forms associates the new descriptor with the object of the old one, and close() in all its forms ends such
// an association. Neither touches the library's own descriptors.
#include "kernel-abi/interposer/hooks/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/fd_changes.h"
#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/loader.h"

namespace uiw::kernel_abi {

namespace {

void report_drop(int fd, FdEntry entry) {
  if (!entry.present() || entry.internal()) return;
  const int saved_errno = errno;
  Passthrough guard;
  loaded_library()->release(entry.object(), fd);
  errno = saved_errno;
}

// Does what drop_descriptor() does, for a descriptor of the program. Keeps the entry of one of the library's own
// descriptors, which another thread may just have made with this number.
void drop_programs(int fd) {
  const FdEntry entry = fd_lookup(fd);
  if (entry.present() && !entry.internal() && fd_take(fd, entry)) report_drop(fd, entry);
}

}  // namespace

void drop_descriptor(int fd) { report_drop(fd, fd_take(fd)); }

namespace {

constinit RealFunction<ssize_t(int, const void*, size_t)> real_write("write");
constinit RealFunction<ssize_t(int, void*, size_t)> real_read("read");
constinit RealFunction<int(int, unsigned long, ...)> real_ioctl("ioctl");
constinit RealFunction<int(int)> real_close("close"), real_dup("dup");
constinit RealFunction<int(unsigned, unsigned, int)> real_close_range("close_range");
constinit RealFunction<void(int)> real_closefrom("closefrom");
constinit RealFunction<int(int, int)> real_dup2("dup2");
constinit RealFunction<int(int, int, int)> real_dup3("dup3");
constinit RealFunction<int(int, int, ...)> real_fcntl("fcntl"), real_fcntl64("fcntl64");

inline ssize_t call_write(int fd, const void* data, size_t size) {
  if (auto* function = real_write.get()) return function(fd, data, size);
  return syscall(SYS_write, fd, data, size);
}

inline ssize_t call_read(int fd, void* data, size_t size) {
  if (auto* function = real_read.get()) return function(fd, data, size);
  return syscall(SYS_read, fd, data, size);
}

inline int call_ioctl(int fd, unsigned long request, void* argument) {
  if (auto* function = real_ioctl.get()) return function(fd, request, argument);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

inline int call_close(int fd) {
  if (auto* function = real_close.get()) return function(fd);
  return static_cast<int>(syscall(SYS_close, fd));
}

// Whether `fd` still refers to what the entry says. A bare system call may have closed the descriptor, and a function
// that is not hooked may have reused the number.
bool is_still_ours(int fd, FdEntry entry) {
  struct stat status;
  if (syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) != 0) return false;
  if (entry.kind() == UIW_OBJECT_CM) return (status.st_mode & S_IFMT) == 0;
  return S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

// Who executes a command on this descriptor: the library; libc's function, if the number is not uiw's any more; or
// nobody, in the child of a vfork, whose table is the parent's. For `nobody` errno is set.
enum class Taker { library, real_function, nobody };
Taker taker_of(FdEntry entry, int fd) {
  const bool borrowed = fd_table_is_borrowed();
  // If the table has another entry by now, another thread has closed the descriptor since this call began. The library
  // then still executes the command, as the kernel would.
  if (!is_still_ours(fd, entry) && fd_lookup(fd).bits() == entry.bits()) {
    if (!borrowed) drop_descriptor(fd);
    return Taker::real_function;
  }
  if (!borrowed) return Taker::library;
  errno = EIO;
  return Taker::nobody;
}

// Turns the library's answer into the result of a system call.
template <typename Result>
Result as_call(Result answer, int saved_errno) {
  errno = answer < 0 ? static_cast<int>(-answer) : saved_errno;
  return answer < 0 ? -1 : answer;
}

__attribute__((noinline)) int control(FdEntry entry, int fd, unsigned long request, void* argument) {
  if (entry.kind() != UIW_OBJECT_UVERBS || request != RDMA_VERBS_IOCTL) return call_ioctl(fd, request, argument);
  const Taker taker = taker_of(entry, fd);
  if (taker == Taker::real_function) return call_ioctl(fd, request, argument);
  if (taker == Taker::nobody) return -1;
  const int saved_errno = errno;
  int result;
  {
    Passthrough guard;
    result = loaded_library()->control(entry.object(), fd, argument);
  }
  return as_call(result, saved_errno);
}

// Lets the library carry out the read, since the library can use this thread to send and receive for connections while
// the thread waits. Does not check for the child of a vfork, which reads no event before it executes another program.
__attribute__((noinline)) ssize_t read_event(int fd, void* data, size_t size) {
  const UiwKernelAbi* library = loaded_library();
  if (library == nullptr) return call_read(fd, data, size);
  const int saved_errno = errno;
  const long n = library->read_event(fd, data, size);
  if (n != -EAGAIN) return as_call(n, saved_errno);
  errno = saved_errno;
  return call_read(fd, data, size);
}

__attribute__((noinline)) ssize_t write_command(FdEntry entry, int fd, const void* data, size_t size) {
  if (entry.has_no_commands()) return call_write(fd, data, size);
  if (entry.kind() == UIW_OBJECT_NETLINK)
    return is_stand_in(entry, fd) ? send_request(entry, fd, data, size) : call_write(fd, data, size);
  const Taker taker = taker_of(entry, fd);
  if (taker == Taker::real_function) return call_write(fd, data, size);
  if (taker == Taker::nobody) return -1;
  const int saved_errno = errno;
  long result;
  {
    Passthrough guard;
    result = loaded_library()->write(entry.object(), fd, data, size);
  }
  return as_call(result, saved_errno);
}

// Whether this is one of the library's own descriptors, which are protected from the program. The child of a vfork
// shares the memory but has descriptors of its own, and may close all of them. The library's descriptors are
// close-on-exec: if `fd` is not, a bare system call has closed the library's descriptor, and the entry is removed.
bool is_kept(int fd) {
  if (!fd_lookup(fd).internal() || fd_table_is_borrowed()) return false;
  const int saved_errno = errno;
  const long flags = syscall(SYS_fcntl, fd, F_GETFD);
  errno = saved_errno;
  if (flags >= 0 && (flags & FD_CLOEXEC) != 0) return true;
  fd_unprotect(fd);
  return false;
}

int refuse(int error) {
  errno = error;
  return -1;
}

// Associates `copy`, a duplicate of a descriptor that has the entry `entry`, with the same object. Returns `copy`, or
// -1 with errno. Copies of a completion channel get no entry, since the channel ends with its first descriptor. Copies
// of an epoll set and of the library's own descriptors get no entry, either.
int attach_copy(int copy, FdEntry entry) {
  if (copy < 0 || fd_table_is_borrowed()) return copy;
  drop_descriptor(copy);
  if (!entry.present() || entry.has_no_commands()) return copy;
  const int saved_errno = errno;
  {
    Passthrough guard;
    loaded_library()->retain(entry.object());
  }
  const int error = fd_attach(copy, entry);
  if (error != 0) {
    {
      Passthrough guard;
      loaded_library()->release(entry.object(), copy);
    }
    call_close(copy);
    errno = error;
    return -1;
  }
  errno = saved_errno;
  return copy;
}

inline bool nothing_is_ours() { return g_fd_table.highest.load(std::memory_order_acquire) < 0; }

// Removes the entry of `to`, a descriptor of the program that libc is about to replace.
void make_way(int from, int to) {
  if (from == to || !fd_lookup(to).present() || fd_table_is_borrowed()) return;
  if (syscall(SYS_fcntl, from, F_GETFD) >= 0) drop_programs(to);
}

// Calls `replace`, which makes `to` a copy of `from`. If `to` is protected, does not call it and fails: with EBADF if
// `from` is not open or is equal to `to`, else with EBUSY, the errno of dup2() in a race with open() (dup(2)).
template <typename Replace>
int replace_unless_kept(int from, int to, Replace replace) {
  make_way(from, to);
  int copy;
  {
    const FdClosing closing;
    if (__builtin_expect(is_kept(to), 0))
      return refuse(from == to || syscall(SYS_fcntl, from, F_GETFD) < 0 ? EBADF : EBUSY);
    copy = replace();
  }
  return from == to || nothing_is_ours() ? copy : attach_copy(copy, fd_lookup(from));
}

// Removes the entries of the program's descriptors in the range. The library may make and close descriptors of its own
// at the same time; their entries are not touched.
void drop_range(unsigned first, unsigned last) {
  if (nothing_is_ours() || fd_table_is_borrowed()) return;
  const unsigned highest = static_cast<unsigned>(g_fd_table.highest.load(std::memory_order_acquire));
  for (uint64_t fd = first; fd <= last && fd <= highest; ++fd) drop_programs(static_cast<int>(fd));
}

// Calls `close_part` for the parts of the range between protected descriptors.
template <typename ClosePart>
void close_around_kept(unsigned first, unsigned last, ClosePart close_part) {
  drop_range(first, last);
  const FdClosing closing;
  uint64_t rest = first;
  if (closing.is_active()) {
    const int highest = g_fd_table.highest.load(std::memory_order_acquire);
    for (uint64_t fd = first; fd <= last && static_cast<int64_t>(fd) <= highest; ++fd) {
      if (!is_kept(static_cast<int>(fd))) continue;
      if (rest < fd) close_part(static_cast<unsigned>(rest), static_cast<unsigned>(fd - 1));
      rest = fd + 1;
    }
  }
  if (rest <= last) close_part(static_cast<unsigned>(rest), last);
}

// Whether close() may be called: whether the number is open and belongs to the program. Any other number may become the
// library's at any time, and close() would then hit the library's descriptor.
bool may_close(int fd) {
  const FdClosing closing;
  if (is_kept(fd)) return false;
  return !closing.is_active() || syscall(SYS_fcntl, fd, F_GETFD) >= 0;
}

int call_close_range(unsigned first, unsigned last, int flags) {
  if (auto* function = real_close_range.get()) return function(first, last, flags);
  return static_cast<int>(syscall(SYS_close_range, first, last, flags));
}

int call_fcntl(RealFunction<int(int, int, ...)>& real, int fd, int command, void* argument) {
  auto* function = real.get();
  const int result = function != nullptr ? function(fd, command, argument)
                                         : static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
  if ((command != F_DUPFD && command != F_DUPFD_CLOEXEC) || nothing_is_ours()) return result;
  return attach_copy(result, fd_lookup(fd));
}

}  // namespace
}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK ssize_t write(int fd, const void* data, size_t size) {
  const FdEntry entry = fd_lookup(fd);
  if (__builtin_expect(entry.present(), 0)) return write_command(entry, fd, data, size);
  return call_write(fd, data, size);
}

UIW_HOOK ssize_t read(int fd, void* data, size_t size) {
  const FdEntry entry = fd_lookup(fd);
  if (__builtin_expect(entry.kind() == UIW_OBJECT_COMPLETION_CHANNEL, 0)) return read_event(fd, data, size);
  return call_read(fd, data, size);
}

UIW_HOOK int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const FdEntry entry = fd_lookup(fd);
  if (__builtin_expect(entry.present(), 0)) return control(entry, fd, request, argument);
  return call_ioctl(fd, request, argument);
}

UIW_HOOK int close(int fd) {
  if (__builtin_expect(fd_table_is_used(), 0)) {
    const bool may = may_close(fd);
    if (fd_lookup(fd).present() && !fd_table_is_borrowed()) drop_programs(fd);
    if (!may) return refuse(EBADF);
  }
  return call_close(fd);
}

UIW_HOOK int close_range(unsigned first, unsigned last, int flags) noexcept {
  // CLOSE_RANGE_CLOEXEC closes nothing, and the library's own descriptors are close-on-exec already.
  constexpr unsigned kClosing = CLOSE_RANGE_UNSHARE;
  if ((static_cast<unsigned>(flags) & ~kClosing) != 0 || first > last) return call_close_range(first, last, flags);
  int result = 0;
  close_around_kept(first, last, [&](unsigned from, unsigned to) {
    if (result == 0) result = call_close_range(from, to, flags);
  });
  return result;
}

UIW_HOOK void closefrom(int first) noexcept {
  const unsigned from = first < 0 ? 0 : static_cast<unsigned>(first);
  close_around_kept(from, UINT_MAX, [](unsigned begin, unsigned end) {
    auto* function = real_closefrom.get();
    if (end == UINT_MAX && function != nullptr) return function(static_cast<int>(begin));
    if (call_close_range(begin, end, 0) == 0 || end == UINT_MAX) return;
    // This kernel probably does not have close_range.
    for (unsigned fd = begin; fd <= end; ++fd) call_close(static_cast<int>(fd));
  });
}

UIW_HOOK int dup(int fd) noexcept {
  auto* function = real_dup.get();
  const int copy = function != nullptr ? function(fd) : static_cast<int>(syscall(SYS_dup, fd));
  return nothing_is_ours() ? copy : attach_copy(copy, fd_lookup(fd));
}

UIW_HOOK int dup2(int from, int to) noexcept {
  return replace_unless_kept(from, to, [=] {
    if (auto* function = real_dup2.get()) return function(from, to);
    if (from == to) return syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
    return static_cast<int>(syscall(SYS_dup3, from, to, 0));
  });
}

UIW_HOOK int dup3(int from, int to, int flags) noexcept {
  const auto replace = [=] {
    if (auto* function = real_dup3.get()) return function(from, to, flags);
    return static_cast<int>(syscall(SYS_dup3, from, to, flags));
  };
  if (from == to || (flags & ~O_CLOEXEC) != 0) return replace();  // which fails with EINVAL
  return replace_unless_kept(from, to, replace);
}

UIW_HOOK int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return call_fcntl(real_fcntl, fd, command, argument);
}

UIW_HOOK int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  return call_fcntl(real_fcntl64, fd, command, argument);
}
