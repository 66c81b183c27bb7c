// SPDX-License-Identifier: MIT
#include "provider/verbs/cq/completion_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <new>
#include <utility>

#include "base/immortal.h"
#include "base/mutex.h"
#include "provider/check/checker.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/progress/signals_blocked.h"
#include "provider/verbs/context.h"
#include "provider/verbs/event_pipe.h"

namespace uiw::provider {

namespace {

struct Channel {
  std::shared_ptr<EventPipe> pipe;
  std::weak_ptr<Context> user;  // the context whose completion queues use the channel
  int number = 0;
};
struct Registry {
  TableMutex mutex;
  std::map<int, Channel> channels UIW_GUARDED_BY(mutex);
  int next_number UIW_GUARDED_BY(mutex) = 0;  // of the next channel; numbers repeat after ChannelSets::kMost channels
};
Registry& registry() {
  static Immortal<Registry> instance;
  return *instance;
}

}  // namespace

int create_completion_channel() {
  auto pipe = EventPipe::create();
  if (!pipe) return -errno;
  const int fd = pipe->read_fd();
  Channel made{std::move(pipe), {}};  // later holds an old channel of this descriptor, to destroy it after the unlock
  const LockGuard lock(registry().mutex);
  try {
    made.number = std::exchange(registry().next_number, (registry().next_number + 1) % ChannelSets::kMost);
    std::swap(registry().channels[fd], made);
  } catch (const std::bad_alloc&) {
    ::close(fd);  // the program has not received it yet
    throw;
  }
  return fd;
}

void forget_completion_channel(int fd) {
  Channel forgotten;  // destroyed after the lock is released
  const LockGuard lock(registry().mutex);
  const auto found = registry().channels.find(fd);
  if (found == registry().channels.end()) return;
  forgotten = std::move(found->second);
  registry().channels.erase(found);
}

void lock_completion_channels() UIW_ACQUIRE(registry().mutex) { registry().mutex.lock(); }
void unlock_completion_channels() UIW_RELEASE(registry().mutex) { registry().mutex.unlock(); }

std::shared_ptr<EventPipe> completion_channel(int fd, const std::shared_ptr<Context>& user, int& number) {
  const LockGuard lock(registry().mutex);
  const auto found = registry().channels.find(fd);
  if (found == registry().channels.end()) return nullptr;
  found->second.user = user;
  number = found->second.number;
  return found->second.pipe;
}

namespace {

// The channel with this descriptor, if a completion queue has been created with it and the queue's context still
// exists; else `pipe` is null.
struct Behind {
  std::shared_ptr<EventPipe> pipe;
  std::shared_ptr<Context> user;
  int number = ChannelSets::kNone;
};
Behind behind(int channel) {
  const LockGuard lock(registry().mutex);
  const auto found = registry().channels.find(channel);
  if (found == registry().channels.end()) return {};
  std::shared_ptr<Context> user = found->second.user.lock();
  return user != nullptr ? Behind{found->second.pipe, std::move(user), found->second.number} : Behind{};
}

using Waited = Engine::Waited;

struct Read final : Engine::Awaited {
  Read(EventPipe& from, int fd, void* destination, std::size_t room)
      : Awaited(both), pipe(from), to(destination), size(room) {
    both[1] = {fd, POLLIN, 0};
  }
  void begin_driving() override { pipe.keep_for_caller(size); }
  bool done() override {
    if (take_kept()) return true;
    if (both[1].revents == 0) return false;
    if (pipe.own_read_fd(both[1].fd) < 0) return true;  // the program has closed the library's duplicate
    n = EventPipe::read_without_waiting(both[1].fd, to, size);
    return n >= 0 || errno != EAGAIN || (both[1].revents & ~POLLIN) != 0;
  }
  bool take_kept() {
    if (!pipe.take_kept(to)) return false;
    n = static_cast<ssize_t>(size);
    return true;
  }
  EventPipe& pipe;
  pollfd both[2];
  void* const to;
  const std::size_t size;
  ssize_t n = -1;
};

// Waits for events of an epoll set of the program, and stores at most `room` of them in `into`.
struct SetWait final : Engine::Awaited {
  SetWait(int set, epoll_event* into, int room) : Awaited(both), events(into), most(room) {
    both[1] = {set, POLLIN, 0};
  }
  bool done() override {
    // A raw system call, unlike the function of libc, is no cancellation point. With timeout 0 it is never interrupted.
    count = static_cast<int>(::syscall(SYS_epoll_pwait, both[1].fd, events, most, 0, nullptr, 0));
    return count != 0;
  }
  pollfd both[2];
  epoll_event* const events;
  const int most;
  int count = 0;
};

struct PollWait final : Engine::Awaited {
  // `all` has room for at least one entry more than `mine`: the first entry of `all` is for the engine.
  PollWait(std::span<pollfd> mine, std::span<pollfd> all) : Awaited(all.first(mine.size() + 1)), own(mine) {
    std::copy(mine.begin(), mine.end(), all.begin() + 1);
  }
  bool done() override {
    count = static_cast<int>(::syscall(SYS_poll, own.data(), own.size(), 0));
    return count != 0;
  }
  const std::span<pollfd> own;
  int count = 0;
};

// Waits as Engine::wait() does. If the program is checked, looks each second whether it waits in vain. `reads`: it
// waits for this channel alone.
Waited wait_for_events(const Behind& found, int channel, Engine::Awaited& wait, bool reads) {
  wait.channel = found.number;
  Engine& engine = found.user->engine();
  check::Checker* const checker = check::Checker::active();
  if (checker == nullptr || wait.deadline != Engine::Awaited::kNever) return engine.wait(wait);
  // A signal that comes while the Checker looks is delivered in the next wait, so that it interrupts the program's
  // call.
  const SignalsBlocked blocked;
  if (wait.mask == nullptr) wait.mask = blocked.before();
  for (check::Checker::Sleep sleep = checker->begin_sleep(channel, reads);; checker->sleeps(sleep)) {
    wait.deadline = raw_clock() + std::chrono::nanoseconds(check::Checker::kPatience).count();
    const Waited how = engine.wait(wait);
    if (how != Waited::late) return how;
  }
}

template <typename Wait>
int waited(const Behind& found, int channel, Wait& wait) {
  switch (wait_for_events(found, channel, wait, false)) {
    case Waited::done: return wait.count >= 0 ? wait.count : -EAGAIN;
    case Waited::late: return 0;
    case Waited::interrupted: return -EINTR;
    case Waited::not_here: break;
  }
  return -EAGAIN;
}

}  // namespace

ssize_t read_completion_event(int fd, void* to, std::size_t size) {
  // If an event is in the pipe already, reading it takes no lock, so that this also works in a signal handler.
  if (const ssize_t n = EventPipe::read_without_waiting(fd, to, size); n >= 0) return n;
  const int flags = errno == EAGAIN ? ::fcntl(fd, F_GETFL) : -1;
  if (flags < 0 || (flags & O_NONBLOCK) != 0) return -EAGAIN;
  const Behind found = behind(fd);
  const int own = found.pipe != nullptr ? found.pipe->own_read_fd(fd) : -1;
  if (own < 0) return -EAGAIN;
  Read read(*found.pipe, own, to, size);
  const Waited how = wait_for_events(found, fd, read, true);
  if (how == Waited::done || read.take_kept()) return read.n >= 0 ? read.n : -EAGAIN;
  return how == Waited::interrupted ? -EINTR : -EAGAIN;
}

int wait_in_set(int set, int channel, epoll_event* events, int most, int milliseconds, const sigset_t* mask) {
  const Behind found = behind(channel);
  if (found.pipe == nullptr || !found.pipe->is_own() || most < 1) return -EAGAIN;
  SetWait wait(set, events, most);
  wait.mask = mask;
  if (milliseconds >= 0) wait.deadline = raw_clock() + static_cast<std::uint64_t>(milliseconds) * 1'000'000;
  return waited(found, channel, wait);
}

int wait_in_poll(std::span<pollfd> descriptors, int channel, const timespec* timeout, const sigset_t* mask) {
  const Behind found = behind(channel);
  if (found.pipe == nullptr || !found.pipe->is_own() || descriptors.size() > kMostPolled) return -EAGAIN;
  std::array<pollfd, kMostPolled + 1> all;
  PollWait wait(descriptors, all);
  wait.mask = mask;
  if (timeout != nullptr) {
    if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1'000'000'000) return -EAGAIN;
    const auto seconds = static_cast<std::uint64_t>(std::min<time_t>(timeout->tv_sec, 1'000'000'000));
    wait.deadline = raw_clock() + seconds * 1'000'000'000 + static_cast<std::uint64_t>(timeout->tv_nsec);
  }
  return waited(found, channel, wait);
}

}  // namespace uiw::provider
