// SPDX-License-Identifier: MIT
// The functions that the interposer (libuiw-preload.so, which has no C++ runtime) and libuiw.so.1 call in each other,
// in plain C: one table each, which they exchange when the interposer loads the library.
//
// An object is a number that says what a descriptor of uiw refers to: the kind is in the low three bits, and a serial
// number above them; 0 means none. The interposer stores the object of each descriptor.
#pragma once

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

extern "C" {

enum UiwObjectKind {
  UIW_OBJECT_UVERBS = 1,              // /dev/infiniband/uverbsN: a descriptor on /dev/null (uverbs_node.h)
  UIW_OBJECT_CM = 2,                  // /dev/infiniband/rdma_cm: an eventfd, readable while an event waits
  UIW_OBJECT_COMPLETION_CHANNEL = 3,  // a pipe; the library carries out its reads (read_event())
  UIW_OBJECT_INTERNAL = 4,   // a descriptor of the library, which the program does not know (base/descriptor.h)
  UIW_OBJECT_NETLINK = 5,    // a socket in place of one of NETLINK_RDMA; the library stores nothing about it
  UIW_OBJECT_EPOLL_SET = 6,  // an epoll set; the serial number is the descriptor of a completion channel in it
};
enum { UIW_OBJECT_KIND_MASK = 7 };
enum { UIW_MOST_POLLED = 64 };  // the most descriptors for which wait_in_poll() carries out a poll()

// Functions of the interposer. All are thread-safe; those about signals may be called in signal handlers.
struct UiwHost {
  // The object of a descriptor of this process, or 0 if it has none.
  uint64_t (*lookup)(int fd);
  // Associates `fd` with `object`. 0; EMFILE if the number `fd` is too large for the interposer's table of descriptors;
  // or ENOMEM.
  int (*attach)(int fd, uint64_t object);
  // Begin and end the protection of a descriptor: the hooked functions of libc cannot close or replace a protected
  // descriptor. A descriptor for which the interposer's table has no room is not protected.
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
  // The directory whose class/ and dev/ stand in for /sys/class and /dev, or NULL if there is no device or the
  // directory cannot be made. `rescan` lists the network interfaces again. The string is never freed.
  const char* (*root)(int rescan);
  // Opens the device node with this file name ("uverbs0", "rdma_cm"). Given a path below root()
  // ("./class/infiniband/..."), opens that file of a port, for example a counter, with its current content. Returns a
  // new descriptor, and for a node its object; -ENXIO if uiw has no such node or file; or another negative errno.
  int (*open)(const char* node, int flags, uint64_t* object);
  // Carries out write() on a descriptor of uiw, and send() in all its forms on a socket of UIW_OBJECT_NETLINK. Returns
  // the number of octets taken, or a negative errno.
  long (*write)(uint64_t object, int fd, const void* data, size_t size);
  // To be called when one more descriptor refers to the object.
  void (*retain)(uint64_t object);
  // To be called before `fd`, a descriptor that refers to the object, is closed; or later, if a call that is not hooked
  // has closed it.
  void (*release)(uint64_t object, int fd);

  // Carry out the program's calls that concern SIGSEGV and SIGBUS: sigaction() for one of the two, and
  // pthread_sigmask(). add_pending() adds the signals that the library holds back to the result of sigpending().
  // close_faults() and reopen_faults() are called before and after a thread is created, so that it inherits the
  // program's signal mask; reopen_faults() gets the result of close_faults().
  int (*signal_action)(int signal, const struct sigaction* action, struct sigaction* before);
  int (*signal_mask)(int how, const sigset_t* set, sigset_t* before);
  void (*add_pending)(sigset_t* pending);
  unsigned (*close_faults)();
  void (*reopen_faults)(unsigned closed);

  // Frees a port (host byte order) that the kernel has refused to a TCP socket of the program, or with `datagrams` to a
  // UDP socket: an RDMA listener or a bound rdma_cm id moves from it to another port. 1 if one has moved, else 0.
  int (*give_way)(uint16_t port, int datagrams);

  // ioctl(RDMA_VERBS_IOCTL) on a descriptor of uverbs. 0 or a negative errno; -ENOTTY for unknown methods.
  int (*control)(uint64_t object, int fd, void* argument);

  // To be called in the child of a fork that has inherited a descriptor of rdma_cm, before the child first waits in
  // poll() or the like, perhaps for that descriptor (hooks/waits.cc).
  void (*child_waits)();

  // Carries out read() on a completion channel: takes an event, and waits for one if the descriptor blocks. Returns the
  // number of octets, or a negative errno: -EAGAIN if the interposer is to call libc. A cancellation point.
  long (*read_event)(int fd, void* to, size_t size);
  // Carry out epoll_pwait() and ppoll() on descriptors that include the completion channel `channel`. Return the result
  // of that call, or a negative errno: -EAGAIN if the interposer is to call libc.
  int (*wait_in_set)(int set, int channel, struct epoll_event* events, int most, int milliseconds,
                     const sigset_t* mask);
  int (*wait_in_poll)(struct pollfd* fds, size_t count, int channel, const struct timespec* timeout,
                      const sigset_t* mask);
};

// The function of libuiw.so.1 that takes the interposer's table and returns the library's table. Both tables stay valid
// until the process ends.
typedef const struct UiwKernelAbi* (*UiwKernelAbiFunction)(const struct UiwHost* host);
#define UIW_KERNEL_ABI_SYMBOL "uiw_kernel_abi_v8"
}
