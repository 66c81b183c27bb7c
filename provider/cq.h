// SPDX-License-Identifier: MIT
// Completion queues (Verbs draft section 8): a ring of completions, and the notification that a program may ask for.
//
// Any number of threads push and poll. A queue that is full loses the completion and goes into error
// (IBV_EVENT_CQ_ERR); what is in it stays intact.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "provider/event_pipe.h"
#include "provider/export.h"

namespace uiw::provider {

class Context;

class UIW_API Cq {
 public:
  // `handle` is the program's ibv_cq, which events carry. `channel_fd` is -1 for none.
  // Null with errno: EINVAL for a size out of range or an unknown channel, ENOMEM.
  static std::unique_ptr<Cq> create(Context& context, int entries, int channel_fd, ibv_cq* handle);

  int entries() const { return static_cast<int>(capacity_); }

  // ibv_poll_cq. A poll that finds nothing drives the sockets of the context and looks once more.
  int poll(int count, ibv_wc* completions);
  int request_notify(bool solicited_only);

  // One completion. `solicited`: it may wake a waiter who asked for solicited ones only.
  void push(const ibv_wc& completion, bool solicited);

  // EBUSY while queue pairs use it. Returns 0 and how many events the program has taken and must acknowledge.
  int prepare_destroy(unsigned& events_to_acknowledge);

  // Async events about this queue that went into the context's pipe.
  unsigned async_events_reported() const { return async_events_.load(); }

  void add_user() { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() { users_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  Cq(Context& context, unsigned capacity, std::shared_ptr<EventPipe> channel, ibv_cq* handle);
  int take(int count, ibv_wc* completions);
  void notify();

  enum class Armed : std::uint8_t { no, solicited, any };

  Context& context_;
  const std::uint64_t capacity_;
  std::unique_ptr<ibv_wc[]> ring_;
  std::shared_ptr<EventPipe> channel_;
  ibv_cq* const handle_;
  std::atomic<int> users_{0};
  std::atomic<unsigned> async_events_{0};

  alignas(64) std::mutex producer_;
  std::atomic<std::uint64_t> tail_{0};
  bool overrun_ = false;
  std::atomic<Armed> armed_{Armed::no};
  unsigned events_written_ = 0;

  alignas(64) std::mutex consumer_;
  std::atomic<std::uint64_t> head_{0};
};

}  // namespace uiw::provider
