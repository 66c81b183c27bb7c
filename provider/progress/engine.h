// SPDX-License-Identifier: MIT
// The engine of a context decides which thread drives the sockets of its queue pairs, that is, sends and receives on
// them. A poll of the program that finds nothing drives them itself, so no other thread has to be woken. While the
// program does not poll, the thread "uiw-progress" waits for events with epoll.
//
// This thread starts when the first queue pair of the context connects, goes to RTR without rdma_cm, or is made for
// datagrams. While the program polls, or posts without a pause, the thread sleeps on a timer and not on the sockets, so
// that octets that arrive do not wake it. Each time the timer expires, the thread checks whether the program goes on;
// it drives again once the program has stopped, or asks for an event. A program that spins on memory neither polls nor
// posts, so the thread drives for it. If events arrive close together, the thread looks for the next one for a while
// before it sleeps (BusyWait).
//
// If exactly one thread of the program waits for an event in a call that the library sees, that thread drives the
// sockets (Waiters). Meanwhile "uiw-progress" sleeps on its timer, as while the program polls, and once the wait is
// long it sleeps without a timer.
//
// If "uiw-progress" no longer gets to sleep, and the setting allows more threads (progress_threads()), other threads
// help it as long as that lasts (ProgressHelpers, by the rule HelpNeeded). They take events from the same epoll set,
// one at a time, and stop when nothing comes or the program polls; then "uiw-progress" is alone again.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "provider/process/shown/port_counters.h"
#include "provider/progress/activity.h"
#include "provider/progress/busy_wait.h"
#include "provider/progress/channel_sets.h"
#include "provider/progress/clock.h"
#include "provider/progress/driven_list.h"
#include "provider/progress/idle_memory.h"
#include "provider/progress/progress_helpers.h"
#include "provider/progress/send_scheduler.h"

namespace uiw::provider {

class Engine {
 public:
  // `find` returns a queue pair of this process by its number. `counters` are those of the device. `threads`: how many
  // progress threads this context may have, at least 1 (progress_threads()).
  explicit Engine(FindDriven find, PortCounters& counters = port_counters(""), unsigned threads = 1)
      : find_(find), counters_(counters), helpers_(threads - 1, sets_, driven_, find, activity_) {}
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  PortCounters& counters() const { return counters_; }
  // Stops for good: the threads end, and the engine no longer sends or receives.
  void stop();

  // Starts the thread "uiw-progress" if it does not run yet. Returns 0; EAGAIN if the system allows no more threads;
  // ENODEV after stop(); ENOMEM, EMFILE and similar errors.
  int start();
  // Sends and receives for this queue pair from now on; `fd` is its socket. Returns 0 or an errno. `qp` must remain
  // live until the end of a grace period that begins after remove().
  int add(Driven& qp, int fd);
  // Stops calling progress() of the queue pair; a call that is running ends before the next grace period does. (Not
  // needed if only the stream ends: its socket is closed, and progress() then finds nothing to do.)
  void remove(Driven& qp);
  // The descriptor by which peers on this host wake this engine's threads (Doorbell). The caller passes it on to the
  // peers; the engine goes on owning it. -1 if it could not be made, or if a peer has shut it down.
  int doorbell();
  // From now on the octets of this queue pair go through shared memory; its peer has the descriptor of doorbell().
  // Returns the number by which the peer is to ring for this queue pair, or kNoBell if no number is left or there is no
  // such queue pair. To be called inside a ReadSection.
  DoorbellPage::Bell begin_sharing(std::uint32_t qp_number);
  // Stops waiting for events of this socket.
  void release(int fd);
  // Waits for events of this socket again; epoll reports an event at once if the socket can be read or written now.
  // False if the system has no memory for that, or the user's limit of descriptors in epoll sets is reached.
  bool watch_again(std::uint32_t qp_number, int fd);
  // Makes some thread call the queue pair's progress() soon, though nothing has arrived. The caller may hold any lock
  // of the queue pair.
  void request_turn(std::uint32_t qp_number);
  // Called by a thread that has no memory for buffers: does what request_turn() does, and wakes the thread
  // "uiw-progress" if that thread is parked, since it always has buffers.
  void take_over(std::uint32_t qp_number);

