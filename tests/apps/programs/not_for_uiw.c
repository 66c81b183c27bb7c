// SPDX-License-Identifier: MIT
// Preloaded by a test. Ends the program if one of uiw's libraries calls a function here that another preloaded library,
// as librspreload, would answer with something else than the kernel's sockets and event sets.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void look(const char* function, const void* caller) {
  Dl_info from;
  const char* name;
  if (dladdr(caller, &from) == 0 || from.dli_fname == NULL) return;
  name = strrchr(from.dli_fname, '/');
  name = name != NULL ? name + 1 : from.dli_fname;
  // The preload library itself passes on what the program calls.
  if (strncmp(name, "libuiw.so", 9) != 0 && strncmp(name, "libuiw-rdmav", 12) != 0) return;
  fprintf(stderr, "%s calls %s() of a preloaded library\n", name, function);
  abort();
}

#define FORWARD(result, name, parameters, arguments) \
  result name parameters {                           \
    result(*next) parameters;                        \
    look(#name, __builtin_return_address(0));        \
    *(void**)&next = dlsym(RTLD_NEXT, #name);        \
    return next arguments;                           \
  }

FORWARD(int, socket, (int family, int type, int protocol), (family, type, protocol))
FORWARD(int, accept, (int fd, struct sockaddr* address, socklen_t* size), (fd, address, size))
FORWARD(int, accept4, (int fd, struct sockaddr* address, socklen_t* size, int flags), (fd, address, size, flags))
FORWARD(int, epoll_create, (int size), (size))
FORWARD(int, epoll_create1, (int flags), (flags))
FORWARD(int, epoll_ctl, (int set, int operation, int fd, struct epoll_event* event), (set, operation, fd, event))
FORWARD(int, epoll_wait, (int set, struct epoll_event* events, int most, int timeout), (set, events, most, timeout))
