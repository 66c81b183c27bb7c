// SPDX-License-Identifier: MIT
// The library's own descriptors (sockets, epoll, eventfds, timers) in a process that belongs to the program.
//
// Some programs close all descriptors that they do not know, or open files under numbers of their choice (dup2). Such
// programs must not close or replace the library's descriptors. So each of these is moved to a high number and reported
// to the guard, if the interposer has set one. Descriptors are a limited resource that belongs to the program first:
// the last 16 below the soft limit are never taken.
//
// Descriptors that verbs calls give to the program (the command descriptor, completion channels) do not pass through
// these functions. All functions are thread-safe and take no lock of ours; the guard may block them briefly while the
// program closes descriptors.
#pragma once

#include <utility>

namespace uiw {

// The number of descriptors that are left to the program.
constexpr int kDescriptorsLeft = 16;

// Protects the library's descriptors from the program. Any thread may call any of the functions.
struct DescriptorGuard {
  void (*protect)(int fd);
  void (*unprotect)(int fd);
  // Begin and end an interval in which this thread has unprotected descriptors open. Until its end, calls of the
  // program that could close them wait. The pairs of one thread may be nested.
  void (*begin_change)();
  void (*end_change)();
};

// The scope in which the library opens or closes descriptors. It covers the time during which they are open but not
// protected, must be short and must not block. Most uses are a single expression:
//
//   const int fd = DescriptorChange().take(::socket(...), "a connection");
class DescriptorChange {
 public:
  DescriptorChange();
  ~DescriptorChange();  // keeps errno
  DescriptorChange(const DescriptorChange&) = delete;
  DescriptorChange& operator=(const DescriptorChange&) = delete;

  // Takes ownership of a close-on-exec descriptor that was made during this change; `fd` may be the -1 of a call that
  // failed. Returns the descriptor's new number, or -1 with the errno of that call, or -1 with EMFILE if too few
  // descriptors would be left to the program; then `fd` is closed. `purpose` is a string literal for messages, for
  // example "a connection".
  int take(int fd, const char* purpose);
  // As take(), but never refuses: a descriptor that is open only briefly may be one of the last 16.
  int guard(int fd) const;
  // Gives up ownership of a descriptor that other code closes before this change ends.
  void leave(int fd) const;
  // Closes a descriptor that was made during this change and is neither taken nor guarded. Does nothing for -1.
  static void drop(int fd);

 private:
  const DescriptorGuard* const guard_;
  const char* refused_ = nullptr;  // the purpose; reported once the change is over
  int error_ = 0;
};

// Whether take() would succeed. For callers that cannot undo the call that makes the descriptor. Reports a refusal as
// take() does.
bool may_take_descriptor(const char* purpose);

// Closes a descriptor that was taken or guarded. Keeps errno; is no cancellation point.
void close_descriptor(int fd);

// Owns a descriptor that was taken or guarded, or none (-1).
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

// Called once, before the first descriptor is taken. The guard must never be destroyed.
void set_descriptor_guard(const DescriptorGuard* guard);

// Sets a function that is called when no descriptor was available for `purpose`. `limit` is the soft limit of the
// process; `by_limit` is true if this limit was reached, false if it was the limit of the system.
using DescriptorsExhausted = void (*)(const char* purpose, unsigned long limit, bool by_limit);
void set_descriptors_exhausted(DescriptorsExhausted function);

}  // namespace uiw
