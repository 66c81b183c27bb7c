// SPDX-License-Identifier: MIT
// What moves bytes: a program's empty poll drives the sockets of its context itself (no thread hop, no wake-up); where
// the program does not poll, a thread does, on epoll.
//
// The thread, "uiw-progress", starts with the first queue pair that connects. While the program polls, or posts without
// a pause, the thread sleeps on a timer and not on the sockets, so that arrivals do not wake it; it looks after each
// tick whether that has stopped, and takes over then; at once where the program asks for an event. A program that spins
// on memory does neither, so the thread is awake for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "provider/process/mutex.h"
#include "provider/progress/activity.h"
#include "provider/progress/driven.h"
#include "provider/progress/send_scheduler.h"

namespace uiw::provider {

class Engine {
  static constexpr std::size_t kDirect = 8;  // up to so many sockets are tried one by one, more are asked of epoll

 public:
  // `find` gives the queue pairs of this process.
  explicit Engine(FindDriven find) : find_(find) {}
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // For who may look for a queue pair after this engine is gone.
  FindDriven finder() const { return find_; }
  // For good: the thread ends, and nothing is driven any more.
  void stop();

  // The thread is there, or comes: 0 or an errno, EAGAIN where the system allows no more threads.
  int start();
  // From here on the socket of this queue pair is driven. Returns 0 or an errno.
  int add(Driven& qp, int fd);
  // The queue pair goes away: it is driven no more; what is under way ends with the next grace period. (A stream
  // that merely ends closes its socket, and progress() then finds nothing to do.)
  void remove(Driven& qp);
  // The socket is somebody else's from here on.
  void release(int fd);
  // The socket may have more to read although the kernel has said so before.
  void rearm(std::uint32_t qp_number, int fd);
  // The calling thread has no buffers, for lack of memory: the thread of the context sends and receives in its place.
  void take_over(std::uint32_t qp_number, int fd);

  // The program has polled and found nothing.
  void drive() { look(true); }
  // The program posts without a pause, or to a queue of work that answers are due to, and has posted: where it has not
  // polled for a while it looks at what has come, and true is returned. A thread that is woken for each of them would
  // take turns with it.
  void begin_posting() { activity_.enter(); }
  bool end_posting(std::uint64_t now);
  bool note_post(std::uint64_t now);
  const Activity& activity() const { return activity_; }
  bool drives_many() const { return many_.load(std::memory_order_relaxed); }
  // Parked, the thread finds out soon that the program has stopped polling and posting.
  SendScheduler::Program program() const {
    return {activity_.event_awaited(), parked_.load(std::memory_order_relaxed)};
  }
  // A queue pair has deferred sends, which wait for the program to come back, or has them no longer.
  void note_deferred(bool holds);
  // Posts of a queue pair begin to wait: the thread sends them if the program does not come back in time.
  void watch_posts();

  // The program has asked a completion queue for an event, and may wait for it; until that event is there, which may be
  // told of first.
  void event_asked_for();
  void event_given() { activity_.event_given(); }

  // A fork has happened and this is the child: the thread is not there.
  void after_fork_in_child();

 private:
  int prepare();
  void note_entries() { many_ = entries_.size() > kDirect; }
  void look(bool polls);
  void run();
  void park();
  void sweep(bool only_deferred = false);
  // For the thread, each of those that are wanted.
  template <typename Wanted, typename Visitor>
  void visit(Wanted wanted, Visitor visitor);
  bool send_overdue_posts();
  bool tick(std::chrono::microseconds& next);
  void send_all_deferred();
  void unpark();
  bool wake();
  void begin_anew();
  void join_or_leave();

  const FindDriven find_;
  int epoll_ = -1, wake_ = -1;
  Mutex drive_mutex_;  // one program thread drives at a time; held before any lock of a queue pair
  Mutex mutex_;        // entries_; taken inside those
  std::vector<Driven*> entries_;
  unsigned round_ = 0;
  unsigned empty_rounds_ = 0;  // in a row
  unsigned busy_looks_ = 0;    // with deferred sends, since those went out

  std::thread thread_;
  std::atomic<bool> started_{false}, stop_{false};

  Activity activity_;
  std::atomic<bool> many_{false};       // more queue pairs than are tried one by one
  std::atomic<unsigned> deferring_{0};  // queue pairs
  std::atomic<unsigned> watched_{0};    // how often posts began to wait; only grows
  alignas(64) std::atomic<bool> parked_{false};
  std::atomic<bool> watching_{false};  // it ticks often enough for posts that wait
  std::mutex park_mutex_;
  std::condition_variable park_condition_;
  bool unpark_ = false, hurry_ = false;
  // The thread's own.
  unsigned watched_seen_ = 0;
  std::vector<std::uint32_t> visited_;
};

}  // namespace uiw::provider
