// SPDX-License-Identifier: MIT
// The descriptors that are the library's own (sockets, epoll, eventfds, timers), in a process that is the program's.
//
// A program that closes all descriptors which it does not know, or puts files under numbers of its choice, must not
// meet ours, so a descriptor that is taken moves to a high number, and the guard, where there is one, is told of it.
// And what the process may have belongs to the program first: none of the last 16 is taken.
//
// What the program was given by a call (the command descriptor, channels) does not come here, nor does what a call of
// the program opens and closes. All functions are thread-safe, and take no lock.
#pragma once

namespace uiw::mpa {

// So many descriptors are left to the program.
constexpr int kDescriptorsLeft = 16;

// Takes over a descriptor, close-on-exec, that has just been made, or the -1 of a call that could not make one. Returns
// its new number; or -1 with the errno of that call, or with EMFILE where too few would be left: it is closed then.
// `purpose`, a literal, names what needs it for people, for example "a connection".
int take_descriptor(int fd, const char* purpose);

// Would take_descriptor() leave enough? For who cannot undo what makes a descriptor; says no as take_descriptor() does.
bool may_take_descriptor(const char* purpose);

// Closes one that was taken. Keeps errno; no cancellation point.
void close_descriptor(int fd);

// The same for what a thread of ours has open for a moment only, which may be one of the last: never refused.
int guard_descriptor(int fd);
// It is closed by somebody else from here on.
void leave_descriptor(int fd);

// Who keeps the program off our descriptors. Each function may come from any thread.
struct DescriptorGuard {
  void (*protect)(int fd);
  void (*unprotect)(int fd);
};
// Once, before the first descriptor is taken: earlier ones it does not hear of. It is not copied.
void set_descriptor_guard(const DescriptorGuard* guard);

// Who is told that there was no descriptor for this purpose, with the soft limit of the process and whether that, and
// not the system's, was the reason.
using DescriptorsExhausted = void (*)(const char* purpose, unsigned long limit, bool by_limit);
void set_descriptors_exhausted(DescriptorsExhausted function);

}  // namespace uiw::mpa
