// SPDX-License-Identifier: MIT
// The functions that the interposer (libuiw-preload.so, which has no C++ runtime) and libuiw.so.1 call in each other,
// in plain C: two tables, fetched once.
//
// An object stands for what is behind a descriptor of uiw: its kind in the low three bits, a serial number above them;
// 0 means none. The interposer stores the object of each descriptor and does not interpret it.
#pragma once

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

extern "C" {

enum UiwObjectKind {
  UIW_OBJECT_UVERBS = 1,              // /dev/infiniband/uverbsN: a descriptor on /dev/null (uverbs_node.h)
  UIW_OBJECT_CM = 2,                  // /dev/infiniband/rdma_cm: an eventfd with one token for each event
  UIW_OBJECT_COMPLETION_CHANNEL = 3,  // a pipe; the interposer reports its close, and reads
  UIW_OBJECT_INTERNAL = 4,   // a descriptor of the library, which the program does not know (base/descriptor.h)
  UIW_OBJECT_NETLINK = 5,    // a socket in place of one of NETLINK_RDMA; all its state is in the kernel's socket
  UIW_OBJECT_EPOLL_SET = 6,  // an epoll set with a completion channel, whose descriptor is in place of a serial number
};
enum { UIW_OBJECT_KIND_MASK = 7 };
enum { UIW_MOST_POLLED = 64 };  // descriptors in a poll() that wait_in_poll() may carry out

// Functions of the interposer. All are thread-safe; those about signals may be called in signal handlers.
struct UiwHost {
  // The object of a live descriptor of this process, or 0.
  uint64_t (*lookup)(int fd);
  // Associates `fd` with `object`. 0 or an errno (EMFILE: the number is beyond the table).
  int (*attach)(int fd, uint64_t object);
  // Begins and ends the protection of a descriptor against the program: for its calls the number is not open.
  void (*protect)(int fd);
  void (*unprotect)(int fd);
  // Bracket the time in which the calling thread makes or closes unprotected descriptors (base/descriptor.h).
  void (*begin_change)();
  void (*end_change)();
  // sigaction() and pthread_sigmask() of libc. NULL if the program's calls are not hooked.
  int (*signal_action)(int signal, const struct sigaction* action, struct sigaction* before);
  int (*signal_mask)(int how, const sigset_t* set, sigset_t* before);
  // True in the child of a vfork, which shares its parent's memory.
  bool (*borrowed)();
  // The processors on which the program was allowed to run when it started. NULL if that is not known.
  const cpu_set_t* (*processors)();
};

// Functions of the library. All are thread-safe; none throws.
struct UiwKernelAbi {
  // The directory with class/ and dev/, or NULL if there is no device. `rescan` lists the interfaces again. The string
  // is never freed.
  const char* (*root)(int rescan);
  // Opens the device node with this file name ("uverbs0", "rdma_cm"). Returns a new descriptor and its object; -ENXIO
  // if the node does not belong to uiw; or another negative errno. With a path in the tree ("./class/infiniband/...")
  // of a port's file whose content changes, opens the current content, without an object; -ENXIO for other paths.
  int (*open)(const char* node, int flags, uint64_t* object);
  // write() on a descriptor of uiw, and all kinds of send() on a socket: the number of octets taken, or a negative
  // errno.
  long (*write)(uint64_t object, int fd, const void* data, size_t size);
  // One more descriptor refers to the object.
  void (*retain)(uint64_t object);
  // `fd` does not refer to the object any more; called before the descriptor is closed.
  void (*release)(uint64_t object, int fd);

  // The program's calls that concern SIGSEGV and SIGBUS: sigaction() for one of them; pthread_sigmask(); a call that
  // completes the result of sigpending(); and two calls around the creation of a thread, where the result of the first
  // is passed to the second.
  int (*signal_action)(int signal, const struct sigaction* action, struct sigaction* before);
  int (*signal_mask)(int how, const sigset_t* set, sigset_t* before);
  void (*add_pending)(sigset_t* pending);
  unsigned (*close_faults)();
  void (*reopen_faults)(unsigned closed);

  // To be called when the kernel has refused this port (host byte order) to a TCP socket of the program, or with
  // `datagrams` to a UDP socket. 1 if an RDMA listener or a bound rdma_cm id had it, which has another port now; else
  // 0.
  int (*give_way)(uint16_t port, int datagrams);

  // ioctl(RDMA_VERBS_IOCTL) on a descriptor of uverbs. 0 or a negative errno; -ENOTTY for unknown methods.
  int (*control)(uint64_t object, int fd, void* argument);

  // To be called in the child of a fork that has inherited a descriptor of rdma_cm, when it waits for descriptors,
  // perhaps for that one.
  void (*child_waits)();

  // read() on a completion channel: takes an event, and waits for one if the descriptor blocks. The number of octets,
  // or a negative errno: -EAGAIN if the program's own call is to be made. A cancellation point.
  long (*read_event)(int fd, void* to, size_t size);
  // epoll_pwait() and ppoll() with a completion channel among their descriptors: their result, or a negative errno as
  // for read_event().
  int (*wait_in_set)(int set, int channel, struct epoll_event* events, int most, int milliseconds,
                     const sigset_t* mask);
  int (*wait_in_poll)(struct pollfd* fds, size_t count, int channel, const struct timespec* timeout,
                      const sigset_t* mask);
};

// NULL if the library cannot be used.
typedef const struct UiwKernelAbi* (*UiwKernelAbiFunction)(const struct UiwHost* host);
#define UIW_KERNEL_ABI_SYMBOL "uiw_kernel_abi_v8"
}
