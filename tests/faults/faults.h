// SPDX-License-Identifier: MIT
// What libfaults.so and the program that uses it share: which call of uiw's is to fail, and what was seen.
//
// libfaults.so stands in front of libc and of libuiw-preload.so. It sees the allocations and system calls that uiw's
// own objects make, directly or by way of libstdc++, libc and libnl; those of the program, libibverbs and librdmacm
// pass.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace faults {

// One for each libc function; memory is malloc in all its forms, and operator new, which calls it.
#define FAULT_FUNCTIONS(X) \
  X(memory)                \
  X(accept4)               \
  X(access)                \
  X(bind)                  \
  X(close)                 \
  X(connect)               \
  X(epoll_create1)         \
  X(epoll_ctl)             \
  X(epoll_wait)            \
  X(eventfd)               \
  X(fallocate)             \
  X(fcntl)                 \
  X(fdopendir)             \
  X(fopen)                 \
  X(fstatat)               \
  X(ftruncate)             \
  X(getpeername)           \
  X(getsockname)           \
  X(getsockopt)            \
  X(listen)                \
  X(madvise)               \
  X(memfd_create)          \
  X(mkdirat)               \
  X(mkdtemp)               \
  X(mmap)                  \
  X(open)                  \
  X(openat)                \
  X(opendir)               \
  X(pipe2)                 \
  X(poll)                  \
  X(pread)                 \
  X(preadv2)               \
  X(process_vm_readv)      \
  X(process_vm_writev)     \
  X(pthread_create)        \
  X(pthread_key_create)    \
  X(read)                  \
  X(readlinkat)            \
  X(recv)                  \
  X(recvmsg)               \
  X(renameat)              \
  X(send)                  \
  X(sendmsg)               \
  X(sendto)                \
  X(setsockopt)            \
  X(socket)                \
  X(symlinkat)             \
  X(timerfd_create)        \
  X(timerfd_settime)       \
  X(unlinkat)              \
  X(vmsplice)              \
  X(write)

enum class Function : int {
#define FAULT_ENUMERATOR(name) name,
  FAULT_FUNCTIONS(FAULT_ENUMERATOR)
#undef FAULT_ENUMERATOR
      count
};

constexpr int kShort = -1;  // in place of an errno: a part of the octets is read or written

// What the error of a call depends on. kMovesOctets: it is a read or a write, and has the other traits.
enum Trait : unsigned {
  kMovesOctets = 1,
  kStream = 2,
  kFile = 4,
  kCannotBlock = 8,
  kCanBeShort = 16,
  kTakenAtOnce = 32
};

// Return addresses: the object's number (1 libuiw, 2 the interposer, 3 the plugin, 4 another library) above 56 bits of
// offset.
constexpr std::size_t kDepth = 10;
constexpr int kObjectShift = 56;
using Frames = std::array<std::uint64_t, kDepth>;

struct Call {
  Function function;
  unsigned traits;
  Frames frames;
};

// In memory that parent and child share. The program writes the plan before it sets `armed`.
struct Control {
  static constexpr std::size_t kLogged = 40'000;

  Function function;
  int error;      // an errno, or kShort
  long nth;       // from 0, of the calls of that function for which the error can be
  bool for_good;  // and all that follow
  bool logging;
  std::atomic<bool> armed;
  std::array<std::atomic<int>, 64> spared;  // sockets of another connection, whose calls do not count; 0: none

  std::atomic<long> seen;
  std::atomic<int> injected;
  Call hit;  // the first

  std::atomic<std::size_t> logged;
  std::array<Call, kLogged> log;
};

// Whether a call with these traits can end so.
inline bool is_possible(int error, unsigned traits) {
  if (error == kShort) return (traits & kCanBeShort) != 0;
  if ((traits & kMovesOctets) == 0) return true;
  if (error == EAGAIN) return (traits & kCannotBlock) != 0;
  if (error == ECONNRESET) return (traits & kStream) != 0;
  if (error == EINTR) return (traits & kTakenAtOnce) == 0;
  return true;
}

using Use = void(Control* control);
// Allocations of uiw's that are not freed. With a function it is called for each, with where it was made.
using Live = std::size_t(void (*each)(const Frames& frames, std::size_t size));

}  // namespace faults
