// SPDX-License-Identifier: MIT
#include "provider/verbs/cq/completion_channel.h"

#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "provider/process/immortal.h"
#include "provider/verbs/event_pipe.h"

namespace uiw::provider {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<int, std::shared_ptr<EventPipe>> channels;
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
  const std::lock_guard lock(registry().mutex);
  try {
    registry().channels[fd].swap(pipe);
  } catch (const std::bad_alloc&) {
    ::close(fd);  // not the program's yet
    throw;
  }
  return fd;
}

void forget_completion_channel(int fd) {
  std::shared_ptr<EventPipe> forgotten;  // destroyed after the lock is released
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().channels.find(fd);
  if (found == registry().channels.end()) return;
  forgotten = std::move(found->second);
  registry().channels.erase(found);
}

void lock_completion_channels() { registry().mutex.lock(); }
void unlock_completion_channels() { registry().mutex.unlock(); }

std::shared_ptr<EventPipe> completion_channel(int fd) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().channels.find(fd);
  return found == registry().channels.end() ? nullptr : found->second;
}

}  // namespace uiw::provider
