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

// Creates a channel. Returns the program's descriptor (close-on-exec), or a negative errno (-EMFILE, -ENFILE, -ENOMEM).
// Throws std::bad_alloc.
int create_completion_channel();

// The channel with this descriptor, for a completion queue of the context `user`; null if the descriptor is no channel.
// `number` becomes the channel's number in this process (ChannelSets).
std::shared_ptr<EventPipe> completion_channel(int fd, const std::shared_ptr<Context>& user, int& number);

// read() in the program's place: takes an event that is there, or waits for one in Engine::wait(), which also sends and
// receives. Returns the number of octets, or a negative errno: -EINTR if a signal handler has run; -EAGAIN if the
// caller must call read() of libc instead. A cancellation point.
ssize_t read_completion_event(int fd, void* to, std::size_t size);
// wait_in_set() is for epoll_pwait(), wait_in_poll() for ppoll(), if the completion channel `channel` is among the
// descriptors. They wait in the program's place, as read_completion_event() does, and return the result of the system
// call, or -EINTR or -EAGAIN as that function does.
int wait_in_set(int set, int channel, epoll_event* events, int most, int milliseconds, const sigset_t* mask);
int wait_in_poll(std::span<pollfd> descriptors, int channel, const timespec* timeout, const sigset_t* mask);
inline constexpr std::size_t kMostPolled = 64;  // with more descriptors wait_in_poll() returns -EAGAIN

// The program has closed this descriptor (the descriptor itself is already closed or is about to be).
void forget_completion_channel(int fd);

// Take and release the lock of the table of channels before and after a fork, since the child goes on using the table.
// Each channel's EventPipe knows which process owns the channel.
void lock_completion_channels();
void unlock_completion_channels();

}  // namespace uiw::provider
