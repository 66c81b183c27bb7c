// SPDX-License-Identifier: MIT
// The library's own descriptors (sockets, epoll, eventfds, timers) in a process that belongs to the program.
//
// Some programs close all descriptors that they do not know, or open files under numbers of their choice (dup2). They
// must not hit the library's descriptors. So take_descriptor() moves a descriptor to a high number and reports it to
// the guard, if the interposer has set one. Descriptors are a limited resource that belongs to the program first: the
// last 16 below the soft limit are never taken.
//
// Descriptors that the program gets from a call (the command descriptor, completion channels) are not taken here, nor
// those that are open only during one call of the program. All functions are thread-safe and take no lock.
#pragma once

namespace uiw::mpa {

// The number of descriptors that are left to the program.
constexpr int kDescriptorsLeft = 16;

// Takes ownership of a new close-on-exec descriptor; `fd` may be the -1 of a call that failed. Returns the descriptor's
// new number, or -1 with the errno of that call, or -1 with EMFILE if too few descriptors would be left to the program;
// then `fd` is closed. `purpose` is a string literal that tells people what needed it, for example "a connection".
int take_descriptor(int fd, const char* purpose);

// Whether take_descriptor() would succeed. For callers that cannot undo the call that makes the descriptor. Reports a
// refusal as take_descriptor() does.
bool may_take_descriptor(const char* purpose);

// Closes a descriptor that was taken. Keeps errno; is no cancellation point.
void close_descriptor(int fd);

// As take_descriptor(), for a descriptor that is open for a moment only. It may be one of the last, so it is never
// refused.
int guard_descriptor(int fd);
// Gives up ownership of a descriptor without closing it.
void leave_descriptor(int fd);

// Protects the library's descriptors from the program. Any thread may call either function.
struct DescriptorGuard {
  void (*protect)(int fd);
  void (*unprotect)(int fd);
};
// Called once, before the first descriptor is taken. The guard must remain live as long as the process.
void set_descriptor_guard(const DescriptorGuard* guard);

// Sets a function that is called when no descriptor was available for `purpose`. `limit` is the soft limit of the
// process; `by_limit` is true if this limit, and not that of the system, was the reason.
using DescriptorsExhausted = void (*)(const char* purpose, unsigned long limit, bool by_limit);
void set_descriptors_exhausted(DescriptorsExhausted function);

}  // namespace uiw::mpa
