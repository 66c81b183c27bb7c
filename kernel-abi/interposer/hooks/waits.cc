// SPDX-License-Identifier: MIT
// The hooks of libc functions that wait for descriptors. The library carries out the waits of poll(), ppoll(),
// epoll_wait() and epoll_pwait() that include a completion channel, so that the thread can send and receive for
// connections while it waits. For all other waits, and if the library refuses a wait by -EAGAIN, the hooks call libc.
//
// A server that listens and then calls daemon(3) goes on in the child, and often waits there for its channel of
// rdma_cm, in poll() or the like. From then on the library has to watch for connection requests, in a thread. A child
// that executes another program or ends does not wait, and gets no thread. In all other processes this costs a hook
// only the read of a flag (g_fork_left_channels).
//
// _FORTIFY_SOURCE turns poll() and ppoll() into functions of other names, which also check the size of the array. Their
// hooks leave an array that is too small to libc's functions, which end the process.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernel-abi/interposer/entry.h"
#include "kernel-abi/interposer/fd_table.h"
#include "kernel-abi/interposer/hooks/hook.h"
#include "kernel-abi/interposer/hooks/real_functions.h"
#include "kernel-abi/interposer/loader.h"

namespace uiw::kernel_abi {
namespace {

// Calls the library's child_waits() in the child of a fork, once. Keeps errno.
__attribute__((noinline)) void tell_library() {
  const UiwKernelAbi* library = loaded_library();
  // Nothing is to be done in the child of a vfork, which shares the parent's memory, or for the library's own calls,
  // which do not wait for descriptors of the program.
  if (library == nullptr || t_passthrough != 0 || fd_table_is_borrowed()) return;
  if (!g_fork_left_channels.exchange(false)) return;
  const int saved_errno = errno;
  {
    Passthrough guard;
    library->child_waits();
  }
  errno = saved_errno;
}

inline void before_wait() {
  if (__builtin_expect(g_fork_left_channels.load(std::memory_order_relaxed), 0)) tell_library();
}

// Lets the library carry out the wait, by `call`. False if the hook is to call libc instead. Does not check for the
// child of a vfork, which shares the parent's memory: the check would cost each wait a system call, and the child
// executes another program before it waits for an event.
template <typename Call>
bool wait_by_library(Call call, int& result) {
  const UiwKernelAbi* library = loaded_library();
  if (library == nullptr) return false;
  const int saved_errno = errno;
  const int answer = call(*library);
  errno = saved_errno;
  if (answer == -EAGAIN) return false;
  if (answer < 0) errno = -answer;
  result = answer < 0 ? -1 : answer;
  return true;
}

__attribute__((noinline)) bool wait_in_poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                                            int& result) {
  if (count > 0 && fd_lookup(fds[0].fd).internal()) return false;  // the library's own call
  for (nfds_t i = 0; i < count; ++i) {
    if ((fds[i].events & POLLIN) == 0 || fd_lookup(fds[i].fd).kind() != UIW_OBJECT_COMPLETION_CHANNEL) continue;
    return wait_by_library(
        [&](const UiwKernelAbi& library) { return library.wait_in_poll(fds, count, fds[i].fd, timeout, mask); },
        result);
  }
  return false;
}

// Whether the library may carry out the wait: the call may block, and the process has descriptors of uiw.
inline bool may_wait_here(int timeout) { return timeout != 0 && fd_table_is_used(); }

inline bool poll_by_library(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, int& result) {
  if (__builtin_expect(!fd_table_is_used() || count > UIW_MOST_POLLED, 1)) return false;
  if (timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0) return false;
  return wait_in_poll(fds, count, timeout, mask, result);
}
inline bool poll_by_library(pollfd* fds, nfds_t count, int timeout, int& result) {
  if (__builtin_expect(!may_wait_here(timeout), 1)) return false;
  const timespec limit = {timeout / 1000, timeout % 1000 * 1'000'000L};
  return poll_by_library(fds, count, timeout < 0 ? nullptr : &limit, nullptr, result);
}

inline bool epoll_by_library(int set, epoll_event* events, int most, int timeout, const sigset_t* mask, int& result) {
  if (__builtin_expect(!may_wait_here(timeout), 1)) return false;
  const FdEntry entry = fd_lookup(set);
  if (entry.kind() != UIW_OBJECT_EPOLL_SET) return false;
  return wait_by_library(
      [&](const UiwKernelAbi& library) {
        const int channel = static_cast<int>(entry.object() >> 3);
        return library.wait_in_set(set, channel, events, most, timeout, mask);
      },
      result);
}

constinit RealFunction<int(int, int, int, epoll_event*)> real_epoll_ctl("epoll_ctl");
constinit RealFunction<int(pollfd*, nfds_t, int)> real_poll("poll");
constinit RealFunction<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> real_ppoll("ppoll");
constinit RealFunction<int(pollfd*, nfds_t, int, size_t)> real_poll_chk("__poll_chk");
constinit RealFunction<int(pollfd*, nfds_t, const timespec*, const sigset_t*, size_t)> real_ppoll_chk("__ppoll_chk");
constinit RealFunction<int(int, fd_set*, fd_set*, fd_set*, timeval*)> real_select("select");
constinit RealFunction<int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)> real_pselect("pselect");
constinit RealFunction<int(int, epoll_event*, int, int)> real_epoll_wait("epoll_wait");
constinit RealFunction<int(int, epoll_event*, int, int, const sigset_t*)> real_epoll_pwait("epoll_pwait");
constinit RealFunction<int(int, epoll_event*, int, const timespec*, const sigset_t*)> real_epoll_pwait2("epoll_pwait2");

