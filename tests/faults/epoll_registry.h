// SPDX-License-Identifier: MIT
// Which descriptor is watched by which epoll sets, of which uiw has two. The kernel reports once that a descriptor
// becomes ready; where a call on it was refused with EAGAIN here although it is ready, it is reported again, as behind
// a true EAGAIN.
#pragma once

#include <sys/epoll.h>

namespace faults {

void note_watched(int fd, int set, const epoll_event& event);
void forget_watched(int fd, int set);
void forget_watched(int fd);  // it is closed
void report_again(int fd);

}  // namespace faults