  // Called when the program has polled and found nothing: sends and receives for the queue pairs, unless another thread
  // of the program is doing so.
  void drive() { look(true); }
  // For a program that posts without a pause, or has posted work that the peer is to answer: begin_posting() is called
  // before the post is sent, end_posting() afterwards. For a deferred post note_post() takes their place. If no thread
  // of the program has read what arrives for a while (Activity::kPostingNs), end_posting() and note_post() do so and
  // return true. If they did not, each answer would wake the thread "uiw-progress", which needs a processor as well.
  void begin_posting() { activity_.enter(); }
  bool end_posting(std::uint64_t now);
  bool note_post(std::uint64_t now);
  const Activity& activity() const { return activity_; }
  // A poll has read so many octets that this has taken microseconds. It still counts as a poll of the present moment.
  void note_long_look() { activity_.note_look(raw_clock(), false); }
  // Whether there are so many queue pairs that a poll looks at doorbells and epoll instead of at each queue pair.
  bool drives_many() const { return driven_.many(); }
  // What the program does now, for SendScheduler. `watched`: the thread "uiw-progress" is parked (it sleeps on its
  // timer), and soon finds out if the program has stopped polling and posting.
  SendScheduler::Program program() const {
    return {activity_.event_awaited(), parked_.load(std::memory_order_relaxed)};
  }
  // The queue pair has deferred sends from now on (`deferred`), or has none any more. To be called inside a
  // ReadSection.
  void note_deferred(std::uint32_t qp_number, bool deferred);
  // Posts of a queue pair begin to wait: the thread "uiw-progress" sends them when they are overdue, if the program has
  // not sent them by then.
  void watch_posts();

  // The program has asked a completion queue for an event, and may block until event_given(). The two calls may come in
  // either order.
  void event_asked_for();
  void event_given() { activity_.event_given(); }
  // How wait() has ended.
  enum class Waited : std::uint8_t {
    done,
    late,         // the deadline has passed
    interrupted,  // a signal handler has run
    not_here,     // the engine is not running, or a descriptor is closed: the program's own call has to wait
  };
  class Awaited {
   public:
    static constexpr std::uint64_t kNever = ~std::uint64_t{0};
    // The descriptors for ppoll(). The first entry is for the engine; by this entry the preload library, which replaces
    // ppoll(), recognizes the engine's own calls. The other entries are those of the program, and done() says whether
    // they end the wait.
    explicit Awaited(std::span<pollfd> all) : descriptors(all) {}
    // Called before the thread sends and receives. done() is called before the thread sleeps again, and signals are
    // blocked in between.
    virtual void begin_driving() {}
    // Whether the program has what it waits for. Does not wait, and is called from time to time, each time after
    // ppoll() has filled in `descriptors`.
    virtual bool done() = 0;

    const std::span<pollfd> descriptors;
    std::uint64_t deadline = kNever;   // by raw_clock()
    int channel = ChannelSets::kNone;  // the number of the channel for which the call waits
    const sigset_t* mask = nullptr;    // signals blocked during the wait; null: those that the thread blocks

   protected:
    ~Awaited() = default;
  };
  // Waits on the calling thread until the program has what it waits for, or the wait ends otherwise (Waited). Meanwhile
  // this thread sends and receives, unless that is left to other threads (Waiters). A cancellation point.
  Waited wait(Awaited& awaited);
  // Whether a thread that is about to wait for the channel with this number will send and receive meanwhile, as far as
  // can be told now. False while there are deferred sends.
  bool wait_will_drive(int channel) const {
    if (deferring_.load(std::memory_order_relaxed) > 0) return false;
    return sets_.has(channel) || !activity_.waiters().are_several(raw_clock());
  }

  // Called in the child of a fork, where the thread "uiw-progress" does not exist.
  void after_fork_in_child();

 private:
  static constexpr int kMostReady = 32;  // the most events that one call on a thread of the program handles

