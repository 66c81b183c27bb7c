// SPDX-License-Identifier: MIT
#include "provider/verbs/event_pipe.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "base/descriptor.h"
#include "base/guarded_copy.h"
#include "base/mutex.h"
#include "provider/process/log.h"

namespace uiw::provider {

namespace {

constexpr const char* kPurpose = "a channel of events";
constexpr int kWantedSize = 4096;  // one page; the kernel rounds up to its minimum

// The inode number of the pipe; 0 if the descriptor is no pipe.
ino_t pipe_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) ? status.st_ino : 0;
}

// The list of all pipes, and its lock, which is taken before the locks of the pipes.
constinit TableMutex g_list;
constinit EventPipe* g_first UIW_GUARDED_BY(g_list) = nullptr;

}  // namespace

ssize_t EventPipe::read_without_waiting(int fd, void* to, std::size_t size) noexcept {
  iovec vector{to, size};
  ssize_t n;
  do {
    n = ::syscall(SYS_vmsplice, fd, &vector, 1, SPLICE_F_NONBLOCK);  // for reading from a pipe, vmsplice copies
  } while (n < 0 && errno == EINTR);
  // Some sandboxes do not allow vmsplice; since Linux 6.4 preadv2 supports RWF_NOWAIT for pipes.
  if (n < 0 && errno != EAGAIN) n = ::syscall(SYS_preadv2, fd, &vector, 1, -1L, -1L, RWF_NOWAIT);
  return n;
}

EventPipe::Slot::Slot() : home_(1), event_(home_.begin()) { event_->home = &home_; }

