// SPDX-License-Identifier: MIT
// System calls of the library's own that must not reach another library which the program has preloaded. librspreload
// (rdma-core) makes rsockets of sockets, from release 63 on also of those with flags, and event sets of its own in
// place of epoll's: the library would build its connections on themselves. As the functions of libc, but no
// cancellation points.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace uiw::sys {

inline int socket(int family, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, family, type, protocol));
}
inline int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  return static_cast<int>(::syscall(SYS_accept4, fd, address, size, flags));
}
inline int epoll_create1(int flags) { return static_cast<int>(::syscall(SYS_epoll_create1, flags)); }
inline int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}
inline int epoll_wait(int epoll, epoll_event* events, int most, int milliseconds) {
  return static_cast<int>(::syscall(SYS_epoll_pwait, epoll, events, most, milliseconds, nullptr, 0));
}

}  // namespace uiw::sys
