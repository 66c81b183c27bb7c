// SPDX-License-Identifier: MIT
// What does the interposer (libuiw-preload.so, which has no C++ runtime) call in libuiw.so.1, and what does
// it offer in return? Plain C: two tables, fetched once.
//
// An object is what stands behind a descriptor of ours: its kind in the low three bits, a serial number above
// them; 0 is none. The interposer keeps the object of each descriptor and never looks inside.
#pragma once

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {

enum UiwObjectKind {
  UIW_OBJECT_UVERBS = 1,              // /dev/infiniband/uverbsN: a descriptor on /dev/null
  UIW_OBJECT_CM = 2,                  // /dev/infiniband/rdma_cm: an eventfd with one token an event
  UIW_OBJECT_COMPLETION_CHANNEL = 3,  // only its close matters
  UIW_OBJECT_INTERNAL = 4,            // the library's own, which the program does not know (mpa/descriptor.h)
};
enum { UIW_OBJECT_KIND_MASK = 7 };

// Offered by the interposer. All are thread-safe; those of signals may be called in signal handlers.
struct UiwHost {
  // The object of a live descriptor of this process, or 0.
  uint64_t (*lookup)(int fd);
  // From here on `fd` stands for `object`. 0 or an errno (EMFILE: the number is beyond the table).
  int (*attach)(int fd, uint64_t object);
  // From here on, and no longer, the program is kept off this descriptor: to it there is none under the number.
  void (*protect)(int fd);
  void (*unprotect)(int fd);
  // sigaction() and pthread_sigmask() of libc. NULL where the program's calls of them are not hooked.
  int (*signal_action)(int signal, const struct sigaction* action, struct sigaction* before);
  int (*signal_mask)(int how, const sigset_t* set, sigset_t* before);
  // True in the child of a vfork, which shares its parent's memory.
  bool (*borrowed)();
};

// Offered by the library. Every function is thread-safe; none throws.
struct UiwKernelAbi {
  // The directory that holds class/ and dev/, or NULL where no device is offered. `rescan` looks at the
  // interfaces again. The string lives for ever.
  const char* (*root)(int rescan);
  // Opens the device node with this file name ("uverbs0", "rdma_cm"). Returns a new descriptor and its
  // object, -ENXIO where the node is not ours, or another negative errno.
  int (*open)(const char* node, int flags, uint64_t* object);
  // write() on a descriptor of ours: the octets taken, or a negative errno.
  long (*write)(uint64_t object, int fd, const void* data, size_t size);
  // One more descriptor stands for the object.
  void (*retain)(uint64_t object);
  // `fd` no longer stands for the object; called before the descriptor is really closed.
  void (*release)(uint64_t object, int fd);

  // The program's calls that have to do with SIGSEGV and SIGBUS. sigaction() of one of the two; pthread_sigmask(); what
  // sigpending() gave is completed; and around the making of a thread, what the first returns goes to the second.
  int (*signal_action)(int signal, const struct sigaction* action, struct sigaction* before);
  int (*signal_mask)(int how, const sigset_t* set, sigset_t* before);
  void (*add_pending)(sigset_t* pending);
  unsigned (*close_faults)();
  void (*reopen_faults)(unsigned closed);
};

// NULL where the library cannot serve.
typedef const struct UiwKernelAbi* (*UiwKernelAbiFunction)(const struct UiwHost* host);
#define UIW_KERNEL_ABI_SYMBOL "uiw_kernel_abi_v2"
}
