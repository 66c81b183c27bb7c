// SPDX-License-Identifier: MIT
#include "provider/cq.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "provider/context.h"
#include "provider/engine.h"
#include "provider/limits.h"

namespace uiw::provider {

Cq::Cq(Context& context, unsigned capacity, std::shared_ptr<EventPipe> channel, ibv_cq* handle)
    : context_(context),
      capacity_(capacity),
      ring_(std::make_unique_for_overwrite<ibv_wc[]>(capacity)),
      channel_(std::move(channel)),
      handle_(handle) {}

std::unique_ptr<Cq> Cq::create(Context& context, int entries, int channel_fd, ibv_cq* handle) {
  if (entries < 1 || entries > kMaxCqe) {
    errno = EINVAL;
    return nullptr;
  }
  std::shared_ptr<EventPipe> channel;
  if (channel_fd >= 0) {
    channel = completion_channel(channel_fd);
    if (!channel) {
      errno = EINVAL;
      return nullptr;
    }
  }
  return std::unique_ptr<Cq>(
      new Cq(context, std::bit_ceil(static_cast<unsigned>(entries)), std::move(channel), handle));
}

int Cq::take(int count, ibv_wc* completions) {
  if (head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire)) return 0;
  const std::lock_guard lock(consumer_);
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t ready = tail_.load(std::memory_order_acquire) - head;
  const int taken = static_cast<int>(std::min<std::uint64_t>(ready, static_cast<std::uint64_t>(count)));
  for (int i = 0; i < taken; ++i) completions[i] = ring_[(head + static_cast<unsigned>(i)) & (capacity_ - 1)];
  head_.store(head + static_cast<unsigned>(taken), std::memory_order_release);
  return taken;
}

int Cq::poll(int count, ibv_wc* completions) {
  if (count <= 0) return 0;
  if (const int taken = take(count, completions); taken > 0) return taken;
  context_.engine().drive();
  return take(count, completions);
}

int Cq::request_notify(bool solicited_only) {
  {
    const std::lock_guard lock(producer_);
    // A request for any completion stands until it is met, whatever is asked for later.
    if (armed_.load(std::memory_order_relaxed) != Armed::any) {
      armed_.store(solicited_only ? Armed::solicited : Armed::any, std::memory_order_relaxed);
    }
  }
  context_.engine().program_may_sleep();
  return 0;
}

void Cq::push(const ibv_wc& completion, bool solicited) {
  bool report_overrun = false;
  {
    const std::lock_guard lock(producer_);
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == capacity_) {
      report_overrun = !overrun_;
      overrun_ = true;
    } else {
      ring_[tail & (capacity_ - 1)] = completion;
      tail_.store(tail + 1, std::memory_order_release);
      const Armed armed = armed_.load(std::memory_order_relaxed);
      // Failures count as solicited.
      if (armed == Armed::any || (armed == Armed::solicited && (solicited || completion.status != IBV_WC_SUCCESS))) {
        notify();
      }
    }
  }
  if (report_overrun) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = handle_;
    if (context_.report(event)) async_events_.fetch_add(1);
  }
}

void Cq::notify() {
  if (!channel_) {
    armed_.store(Armed::no, std::memory_order_relaxed);
    return;
  }
  ib_uverbs_comp_event_desc event{};
  event.cq_handle = reinterpret_cast<std::uintptr_t>(handle_);
  // Stays armed where the pipe is full: the next completion tries again.
  if (channel_->write(&event, sizeof event)) {
    armed_.store(Armed::no, std::memory_order_relaxed);
    ++events_written_;
  }
}

int Cq::prepare_destroy(unsigned& events_to_acknowledge) {
  if (users_.load(std::memory_order_relaxed) != 0) return EBUSY;
  events_to_acknowledge = 0;
  if (!channel_) return 0;
  const std::lock_guard lock(producer_);
  armed_.store(Armed::no, std::memory_order_relaxed);
  const unsigned unread = channel_->purge(
      sizeof(ib_uverbs_comp_event_desc),
      [](const void* event, void* handle) {
        return static_cast<const ib_uverbs_comp_event_desc*>(event)->cq_handle ==
               reinterpret_cast<std::uintptr_t>(handle);
      },
      handle_);
  events_written_ -= unread;
  events_to_acknowledge = events_written_;
  return 0;
}

}  // namespace uiw::provider
