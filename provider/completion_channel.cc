// SPDX-License-Identifier: MIT
#include "provider/completion_channel.h"

#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "provider/event_pipe.h"

namespace uiw::provider {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<int, std::shared_ptr<EventPipe>> channels;
};
Registry& registry() {
  static auto* instance = new Registry;  // outlives every destructor of the program
  return *instance;
}

}  // namespace

std::shared_ptr<EventPipe> EventPipe::create() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);  // many queues on one channel; the default holds thousands too
  return std::shared_ptr<EventPipe>(new EventPipe(ends[0], ends[1]));
}

EventPipe::~EventPipe() { ::close(write_fd_); }

bool EventPipe::write(const void* event, std::size_t size) {
  ssize_t n;
  do {
    n = ::write(write_fd_, event, size);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(size);
}

unsigned EventPipe::purge(std::size_t size, bool (*drop)(const void* event, void* argument), void* argument) {
  int waiting = 0;
  if (::ioctl(read_fd_, FIONREAD, &waiting) != 0 || waiting == 0) return 0;
  // A description of our own, so that non-blocking reads do not change the program's.
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", read_fd_);
  const int fd = ::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return 0;
  unsigned dropped = 0;
  // Many at a time, up to what a pipe takes as one: thousands of queue pairs may go one after the other.
  const std::size_t most = PIPE_BUF / size * size;
  std::vector<unsigned char> kept, events(most);
  for (ssize_t n; (n = ::read(fd, events.data(), most)) > 0;) {
    const auto end = static_cast<std::size_t>(n);
    for (std::size_t at = 0; at + size <= end; at += size) {
      if (drop(&events[at], argument)) {
        ++dropped;
      } else {
        kept.insert(kept.end(), &events[at], &events[at] + size);
      }
    }
  }
  ::close(fd);
  for (std::size_t at = 0; at < kept.size(); at += most) write(kept.data() + at, std::min(most, kept.size() - at));
  return dropped;
}

int create_completion_channel() {
  auto pipe = EventPipe::create();
  if (!pipe) return -errno;
  const int fd = pipe->read_fd();
  const std::lock_guard lock(registry().mutex);
  registry().channels[fd] = std::move(pipe);
  return fd;
}

void forget_completion_channel(int fd) {
  const std::lock_guard lock(registry().mutex);
  registry().channels.erase(fd);
}

std::shared_ptr<EventPipe> completion_channel(int fd) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().channels.find(fd);
  return found == registry().channels.end() ? nullptr : found->second;
}

}  // namespace uiw::provider
