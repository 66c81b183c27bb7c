// SPDX-License-Identifier: MIT
// A program that polls waits for the eventfd, whose value (its tokens) is the number of queued events. A GET_EVENT that
// blocks waits on a semaphore of its own instead, since a read of the eventfd would take the token of an event that
// DESTROY_ID may then remove from the queue.
#include "kernel-abi/rdma_cm/cm_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/event_counter.h"
#include "base/mutex.h"
#include "kernel-abi/caller/cancellation.h"
#include "kernel-abi/rdma_cm/registry_lock.h"

namespace uiw::kernel_abi {

int CmChannel::create(int flags, std::shared_ptr<CmChannel>& channel, int& fd) {
  const int wanted =
      EFD_SEMAPHORE | ((flags & O_CLOEXEC) != 0 ? EFD_CLOEXEC : 0) | ((flags & O_NONBLOCK) != 0 ? EFD_NONBLOCK : 0);
  const int program = ::eventfd(0, wanted);
  const int own =
      DescriptorChange().take(program < 0 ? -1 : ::fcntl(program, F_DUPFD_CLOEXEC, 3), "a channel of rdma_cm events");
  if (own < 0) {
    const int error = errno;
    if (program >= 0) ::close(program);
    return error;
  }
  std::unique_ptr<CmChannel> made(new (std::nothrow) CmChannel(own));
  if (made == nullptr) {
    close_descriptor(own);
    ::close(program);
    return ENOMEM;
  }
  try {
    channel = std::move(made);
  } catch (const std::bad_alloc&) {
    ::close(program);
    return ENOMEM;
  }
  fd = program;
  return 0;
}

CmChannel::~CmChannel() {
  if (fd_ >= 0) close_descriptor(fd_);
}

void CmChannel::add_token() {
  if (!inherited_) add_event(fd_);
}

// Called after an event was removed from the queue: takes the event's token, which is a count of 1, from the channel's
// eventfd, unless the program has taken it by reading the eventfd itself.
void CmChannel::remove_token() {
  if (!inherited_) take_token();
}

// Takes a token if there is one; returns false if there is none. Polls before it reads, since the program may have read
// the token by mistake, and the read would then block: the channel's descriptor is a duplicate of the program's
// descriptor, which may be without O_NONBLOCK.
bool CmChannel::take_token() {
  if (events_of(fd_, POLLIN) == 0) return false;
  std::uint64_t token;
  return ::read(fd_, &token, sizeof token) == sizeof token;
}

void CmChannel::wake() {
  for (Waiter* waiter : waiters_) ::sem_post(&waiter->woken_);
}

void CmChannel::post(CmEvents& from) noexcept {
  if (closed_) return from.pop_front();
  events_.splice(events_.end(), from, from.begin());
  add_token();
  wake();
}

CmEvent CmChannel::take_front() {
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  remove_token();
  return event;
}

CmEvents CmChannel::take_matching(const std::function<bool(const CmEvent&)>& matches) {
  CmEvents taken;
  for (auto event = events_.begin(); event != events_.end();) {
    const auto next = std::next(event);
    if (matches(*event)) {
      taken.splice(taken.end(), events_, event);
      remove_token();
    }
    event = next;
  }
  return taken;
}

void CmChannel::close() {
  was_non_blocking_ = non_blocking();
  closed_ = true;
  close_descriptor(std::exchange(fd_, -1));
}

CmChannel::Waiter::Waiter(CmChannel& channel) : channel_(channel) {
  ::sem_init(&woken_, 0, 0);
  channel_.waiters_.insert(this);
}

CmChannel::Waiter::~Waiter() {
  const LockGuard lock(g_registry_lock);
  channel_.waiters_.erase(this);
  ::sem_destroy(&woken_);
}

int CmChannel::Waiter::wait() {
  const CancellationAsBefore cancellation;
  return ::sem_wait(&woken_) == 0 ? 0 : errno;
}

bool CmChannel::non_blocking() const {
  if (closed_) return was_non_blocking_;
  const int flags = ::fcntl(fd_, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

// In the child of a fork: drops the waiters, which were threads of the parent.
void CmChannel::inherit() {
  inherited_ = true;
  waiters_.clear();
  fd_ = DescriptorChange().guard(fd_);
}

void CmChannel::take_over() {
  if (closed_) return;
  inherited_ = false;
  drop_foreign_tokens();
  for (std::size_t left = events_.size(); left > 0; --left) add_token();
}

void CmChannel::announce_caller() {
  if (inherited_ && !closed_ && prospect() == provider::Owner::self) add_event(fd_);
}

void CmChannel::drop_foreign_tokens() {
  if (inherited_ || closed_) return;
  while (take_token()) {
  }
}

}  // namespace uiw::kernel_abi
