// SPDX-License-Identifier: MIT
// The period of a completion queue's moderation: a timer on the thread "uiw-cm". One for each queue that asks for it.
#pragma once

#include <memory>
#include <mutex>

#include "provider/process/cm_loop.h"
#include "provider/process/mutex.h"

namespace uiw::provider {

class Cq;

class CqTimer final : public CmLoop::Handler, public std::enable_shared_from_this<CqTimer> {
 public:
  // Null with errno.
  static std::shared_ptr<CqTimer> create(Cq& cq);
  ~CqTimer() override;
  CqTimer(const CqTimer&) = delete;
  CqTimer& operator=(const CqTimer&) = delete;

  // Calls moderation_over() once, so much later; what was started before does not count any more. Any thread.
  void start(unsigned microseconds);
  // The queue goes away: it is called no more once this returns.
  void forget_queue();

  void ready(std::uint32_t epoll_events) override;

 private:
  CqTimer(Cq& cq, int fd) : fd_(fd), cq_(&cq) {}
  const int fd_;
  Mutex mutex_;  // held around the call; taken before the locks of the queue
  Cq* cq_;
};

}  // namespace uiw::provider