std::shared_ptr<EventPipe> EventPipe::create() {
  int ends[2], own = -1;
  {
    DescriptorChange change;
    if (::pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
    ends[1] = change.take(ends[1], kPurpose);
    if (ends[1] >= 0) own = change.take(::fcntl(ends[0], F_DUPFD_CLOEXEC, 3), kPurpose);
  }
  int capacity = -1;
  if (own >= 0 && ::fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0) {
    ::fcntl(ends[1], F_SETPIPE_SZ, kWantedSize);
    capacity = ::fcntl(ends[1], F_GETPIPE_SZ);
  }
  int error = errno;
  if (capacity > 0) {
    try {
      std::unique_ptr<EventPipe> made(new EventPipe(ends[0], ends[1], own, static_cast<std::size_t>(capacity)));
      ends[1] = own = -1;  // the object owns them from here on
      return std::shared_ptr<EventPipe>(std::move(made));
    } catch (const std::exception&) {
      error = ENOMEM;
    }
  }
  if (ends[0] >= 0) ::close(ends[0]);
  for (const int fd : {ends[1], own}) {
    if (fd >= 0) close_descriptor(fd);
  }
  errno = error;
  return nullptr;
}

EventPipe::EventPipe(int read_fd, int write_fd, int own_read_fd, std::size_t capacity)
    : read_fd_(read_fd),
      write_fd_(write_fd),
      own_read_fd_(own_read_fd),
      capacity_(capacity),
      pipe_(pipe_of(own_read_fd)),
      taken_(std::make_unique_for_overwrite<std::byte[]>(capacity)),
      generation_(fork_generation()),
      line_(std::make_unique<Line>()) {
  const LockGuard lock(g_list);
  next_ = g_first;
  if (next_ != nullptr) next_->before_ = this;
  g_first = this;
}

EventPipe::~EventPipe() {
  {
    const LockGuard lock(g_list);
    (before_ != nullptr ? before_->next_ : g_first) = next_;
    if (next_ != nullptr) next_->before_ = before_;
  }
  if (watched_) CmLoop::instance().unwatch(write_fd_);
  if (generation_ != fork_generation() && !is_intact()) return;
  close_descriptor(write_fd_);
  close_descriptor(own_read_fd_);
}

// This function takes the mutexes of all pipes, and the next two release them, which the thread safety analysis cannot
// follow.
void EventPipe::lock_for_fork() UIW_NO_THREAD_SAFETY_ANALYSIS {
  g_list.lock();
  for (EventPipe* pipe = g_first; pipe != nullptr; pipe = pipe->next_) pipe->mutex_.lock();
}

void EventPipe::unlock_after_fork() UIW_NO_THREAD_SAFETY_ANALYSIS {
  for (EventPipe* pipe = g_first; pipe != nullptr; pipe = pipe->next_) pipe->mutex_.unlock();
  g_list.unlock();
}

// The child has no thread that waits for room in a pipe, for the end of the parent's own parent, or for an event.
void EventPipe::inherit_in_child() UIW_NO_THREAD_SAFETY_ANALYSIS {
  for (EventPipe* pipe = g_first; pipe != nullptr; pipe = pipe->next_) {
    pipe->watched_ = pipe->awaits_parent_ = pipe->keeps_ = false;
    pipe->reader_.store(pthread_t{});
  }
  unlock_after_fork();
}

bool EventPipe::any() {
  assume_held(g_list);
  return g_first != nullptr;
}

Owner EventPipe::owner() {
  const unsigned own = fork_generation();
  const unsigned generation = generation_.load(std::memory_order_relaxed);
  if (generation == own) return Owner::self;
  const Owner whose = owner_of(generation);
  if (whose != Owner::self) return whose;
  // The program may have closed descriptors that it has inherited.
  if (!is_intact()) return Owner::other;
  const DescriptorChange change;
  write_fd_ = change.guard(write_fd_);
  own_read_fd_ = change.guard(own_read_fd_);
  generation_.store(own, std::memory_order_relaxed);
  return whose;
}

int EventPipe::own_read_fd(int fd) const { return is_own() && pipe_of(fd) == pipe_ ? own_read_fd_ : -1; }

bool EventPipe::is_intact() const { return pipe_of(own_read_fd_) == pipe_ && pipe_of(write_fd_) == pipe_; }

bool EventPipe::keep(const void* event, std::size_t size) {
  const bool callers = pthread_equal(reader_.load(std::memory_order_relaxed), pthread_self()) != 0;
  if (!callers || keeps_ || size != kept_size_) return false;
  std::memcpy(kept_.data(), event, size);
  return keeps_ = true;
}

void EventPipe::keep_for_caller(std::size_t size) noexcept {
  const LockGuard lock(mutex_);
  if (reader_.load(std::memory_order_relaxed) != pthread_t{}) return;
  reader_.store(pthread_self(), std::memory_order_relaxed);
  kept_size_ = size;
}

bool EventPipe::take_kept(void* to) noexcept {
  if (pthread_equal(reader_.load(std::memory_order_relaxed), pthread_self()) == 0) return false;
  const LockGuard lock(mutex_);
  reader_.store(pthread_t{}, std::memory_order_relaxed);
  if (!std::exchange(keeps_, false)) return false;
  if (guarded_copy(to, kept_.data(), kept_size_)) return true;
  add(kept_.data(), kept_size_);
  return false;
}

bool EventPipe::put(const void* event, std::size_t size) {
  ssize_t n;
  do {
    n = ::syscall(SYS_write, write_fd_, event, size);  // write() of libc would be a cancellation point
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(size);
}

void EventPipe::unlink(Line::iterator event) {
  event->times = 0;
  if (Line* home = event->home) {
    home->splice(home->end(), *line_, event);
  } else {
    line_->erase(event);
  }
}

// If an object has more than one event waiting, its next event goes to the end of the line: the objects take turns.
void EventPipe::send_waiting() {
  if (const Owner whose = owner(); whose != Owner::self) {
    waiting_.store(!line_->empty(), std::memory_order_relaxed);
    if (line_->empty() || awaits_parent_ || whose == Owner::other) return;
    log_event(LogLevel::info, "an event waits until the parent process has ended, which shares the channel");
    try {
      awaits_parent_ = when_ancestors_end([weak = weak_from_this()] {
                         const auto self = weak.lock();
                         if (self == nullptr) return;
                         const LockGuard own(self->mutex_);
                         self->awaits_parent_ = false;
                         self->send_waiting();
                       }) == 0;
    } catch (const std::exception&) {  // no memory: the next write() or flush() tries again
    }
    return;
  }
  while (!line_->empty() && put(line_->front().octets.data(), line_->front().size)) {
    if (--line_->front().times > 0) {
      line_->splice(line_->end(), *line_, line_->begin());
    } else {
      unlink(line_->begin());
    }
  }
  waiting_.store(!line_->empty(), std::memory_order_relaxed);
  if (watched_ != line_->empty()) return;
  if (watched_) {
    CmLoop::instance().unwatch(write_fd_);
    watched_ = false;
    return;
  }
  try {
    watched_ = CmLoop::instance().watch(write_fd_, EPOLLOUT, weak_from_this()) == 0;
  } catch (const std::exception&) {  // no memory: the next write() or flush() tries again
  }
}

void EventPipe::write(const void* event, std::size_t size, Slot& slot) noexcept {
  const LockGuard lock(mutex_);
  const Owner whose = owner();
  if (whose == Owner::other) return;
  if (whose == Owner::self && line_->empty() && (keep(event, size) || put(event, size))) return;
  Event& own = *slot.event_;
  if (own.times++ == 0) {
    std::memcpy(own.octets.data(), event, size);
    own.size = size;
    line_->splice(line_->end(), slot.home_);
    waiting_.store(true, std::memory_order_relaxed);
  }
  if (!watched_) send_waiting();
}

bool EventPipe::write(const void* event, std::size_t size) noexcept {
  const LockGuard lock(mutex_);
  return add(event, size);
}

bool EventPipe::add(const void* event, std::size_t size) noexcept {
  const Owner whose = owner();
  if (whose == Owner::other) return false;
  if (whose == Owner::self && line_->empty() && put(event, size)) return true;
  try {
    Event& added = line_->emplace_back();
    std::memcpy(added.octets.data(), event, size);
    added.size = size;
    added.times = 1;
  } catch (const std::exception&) {
    return false;
  }
  if (!watched_) send_waiting();
  return true;
}

void EventPipe::leave(Slot& slot) noexcept {
  const LockGuard lock(mutex_);
  if (slot.event_->times > 0) unlink(slot.event_);
  send_waiting();
}

void EventPipe::flush() noexcept {
  if (!waiting_.load(std::memory_order_relaxed)) return;
  const LockGuard lock(mutex_);
  send_waiting();
}

void EventPipe::ready(std::uint32_t) { flush(); }

unsigned EventPipe::take_back(unsigned written, std::size_t size, bool (*mine)(const void* event, void* argument),
                              void* argument) {
  if (written == 0) return 0;
  const LockGuard lock(mutex_);
  for (auto event = line_->begin(); event != line_->end();) {
    const auto next = std::next(event);
    if (mine(event->octets.data(), argument)) {
      written -= event->times;
      unlink(event);
    }
    event = next;
  }
  if (keeps_ && mine(kept_.data(), argument)) {
    keeps_ = false;
    --written;
  }
  // Events of the parent are read, and acknowledged, in the parent.
  if (owner() != Owner::self) return 0;
  // The program has closed our descriptors in a way that the guard (base/descriptor.h) has not seen. Which events it
  // has read is unknown, so no acknowledgements are awaited.
  if (!is_intact()) return 0;
  // Reads everything and writes back what is not removed. The order stays the same, since the lock keeps other writers
  // out.
  const ssize_t n = read_without_waiting(own_read_fd_, taken_.get(), capacity_);
  std::byte* kept = taken_.get();
  for (ssize_t at = 0; at + static_cast<ssize_t>(size) <= n; at += static_cast<ssize_t>(size)) {
    std::byte* event = taken_.get() + at;
    if (mine(event, argument)) {
      --written;
    } else {
      kept = std::copy(event, event + size, kept);
    }
  }
  if (kept != taken_.get()) put(taken_.get(), static_cast<std::size_t>(kept - taken_.get()));
  send_waiting();
  return written;
}

}  // namespace uiw::provider
