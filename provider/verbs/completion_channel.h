// SPDX-License-Identifier: MIT
// Completion channels: the descriptor that ibv_create_comp_channel gives a program, and our end of it.
//
// The program's end is the read end of a pipe that carries struct ib_uverbs_comp_event_desc; it may be polled, put
// into epoll, made non-blocking and duplicated. Thread-safe.
#pragma once

#include <memory>

#include "provider/export.h"

namespace uiw::provider {

class EventPipe;

// Makes a channel; returns the program's descriptor (close-on-exec), or a negative errno (-EMFILE, -ENFILE).
UIW_API int create_completion_channel();

// The channel behind a program's descriptor; null if it is none.
std::shared_ptr<EventPipe> completion_channel(int fd);

// The program has closed this descriptor (the descriptor itself is already closed or is about to be).
UIW_API void forget_completion_channel(int fd);

// Around a fork: none is made or forgotten meanwhile. In the child they are the parent's.
void lock_completion_channels();
void unlock_completion_channels();
void forget_completion_channels();

}  // namespace uiw::provider
