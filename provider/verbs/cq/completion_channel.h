// SPDX-License-Identifier: MIT
// Completion channels: the descriptor that ibv_create_comp_channel returns to the program, and the library's end of it.
//
// The program's descriptor is the read end of a pipe that carries struct ib_uverbs_comp_event_desc. The program may
// poll it, add it to epoll, make it non-blocking and duplicate it. Thread-safe.
#pragma once

#include <memory>

namespace uiw::provider {

class EventPipe;

// Creates a channel. Returns the program's descriptor (close-on-exec), or a negative errno (-EMFILE, -ENFILE).
int create_completion_channel();

// The channel of a program's descriptor; null if the descriptor is no channel.
std::shared_ptr<EventPipe> completion_channel(int fd);

// The program has closed this descriptor (the descriptor itself is already closed or is about to be).
void forget_completion_channel(int fd);

// Hold the lock of the table over a fork. The child has the channels of the parent, whose pipes know whose they are.
void lock_completion_channels();
void unlock_completion_channels();

}  // namespace uiw::provider