  int prepare() UIW_REQUIRES(mutex_);
  void look(bool polls);
  int drive_ready(bool& for_thread) UIW_REQUIRES(drive_mutex_);
  int drive_events(const epoll_event* events, int count);
  bool drive_set(ChannelSets::Set& set);
  void fill_sets(std::uint64_t sets);
  bool asks_kernel() UIW_REQUIRES(drive_mutex_);
  bool yields(std::uint64_t now) UIW_REQUIRES(drive_mutex_);
  int await(epoll_event* events, int most, int patience);
  void run();
  void park();
  void sweep();
  void send_waiting_posts(bool polls);
  // Called on the thread "uiw-progress": calls visitor(Driven&) for each queue pair for which wanted(qp) is true.
  template <typename Wanted, typename Visitor>
  void visit(Wanted wanted, Visitor visitor);
  bool send_overdue_posts();
  void give_back_idle_memory(std::uint64_t now);
  bool tick(std::chrono::microseconds& next);
  void send_all_deferred(std::size_t most = ~std::size_t{0});
  void unpark();
  bool wake();
  void begin_anew();
  void join_or_leave();
  template <typename OneTurn>
  Waited take_turns(Awaited& awaited, const sigset_t* mask, OneTurn turn);
  Waited wait_and_drive(Awaited& awaited);
  Waited wait_beside(Awaited& awaited, ChannelSets::Set* set);
  enum class Turn : std::uint8_t { driven, not_now, broken };
  Turn drive_waiting();
  void hand_over();
  void send_deferred_at_once();

  const FindDriven find_;
  PortCounters& counters_;
  std::atomic<int> epoll_{-1};
  ChannelSets sets_{epoll_};
  std::atomic<std::uint64_t> new_sets_{0};  // a bit for each set of `sets_` that fill_sets() has not filled yet
  int wake_ = -1;                           // wakes the thread "uiw-progress"
  int turn_wake_ = -1;                      // wakes one of the threads that sleep, after request_turn()
  Mutex drive_mutex_;  // held by the thread of the program that sends and receives; taken before locks of queue pairs
  Mutex mutex_;        // held to start or stop the thread; taken after queue pairs' locks, before that of driven_
  DrivenList driven_;
  unsigned empty_rounds_ UIW_GUARDED_BY(drive_mutex_) = 0;  // polls in a row that found nothing
  unsigned quiet_asks_ UIW_GUARDED_BY(drive_mutex_) = 0;    // polls in a row whose epoll_wait() found nothing
  unsigned looks_ UIW_GUARDED_BY(drive_mutex_) = 0;         // polls made while quiet_asks_ is at least kQuietAsks
  std::atomic<bool> waiter_asleep_{false};                  // the thread in wait_and_drive() sleeps
  YieldPauses yield_pauses_ UIW_GUARDED_BY(drive_mutex_);   // when polls that find nothing do not yield
  // The time of the kYieldAfter-th poll in a row that found nothing.
  std::uint64_t in_vain_since_ UIW_GUARDED_BY(drive_mutex_) = 0;
  unsigned busy_looks_ UIW_GUARDED_BY(drive_mutex_) = 0;  // polls that found work since sends were deferred

  std::thread thread_;
  std::atomic<bool> started_{false}, stop_{false};

  Activity activity_;
  ProgressHelpers helpers_;
  std::atomic<unsigned> deferring_{0};           // number of queue pairs with deferred sends
  std::atomic<unsigned> watched_{0};             // how often posts began to wait; only grows
  alignas(64) std::atomic<bool> parked_{false};  // the thread "uiw-progress" sleeps on its timer
  std::atomic<bool> parked_for_waiters_{false};  // parked for a thread in wait(); epoll still watches the sockets
  std::atomic<bool> hand_over_{false};           // the thread "uiw-progress" is to park, since the program waits
  std::atomic<bool> waits_long_{false};          // the thread "uiw-progress" needs no timer while the program waits
  std::atomic<bool> watching_{false};            // the timer of "uiw-progress" is fast enough for posts that wait
  std::mutex park_mutex_;
  std::condition_variable park_condition_;
  bool unpark_ = false, hurry_ = false;
  std::atomic<bool> shares_{false};  // begin_sharing() has been called
  BusyWait program_wait_;            // the busy wait of the thread in wait_and_drive()
  // Used by the thread "uiw-progress" only.
  unsigned watched_seen_ = 0;
  IdleMemory idle_memory_;
  BusyWait busy_wait_;
  std::vector<std::uint32_t> visited_;
};

}  // namespace uiw::provider
