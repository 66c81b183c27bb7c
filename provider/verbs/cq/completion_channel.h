// SPDX-License-Identifier: MIT
// Completion channels: the descriptor that ibv_create_comp_channel returns to the program, and the library's end of it.
//
// The program's descriptor is the read end of a pipe that carries struct ib_uverbs_comp_event_desc. The program may
// poll it, add it to epoll, make it non-blocking and duplicate it. Thread-safe.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>
#include <memory>
#include <span>

struct epoll_event;
struct pollfd;

namespace uiw::provider {

class Context;
class EventPipe;

// Creates a channel. Returns the program's descriptor (close-on-exec), or a negative errno (-EMFILE, -ENFILE).
int create_completion_channel();

// The channel of a program's descriptor, for a completion queue of this device; null if the descriptor is no channel.
// `number` becomes the channel's number in this process.
std::shared_ptr<EventPipe> completion_channel(int fd, const std::shared_ptr<Context>& user, int& number);

// read() in the program's place: takes an event that is there, or waits for one and drives the device meanwhile.
// Returns the number of octets, or a negative errno: -EINTR if a signal handler has run; -EAGAIN if the caller is to
// make the program's own call. A cancellation point.
ssize_t read_completion_event(int fd, void* to, std::size_t size);
// As read_completion_event(), for epoll_pwait() and ppoll() with a channel among their descriptors. They return the
// result of that system call, or a negative errno as above.
int wait_in_set(int set, int channel, epoll_event* events, int most, int milliseconds, const sigset_t* mask);
int wait_in_poll(std::span<pollfd> descriptors, int channel, const timespec* timeout, const sigset_t* mask);
inline constexpr std::size_t kMostPolled = 64;  // with more descriptors wait_in_poll() returns -EAGAIN

// The program has closed this descriptor (the descriptor itself is already closed or is about to be).
void forget_completion_channel(int fd);

// Hold the lock of the table over a fork. The child has the parent's channels, whose pipes know their owner.
void lock_completion_channels();
void unlock_completion_channels();

}  // namespace uiw::provider
