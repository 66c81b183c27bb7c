// SPDX-License-Identifier: MIT
// Which descriptor is watched by which epoll sets, of which uiw has two. The kernel reports once that a descriptor
// becomes ready; where a call on it was refused with EAGAIN here although it is ready, it is reported again, as behind
// a true EAGAIN.
#pragma once

#include <sys/epoll.h>

#include "tests/faults/through.h"

namespace faults {

void note_watched(int fd, int set, const epoll_event& event);
void forget_watched(int fd, int set);
void forget_watched(int fd);  // it is closed
void report_again(int fd);

// A call of epoll_ctl, which `call` makes.
template <typename Call>
auto watch(int set, int what, int fd, const epoll_event* event, const void* from, Call call) -> decltype(call()) {
  if (what != EPOLL_CTL_DEL && !is_spared(fd)) {
    if (const int error = verdict(Function::epoll_ctl, from); error != 0) return failed<decltype(call())>(error);
  }
  const auto result = call();
  if (result == 0 && what == EPOLL_CTL_DEL) forget_watched(fd, set);
  if (result == 0 && what != EPOLL_CTL_DEL) note_watched(fd, set, *event);
  return result;
}

}  // namespace faults
