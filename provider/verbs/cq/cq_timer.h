// SPDX-License-Identifier: MIT
// The timer of a completion queue, for its moderation period and for injected faults that delay completions. It runs on
// the library's thread "uiw-cm".
#pragma once

#include <memory>

#include "base/mutex.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

class Cq;

class CqTimer final : public CmLoop::Handler, public std::enable_shared_from_this<CqTimer> {
 public:
  // Null with errno. `cq` must remain live until forget_queue() has returned.
  static std::shared_ptr<CqTimer> create(Cq& cq);
  ~CqTimer() override;
  CqTimer(const CqTimer&) = delete;
  CqTimer& operator=(const CqTimer&) = delete;

  // Calls Cq::moderation_over() once, after this time, and replaces an earlier start(). May be called on any thread.
  void start(unsigned microseconds);
  // The queue is being destroyed: when this function has returned, the timer does not call the queue any more.
  void forget_queue();

  void ready(std::uint32_t epoll_events) override;

 private:
  CqTimer(Cq& cq, int fd) : fd_(fd), cq_(&cq) {}
  const int fd_;
  Mutex mutex_;  // held while the queue is called, so taken before the queue's locks
  Cq* cq_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
