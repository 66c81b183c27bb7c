// SPDX-License-Identifier: MIT
// Completion queues (Verbs draft sections 5.3 and 8.2.5): a ring of completions, and the event that a program may
// request for the next one.
//
// Any number of threads may push, poll and resize (see Options::single_threaded). A completion that is pushed to a full
// queue is lost. Unless Options::ignore_overrun is set, IBV_EVENT_CQ_ERR is then reported once, and the queue pairs
// that complete to the queue enter ERR; the completions in the queue stay intact.
//
// Locks: the consumer's lock, then the producer's. The consumer's lock is held from begin_poll() to end_poll(). A Cq
// must remain live as long as queue pairs use it (add_user()).
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "provider/export.h"
#include "provider/process/shown/listed.h"
#include "provider/progress/channel_sets.h"
#include "provider/verbs/cq/queue_ring.h"
#include "provider/verbs/cq/suppressed_notifications.h"
#include "provider/verbs/event_pipe.h"

namespace uiw::provider {

class Context;
class CqTimer;

class Cq {
 public:
  struct Options {
    bool single_threaded = false;  // the program polls from one thread at a time and needs no lock
    bool ignore_overrun = false;   // completions that do not fit are lost without a report
    bool raw_time = false;         // completions carry a time of the device's clock
    bool wall_time = false;        // completions carry the time of day
    ProgramAllocator memory{};     // where the ring's memory comes from; by default the heap
  };
  // When a completion was pushed; a time that the program has not requested is 0.
  struct Stamp {
    std::uint64_t raw = 0;
    std::uint64_t wall_ns = 0;
  };

  // `handle` is the program's ibv_cq, which events carry; `channel_fd` is the completion channel, or -1. Null with
  // errno: EINVAL for a size out of range or an unknown channel; ENOMEM; EAGAIN if the thread that a channel needs
  // cannot be created; EMFILE and similar errors. Throws std::bad_alloc.
  UIW_API static std::unique_ptr<Cq> create(Context& context, int entries, int channel_fd, ibv_cq* handle,
                                            Options options);
  static std::unique_ptr<Cq> create(Context& context, int entries, int channel_fd, ibv_cq* handle) {
    return create(context, entries, channel_fd, handle, Options());
  }
  UIW_API ~Cq();

  int entries() const { return static_cast<int>(capacity_.load(std::memory_order_relaxed)); }

  // ibv_poll_cq. If there is no completion, sends and receives for the context's queue pairs (Engine::drive), unless
  // the program is about to wait for an event (kPollsOfWait), and then looks once more.
  UIW_API int poll(int count, ibv_wc* completions);

  // ibv_start_poll, ibv_next_poll, ibv_end_poll. begin_poll() and next_poll() return false if there is no completion.
  // end_poll() is called after a begin_poll() that has returned true, and only then. Until end_poll() no other thread
  // gets a completion, unless Options::single_threaded is set.
  UIW_API bool begin_poll(ibv_wc& completion, Stamp& stamp);
  UIW_API bool next_poll(ibv_wc& completion, Stamp& stamp);
  UIW_API void end_poll();

  UIW_API int request_notify(bool solicited_only);

  // ibv_resize_cq: 0; EINVAL for a size out of range or below the number of completions in the queue; ENOMEM. After an
  // error the queue is as before.
  UIW_API int resize(int entries);

  // ibv_modify_cq: an event that the program has requested comes after `count` completions or `period_us` after the
  // first of them, whichever is earlier. If `count` is 0 or 1, or `period_us` is 0, or for a completion in error, the
  // event comes at once. Returns 0 or an errno (EMFILE and others).
  UIW_API int moderate(unsigned count, unsigned period_us);

  // Adds a completion. `solicited`: the completion also wakes a program that waits for solicited completions only.
  void push(const ibv_wc& completion, bool solicited);

  // Drops the completions of this queue pair that were not polled (Verbs draft section 6.1.4 allows this). The queue
  // pair is being destroyed or reset. A program that polled such a completion later would take it for one of the next
  // connection, or of the next queue pair with this number. No completion of this queue pair may be pushed meanwhile.
  void forget(std::uint32_t qp_number);

  // True in the child of a fork if the parent created the queue. The child's copy is left as it is and not destroyed.
  UIW_API bool inherited() const;

  // EBUSY while queue pairs use the queue. Otherwise 0, and the number of events that the program has read and must
  // acknowledge.
  UIW_API int prepare_destroy(unsigned& events_to_acknowledge);