// The result of a wait for which libc's function is not known, for example since this thread is just looking it up
// (real_functions.h): the wait fails with EINTR.
int unknown() {
  errno = EINTR;
  return -1;
}

}  // namespace
}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK int poll(pollfd* fds, nfds_t count, int timeout) {
  before_wait();
  if (int result; poll_by_library(fds, count, timeout, result)) return result;
  auto* function = real_poll.get();
  return function != nullptr ? function(fds, count, timeout) : unknown();
}
UIW_HOOK int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t size) {
  before_wait();
  if (int result; count <= size / sizeof *fds && poll_by_library(fds, count, timeout, result)) return result;
  auto* function = real_poll_chk.get();
  return function != nullptr ? function(fds, count, timeout, size) : poll(fds, count, timeout);
}
UIW_HOOK int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  before_wait();
  if (int result; poll_by_library(fds, count, timeout, mask, result)) return result;
  auto* function = real_ppoll.get();
  return function != nullptr ? function(fds, count, timeout, mask) : unknown();
}
UIW_HOOK int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t size) {
  before_wait();
  if (int result; count <= size / sizeof *fds && poll_by_library(fds, count, timeout, mask, result)) return result;
  auto* function = real_ppoll_chk.get();
  return function != nullptr ? function(fds, count, timeout, mask, size) : ppoll(fds, count, timeout, mask);
}
UIW_HOOK int select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* timeout) {
  before_wait();
  auto* function = real_select.get();
  return function != nullptr ? function(count, in, out, other, timeout) : unknown();
}
UIW_HOOK int pselect(int count, fd_set* in, fd_set* out, fd_set* other, const timespec* timeout, const sigset_t* mask) {
  before_wait();
  auto* function = real_pselect.get();
  return function != nullptr ? function(count, in, out, other, timeout, mask) : unknown();
}
UIW_HOOK int epoll_wait(int set, epoll_event* events, int most, int timeout) {
  before_wait();
  if (int result; epoll_by_library(set, events, most, timeout, nullptr, result)) return result;
  auto* function = real_epoll_wait.get();
  return function != nullptr ? function(set, events, most, timeout) : unknown();
}
UIW_HOOK int epoll_pwait(int set, epoll_event* events, int most, int timeout, const sigset_t* mask) {
  before_wait();
  if (int result; epoll_by_library(set, events, most, timeout, mask, result)) return result;
  auto* function = real_epoll_pwait.get();
  return function != nullptr ? function(set, events, most, timeout, mask) : unknown();
}
UIW_HOOK int epoll_pwait2(int set, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask) {
  before_wait();
  auto* function = real_epoll_pwait2.get();
  if (function != nullptr) return function(set, events, most, timeout, mask);
  errno = ENOSYS;  // as on a kernel without epoll_pwait2()
  return -1;
}

// When the first completion channel is added to an epoll set, the set gets an entry in the table of descriptors: from
// then on the library carries out the waits of epoll_wait() and epoll_pwait() on this set.
UIW_HOOK int epoll_ctl(int set, int what, int fd, epoll_event* event) noexcept {
  auto* function = real_epoll_ctl.get();
  const int result = function != nullptr ? function(set, what, fd, event)
                                         : static_cast<int>(syscall(SYS_epoll_ctl, set, what, fd, event));
  if (result == 0 && what == EPOLL_CTL_ADD && fd_lookup(fd).kind() == UIW_OBJECT_COMPLETION_CHANNEL &&
      !fd_table_is_borrowed() && !fd_lookup(set).present()) {
    const int saved_errno = errno;
    fd_attach(set, FdEntry(static_cast<uint64_t>(fd) << 3 | UIW_OBJECT_EPOLL_SET));
    errno = saved_errno;
  }
  return result;
}
