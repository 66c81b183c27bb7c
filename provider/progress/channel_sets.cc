// SPDX-License-Identifier: MIT
#include "provider/progress/channel_sets.h"

#include <unistd.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/system_calls.h"

namespace uiw::provider {

namespace {

int put(int set, int fd, epoll_event event) {
  if (sys::epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0) return 0;
  if (errno == ENOENT && sys::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0) return 0;
  return errno;
}

}  // namespace

int ChannelSets::wait(epoll_event* events, int most, int milliseconds) const {
  int count = sys::epoll_wait(engine_set_.load(), events, most, milliseconds);
  for (int i = 0; i < count;) {
    if ((events[i].data.u64 & kTag) == 0) {
      ++i;
      continue;
    }
    const Set& set = sets_[events[i].data.u64 & (kMost - 1)];
    events[i] = events[--count];
    if (const int more = take(set, events + count, most - count); more > 0) count += more;
  }
  return count;
}

int ChannelSets::take(const Set& set, epoll_event* events, int most) const {
  return sys::epoll_wait(set.fd.load(), events, most, 0);
}

void ChannelSets::join(Driven& qp) {
  if (qp.channel == kNone || qp.channel_set.exchange(qp.channel) != kNone) return;
  sets_[index(qp.channel)].members.fetch_add(1, std::memory_order_relaxed);
}

void ChannelSets::part(Driven& qp) {
  if (qp.channel_set.exchange(kNone) == kNone) return;
  sets_[index(qp.channel)].members.fetch_sub(1, std::memory_order_relaxed);
}

ChannelSets::Set* ChannelSets::open(int number, bool& made) {
  if (number < 0) return nullptr;
  Set& set = sets_[index(number)];
  if (set.members.load(std::memory_order_relaxed) == 0) return nullptr;
  if (set.fd.load() >= 0) return &set;
  const LockGuard lock(set.driving);
  if (set.fd.load() >= 0) return &set;
  if (set.refused.load()) return nullptr;
  const int fd = DescriptorChange().take(sys::epoll_create1(EPOLL_CLOEXEC), "threads that wait for an event");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTag | index(number);
  if (fd < 0 || sys::epoll_ctl(engine_set_.load(), EPOLL_CTL_ADD, fd, &event) != 0) {
    set.refused.store(true);
    if (fd >= 0) close_descriptor(fd);
    return nullptr;
  }
  set.fd.store(fd);
  made = true;
  return &set;
}

// Makes the set report these events, and no others, to the engine's set.
void ChannelSets::report(const Set& set, unsigned events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = kTag | static_cast<std::uint64_t>(&set - sets_.data());
  sys::epoll_ctl(engine_set_.load(), EPOLL_CTL_MOD, set.fd.load(), &event);
}

bool ChannelSets::enter(Set& set) const {
  const pthread_t self = pthread_self();
  // `waited` is also set if a signal handler has left an earlier wait of this same thread by longjmp(). Then this
  // thread may wait again.
  if (set.waited.exchange(true) && pthread_equal(set.waiter.load(), self) == 0) return false;
  set.waiter.store(self);
  report(set, 0);
  return true;
}

void ChannelSets::leave(Set& set) const {
  report(set, EPOLLIN);
  set.waiter.store(pthread_t{});
  set.waited.store(false);
}

int ChannelSets::watch(int number, int fd, epoll_event event) const {
  const int engine_set = engine_set_.load();
  for (;;) {
    const int own = number >= 0 ? sets_[index(number)].fd.load() : -1;
    int error = own >= 0 ? put(own, fd, event) : ENOENT;
    if (error == 0) {
      sys::epoll_ctl(engine_set, EPOLL_CTL_DEL, fd, nullptr);
    } else {
      error = put(engine_set, fd, event);
    }
    // If another thread has made the channel's set meanwhile, tries again with that set.
    if (number < 0 || sets_[index(number)].fd.load() == own) return error;
  }
}

void ChannelSets::release(int fd) const {
  if (sys::epoll_ctl(engine_set_.load(), EPOLL_CTL_DEL, fd, nullptr) == 0) return;
  for (const Set& set : sets_) {
    if (const int own = set.fd.load(); own >= 0 && sys::epoll_ctl(own, EPOLL_CTL_DEL, fd, nullptr) == 0) return;
  }
}

void ChannelSets::close() {
  for (Set& set : sets_) {
    const LockGuard lock(set.driving);
    if (const int fd = set.fd.exchange(-1); fd >= 0) close_descriptor(fd);
  }
}

void ChannelSets::forget() {
  for (Set& set : sets_) set.fd.store(-1), set.waited.store(false), set.refused.store(false);
}

}  // namespace uiw::provider
