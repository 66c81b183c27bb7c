// SPDX-License-Identifier: MIT
// The hooks of libc functions that wait for descriptors.
//
// A server that listens and then calls daemon(3) goes on in a child, and often waits there, in poll() or the like, for
// its channel of rdma_cm. The library has to look for callers then, in a thread. A child that executes another program
// or ends waits for nothing, so it gets no thread. In all other processes a hook is one look at a flag.
//
// _FORTIFY_SOURCE leads poll() and ppoll() to functions of other names, which check the size of the array; the caller
// has found it to be enough where it gives a constant, so these check nothing that libc would not find itself.
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

// Keeps errno.
__attribute__((noinline)) void tell_library() {
  const UiwKernelAbi* library = loaded_library();
  // The child of a vfork has the parent's memory, and the library's own calls are not for the program's descriptors.
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

constinit RealFunction<int(pollfd*, nfds_t, int)> real_poll("poll");
constinit RealFunction<int(pollfd*, nfds_t, const timespec*, const sigset_t*)> real_ppoll("ppoll");
constinit RealFunction<int(pollfd*, nfds_t, int, size_t)> real_poll_chk("__poll_chk");
constinit RealFunction<int(pollfd*, nfds_t, const timespec*, const sigset_t*, size_t)> real_ppoll_chk("__ppoll_chk");
constinit RealFunction<int(int, fd_set*, fd_set*, fd_set*, timeval*)> real_select("select");
constinit RealFunction<int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*)> real_pselect("pselect");
constinit RealFunction<int(int, epoll_event*, int, int)> real_epoll_wait("epoll_wait");
constinit RealFunction<int(int, epoll_event*, int, int, const sigset_t*)> real_epoll_pwait("epoll_pwait");
constinit RealFunction<int(int, epoll_event*, int, const timespec*, const sigset_t*)> real_epoll_pwait2("epoll_pwait2");

// For the moment in which the function of libc is not known yet (real_functions.h); none of these calls is made there.
int unknown() {
  errno = EINTR;
  return -1;
}

}  // namespace
}  // namespace uiw::kernel_abi

using namespace uiw::kernel_abi;  // NOLINT: the hooks below have to be global

UIW_HOOK int poll(pollfd* fds, nfds_t count, int timeout) {
  before_wait();
  auto* function = real_poll.get();
  return function != nullptr ? function(fds, count, timeout) : unknown();
}
UIW_HOOK int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t size) {
  before_wait();
  auto* function = real_poll_chk.get();
  return function != nullptr ? function(fds, count, timeout, size) : poll(fds, count, timeout);
}
UIW_HOOK int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  before_wait();
  auto* function = real_ppoll.get();
  return function != nullptr ? function(fds, count, timeout, mask) : unknown();
}
UIW_HOOK int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t size) {
  before_wait();
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
  auto* function = real_epoll_wait.get();
  return function != nullptr ? function(set, events, most, timeout) : unknown();
}
UIW_HOOK int epoll_pwait(int set, epoll_event* events, int most, int timeout, const sigset_t* mask) {
  before_wait();
  auto* function = real_epoll_pwait.get();
  return function != nullptr ? function(set, events, most, timeout, mask) : unknown();
}
UIW_HOOK int epoll_pwait2(int set, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask) {
  before_wait();
  auto* function = real_epoll_pwait2.get();
  if (function != nullptr) return function(set, events, most, timeout, mask);
  errno = ENOSYS;  // as with a libc that does not have it
  return -1;
}