  // Whether there is nothing to poll.
  bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire) ||
           (delayed_until_.load(std::memory_order_relaxed) != 0 && is_delayed());
  }

  // For checks of what the program does (provider/check/).
  struct View {
    std::uint64_t pushed = 0, taken = 0;
    bool requested = false, solicited_only = false;  // the event that is to be given next
    bool gave_events = false;
  };
  UIW_API View view();

  // The number of completions that were polled, or dropped by forget(), so far.
  std::uint64_t taken() const { return head_.load(std::memory_order_relaxed); }

  // The number of async events about this queue that were written to the context's pipe.
  unsigned async_events_reported() const { return async_events_.load(); }

  // The number of the completion channel, or ChannelSets::kNone.
  int channel_number() const { return channel_number_; }
  const Context& context() const { return *context_; }
  std::uint32_t listed_number() const { return listed_.number(); }
  void hide() { listed_.leave(); }  // from what other processes are shown
  int users() const { return users_.load(std::memory_order_relaxed); }
  void add_user() { users_.fetch_add(1, std::memory_order_relaxed); }
  void remove_user() { users_.fetch_sub(1, std::memory_order_relaxed); }

  // Called by the timer at the end of the moderation period, or of the time for which a fault delays completions.
  void moderation_over();

 private:
  friend class SuppressedNotifications;

  // Holds the consumer's lock if `needed`. The lock is not needed if the program uses the queue in one thread only, or
  // if this thread holds the lock already: between begin_poll() and end_poll() the program may destroy or reset a queue
  // pair, or resize the queue.
  class UIW_SCOPED_CAPABILITY ConsumerLock {
   public:
    ConsumerLock(Cq& cq, bool needed) UIW_ACQUIRE(cq.consumer_) : cq_(cq), needed_(needed) {
      if (needed_) cq_.consumer_.lock();
    }
    ~ConsumerLock() UIW_RELEASE() {
      if (needed_) cq_.consumer_.unlock();
    }
    ConsumerLock(const ConsumerLock&) = delete;
    ConsumerLock& operator=(const ConsumerLock&) = delete;

   private:
    Cq& cq_;
    const bool needed_;
  };
  struct Rings {
    Ring<ibv_wc> completions;
    Ring<Stamp> stamps;  // one for each completion, if the program has requested time stamps; else null
    bool complete = false;
  };
  static Rings make_rings(const Options& options, std::uint64_t capacity);
  Cq(Context& context, unsigned capacity, Rings rings, std::shared_ptr<EventPipe> channel, ibv_cq* handle,
     Options options);
  int take(int count, ibv_wc* completions, Stamp* stamps) UIW_REQUIRES(consumer_);
  void look();
  bool begun_here() const;
  void notify_soon(bool at_once) UIW_REQUIRES(producer_);
  void count_completions(unsigned completions, bool at_once) UIW_REQUIRES(producer_);
  void count_suppressed(const SuppressedNotifications& suppressed);
  void disarm() UIW_REQUIRES(producer_);
  bool is_delayed() const;
  void delay(unsigned milliseconds) UIW_REQUIRES(producer_);
  void notify() UIW_REQUIRES(producer_);
  void overrun(bool first);

  // A program that waits for events polls in vain twice: after its request for an event, and after it has polled the
  // completions of the event. These polls need not look at the sockets if the thread will read from them itself while
  // it waits (Engine::wait_will_drive).
  static constexpr unsigned kPollsOfWait = 2;

  enum class Armed : std::uint8_t { no, solicited, any };

  const std::shared_ptr<Context> context_;
  const unsigned generation_;
  const Options options_;
  // The next three members change only with the consumer's and the producer's lock held.
  std::atomic<std::uint64_t> capacity_;
  Ring<ibv_wc> ring_;
  Ring<Stamp> stamps_;

  std::shared_ptr<EventPipe> channel_;
  int channel_number_ = ChannelSets::kNone;
  EventPipe::Slot slot_;  // where events wait while the channel is full
  ibv_cq* const handle_;
  // For an injected fault that delays completions: nothing can be polled before this time (raw_clock()). Else 0.
  std::atomic<std::uint64_t> delayed_until_{0};
  std::atomic<int> users_{0};
  std::atomic<unsigned> async_events_{0};
  // True while a task is queued that reports the overrun to queue pairs. The task shares the flag, and may outlive this
  // object.
  const std::shared_ptr<std::atomic<bool>> failing_;
  std::shared_ptr<CqTimer> timer_;  // created by the first moderate(), or by create() if faults delay completions

  alignas(64) Mutex producer_;
  std::atomic<std::uint64_t> tail_{0};
  bool overrun_ UIW_GUARDED_BY(producer_) = false;
  std::atomic<Armed> armed_{Armed::no};
  unsigned events_written_ UIW_GUARDED_BY(producer_) = 0;
  unsigned moderation_count_ UIW_GUARDED_BY(producer_) = 0;        // 0: no moderation
  unsigned moderation_period_ UIW_GUARDED_BY(producer_) = 0;       // microseconds
  std::uint64_t requests_answered_ UIW_GUARDED_BY(producer_) = 0;  // how many requests for an event have ended
  unsigned moderated_ UIW_GUARDED_BY(producer_) = 0;               // completions since the event was requested

  alignas(64) Mutex consumer_;
  std::atomic<std::uint64_t> head_{0};
  std::atomic<pthread_t> begun_by_{};       // the thread whose begin_poll() holds the consumer's lock
  std::atomic<unsigned> polls_of_wait_{0};  // kPollsOfWait after a request for an event; look() counts down
  Listed<Cq> listed_{*this};
};

}  // namespace uiw::provider
