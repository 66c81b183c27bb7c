// SPDX-License-Identifier: MIT
// The library's own descriptors (sockets, epoll, eventfds, timers) in a process that belongs to the program.
//
// Some programs close all descriptors that they do not know, or open files under numbers of their choice (dup2). Such
// programs must not close or replace the library's descriptors. So each descriptor that outlives a DescriptorChange is
// moved to a high number, if one is free, and reported to the DescriptorGuard, if the interposer has set one.
// Descriptors belong to the program first, so take() fails if fewer than 16 would stay free below the soft limit.
//
// Descriptors that verbs calls give to the program (the command descriptor, completion channels) do not pass through
// these functions. All functions are thread-safe and take no lock of ours; the guard may block them briefly while the
// program closes descriptors.
#pragma once

#include <utility>

namespace uiw {

// The number of free descriptors below the soft limit that take() leaves to the program.
constexpr int kDescriptorsLeft = 16;

// Protects the library's descriptors from the program. Any thread may call any of the functions.
struct DescriptorGuard {
  void (*protect)(int fd);
  void (*unprotect)(int fd);
  // Begin and end an interval in which this thread has unprotected descriptors open. Calls of the program that could
  // close them wait for the end of the interval, though not for ever. The pairs of one thread may be nested.
  void (*begin_change)();
  void (*end_change)();
};

// The scope in which the library opens or closes descriptors. It covers the time during which they are open but not
// protected, must be short and must not block. Most uses are a single expression:
//
//   const int fd = DescriptorChange().take(sys::socket(...), "a connection");
class DescriptorChange {
 public:
  DescriptorChange();
  ~DescriptorChange();  // keeps errno
  DescriptorChange(const DescriptorChange&) = delete;
  DescriptorChange& operator=(const DescriptorChange&) = delete;

  // Moves and protects a close-on-exec descriptor that was made during this change. Returns its new number. `fd` may be
  // the -1 of a call that failed: then returns -1 with the errno of that call. If too few descriptors would be left to
  // the program, closes `fd` and returns -1 with EMFILE. Returns -1 with EBADF if another thread has closed `fd`.
  // `purpose` is a string literal for messages, for example "a connection".
  int take(int fd, const char* purpose);
  // As take(), but never refuses: for descriptors that are open only briefly, or that were open before this change.
  int guard(int fd) const;
  // From here on the program can close the descriptor again. To be called before other code, such as fclose(), closes
  // it while this DescriptorChange exists.
  void leave(int fd) const;
  // Closes a descriptor that was made while this DescriptorChange exists, and that was not passed to take() or guard().
  // Does nothing for -1.
  static void drop(int fd);

 private:
  const DescriptorGuard* const guard_;
  const char* refused_ = nullptr;  // `purpose` of a take() that failed; the destructor reports EMFILE and ENFILE
  int error_ = 0;
};

// Whether take() would succeed, for callers that cannot undo the call that makes the descriptor. If not, sets errno to
// EMFILE and reports the refusal as take() does.
bool may_take_descriptor(const char* purpose);

// Closes a descriptor that take() or guard() has returned. Keeps errno; is no cancellation point.
void close_descriptor(int fd);

// Owns a descriptor that take() or guard() has returned, or none (-1).
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int fd) : fd_(fd) {}
  ~OwnedDescriptor() { reset(); }
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(other.release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives up ownership.
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (const int before = std::exchange(fd_, fd); before >= 0) close_descriptor(before);
  }

 private:
  int fd_ = -1;
};

// To be called once, before the first DescriptorChange. The guard must never be destroyed.
void set_descriptor_guard(const DescriptorGuard* guard);

// Sets a function that is called when no descriptor was available for `purpose`. `limit` is the soft limit of the
// process. `by_limit` is true if too few numbers are free below this limit, false if the system has no more files.
using DescriptorsExhausted = void (*)(const char* purpose, unsigned long limit, bool by_limit);
void set_descriptors_exhausted(DescriptorsExhausted function);

}  // namespace uiw
