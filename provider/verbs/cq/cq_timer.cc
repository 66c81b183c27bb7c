// SPDX-License-Identifier: MIT
#include "provider/verbs/cq/cq_timer.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <new>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "provider/verbs/cq/cq.h"

namespace uiw::provider {

std::shared_ptr<CqTimer> CqTimer::create(Cq& cq) {
  const int fd =
      DescriptorChange().take(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "the moderation of a CQ");
  if (fd < 0) return nullptr;
  auto* const made = new (std::nothrow) CqTimer(cq, fd);
  if (made == nullptr) {
    close_descriptor(fd);
    errno = ENOMEM;
    return nullptr;
  }
  std::shared_ptr<CqTimer> timer(made);
  if (const int error = CmLoop::instance().watch(fd, EPOLLIN, timer); error != 0) {
    errno = error;
    return nullptr;
  }
  return timer;
}

CqTimer::~CqTimer() {
  CmLoop::instance().unwatch(fd_);
  close_descriptor(fd_);
}

void CqTimer::start(unsigned microseconds) {
  itimerspec when{};
  when.it_value.tv_sec = microseconds / 1'000'000;
  when.it_value.tv_nsec = static_cast<long>(microseconds % 1'000'000) * 1000;
  ::timerfd_settime(fd_, 0, &when, nullptr);
}

void CqTimer::forget_queue() {
  const LockGuard lock(mutex_);
  cq_ = nullptr;
}

void CqTimer::ready(std::uint32_t) {
  const LockGuard lock(mutex_);
  std::uint64_t expirations;
  // If there is nothing to read, the timer was started again meanwhile.
  if (::read(fd_, &expirations, sizeof expirations) == sizeof expirations && cq_ != nullptr) cq_->moderation_over();
}

}  // namespace uiw::provider
