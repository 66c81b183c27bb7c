// SPDX-License-Identifier: MIT
// Completion queues (Verbs draft sections 5.3 and 8.2.5): a ring of completions, and the notification that a program
// may ask for.
//
// Any number of threads push, poll and resize. A queue that is full loses the completion and goes into error
// (IBV_EVENT_CQ_ERR, once); what is in it stays intact, and the queue pairs that complete to it go into error too.
//
// Locks: the consumer's, then the producer's. The consumer's is held from begin_poll() to end_poll().
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "provider/export.h"
#include "provider/process/mutex.h"
#include "provider/verbs/event_pipe.h"

namespace uiw::provider {

class Context;
class CqTimer;

class UIW_API Cq {
 public:
  struct Options {
    bool single_threaded = false;  // the program polls from one thread at a time and needs no lock
    bool ignore_overrun = false;   // what does not fit is lost, and nobody is told
    bool raw_time = false;         // completions carry the device's clock
    bool wall_time = false;        // and the time of day
  };
  // When a completion was pushed; 0 where it was not asked for.
  struct Stamp {
    std::uint64_t raw = 0;
    std::uint64_t wall_ns = 0;
  };

  // `handle` is the program's ibv_cq, which events carry. `channel_fd` is -1 for none.
  // Null with errno: EINVAL for a size out of range or an unknown channel, ENOMEM, EAGAIN
  // where a channel needs a thread that cannot be had.
  static std::unique_ptr<Cq> create(Context& context, int entries, int channel_fd, ibv_cq* handle, Options options);
  static std::unique_ptr<Cq> create(Context& context, int entries, int channel_fd, ibv_cq* handle) {
    return create(context, entries, channel_fd, handle, Options());
  }
  ~Cq();

  int entries() const { return static_cast<int>(capacity_.load(std::memory_order_relaxed)); }

  // ibv_poll_cq. A poll that finds nothing drives the sockets of the context and looks once more.
  int poll(int count, ibv_wc* completions);

  // ibv_start_poll, ibv_next_poll, ibv_end_poll. False where there is none; after a begin_poll() that was true, and
  // only then, comes an end_poll(). Between the two nobody else gets a completion.
  bool begin_poll(ibv_wc& completion, Stamp& stamp);
  bool next_poll(ibv_wc& completion, Stamp& stamp);
  void end_poll();

  int request_notify(bool solicited_only);

  // ibv_resize_cq: 0, EINVAL for a size out of range or less than what is in the queue, ENOMEM. On failure the queue is
  // as it was.
  int resize(int entries);

  // ibv_modify_cq: where an event is asked for, it comes after `count` completions or `period_us` after the first of
  // them, whichever is sooner. Where one is 0 each completion counts by itself. Returns 0 or an errno (EMFILE...).
  int moderate(unsigned count, unsigned period_us);

  // One completion. `solicited`: it may wake a waiter who asked for solicited ones only.
  void push(const ibv_wc& completion, bool solicited);

  // Those of this queue pair that nobody has polled go: it is destroyed, or begins anew, and what is polled from here
  // on would be taken for the new one's (Verbs draft section 6.1.4: they may become inaccessible). Nothing of it is
  // being pushed meanwhile.
  void forget(std::uint32_t qp_number);

  // Between the two completions are there, but wake nobody. They may be nested, and called by several threads. Whoever
  // sleeps shall find the answers to the peer ahead of what it sends next: an adapter acknowledges a message before its
  // program can know of it.
  void suppress_notifications();
  void release_notifications();

  // As that of Qp: the copy that a child has is not destroyed, but left where it is.
  bool inherited() const;

  // EBUSY while queue pairs use it. Returns 0 and how many events the program has taken and must acknowledge.
  int prepare_destroy(unsigned& events_to_acknowledge);

  // Nothing to be polled for.
  bool empty() const { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire); }

  // Completions that were polled.
  std::uint64_t taken() const { return head_.load(std::memory_order_relaxed); }

  // Async events about this queue that went into the context's pipe.
  unsigned async_events_reported() const { return async_events_.load(); }

  void add_user() { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() { users_.fetch_sub(1, std::memory_order_relaxed); }

  // The period of moderation is over. Called by its timer.
  void moderation_over();

 private:
  Cq(Context& context, unsigned capacity, std::shared_ptr<EventPipe> channel, ibv_cq* handle, Options options);
  int take(int count, ibv_wc* completions, Stamp* stamps);
  std::unique_lock<Mutex> lock_consumer();
  void notify_soon(bool at_once);
  void count_suppressed();
  void disarm();
  void notify();
  void overrun(bool first);

  enum class Armed : std::uint8_t { no, solicited, any };

  const std::shared_ptr<Context> context_;
  const unsigned generation_;
  const Options options_;
  // Changed under both locks.
  std::atomic<std::uint64_t> capacity_;
  std::unique_ptr<ibv_wc[]> ring_;
  std::unique_ptr<Stamp[]> stamps_;  // of the same size, where they are asked for

  std::shared_ptr<EventPipe> channel_;
  EventPipe::Place place_;  // of events that find it full
  ibv_cq* const handle_;
  std::atomic<int> users_{0};
  std::atomic<unsigned> async_events_{0};
  const std::shared_ptr<std::atomic<bool>> failing_;  // queue pairs are about to be told; may outlive this object
  std::shared_ptr<CqTimer> timer_;                    // made by the first moderate()

  alignas(64) Mutex producer_;
  std::atomic<std::uint64_t> tail_{0};
  bool overrun_ = false;
  std::atomic<Armed> armed_{Armed::no};
  unsigned events_written_ = 0;
  unsigned moderation_count_ = 0;         // 0 or 1: none
  unsigned moderation_period_ = 0;        // microseconds
  std::atomic<unsigned> suppressors_{0};  // suppress_notifications() without release_notifications(); without the lock
  std::atomic<unsigned> suppressed_{
      0};                            // completions that an event was asked for, not in moderated_ yet; written with it
  bool suppressed_failure_ = false;  // one of them has failed
  unsigned moderated_ = 0;           // completions since the event was asked for

  alignas(64) Mutex consumer_;
  std::atomic<std::uint64_t> head_{0};
  std::atomic<pthread_t> begun_by_{};  // whose begin_poll() holds the lock
};

}  // namespace uiw::provider
