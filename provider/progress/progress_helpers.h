// SPDX-License-Identifier: MIT
// Threads that help the thread "uiw-progress" if it is too slow alone: for a passive target with many connections, on a
// machine with processors to spare. Each of them starts when it is first called. It handles events of the engine's
// epoll set, doorbells that peers have rung, and requests to serve a queue pair (Engine::request_turn()), until it
// finds none or the program polls. Then it sleeps until it is called again. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "provider/progress/activity.h"
#include "provider/progress/channel_sets.h"
#include "provider/progress/driven.h"
#include "provider/progress/driven_list.h"

namespace uiw::provider {

class ProgressHelpers {
 public:
  // What the data of an epoll event means: the number of a queue pair; kWakeTag: the event wakes the thread
  // "uiw-progress"; kDoorbellTag: a peer has rung; kTurnTag: Engine::request_turn() asks for a call of progress(). For
  // the last two tags DrivenList::visit_rung() finds the queue pairs. No queue pair has the number 0.
  static constexpr std::uint64_t kWakeTag = 0, kDoorbellTag = std::uint64_t{1} << 41, kTurnTag = std::uint64_t{1} << 42;
  static constexpr bool is_queue_pair(std::uint64_t event) { return static_cast<std::uint32_t>(event) != 0; }

  // At most `most` threads. `sets`, from which they take events, `driven` and `activity` must remain live as long as
  // this object.
  ProgressHelpers(unsigned most, const ChannelSets& sets, DrivenList& driven, FindDriven find, const Activity& activity)
      : most_(most), sets_(sets), driven_(driven), find_(find), activity_(activity) {}
  ~ProgressHelpers() { stop(); }
  ProgressHelpers(const ProgressHelpers&) = delete;
  ProgressHelpers& operator=(const ProgressHelpers&) = delete;

  // Whether there may be any helping threads.
  bool allowed() const { return most_ > 0; }
  // How many of the threads are helping: they have been called and do not sleep yet.
  unsigned helping() const { return helping_.load(std::memory_order_relaxed); }
  // How many times the helping threads have called progress() for an event of a queue pair so far.
  std::uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  // Makes one more thread help, if fewer than `most` do. If a new thread is needed and cannot be started (the system
  // allows no more threads, or has no memory), the next such call does not try. After further failures in a row, the
  // next 2, 4, 8 ... such calls do not try, up to kMostSkipped calls.
  void call();
  static constexpr unsigned kMostSkipped = 4096;
  // Ends the threads after their current turns, and waits until they have ended.
  void stop();
  // In the child of a fork, where these threads do not exist.
  void after_fork_in_child();

 private:
  void run();
  void help();

  const unsigned most_;
  const ChannelSets& sets_;
  DrivenList& driven_;
  const FindDriven find_;
  const Activity& activity_;
  std::mutex mutex_;  // not a Mutex, since the condition variable needs a std::mutex
  std::condition_variable called_;
  std::vector<std::thread> threads_;
  unsigned calls_ = 0;             // calls that no thread has taken yet
  unsigned skip_ = 0, pause_ = 1;  // how many calls start no thread: now, and after the next failure
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> helping_{0};
  std::atomic<std::uint64_t> turns_{0};
};

// The number of progress threads, the thread "uiw-progress" and those that help it. `wanted` is the setting; if that is
// 0, `processors` decides: with fewer than four there is one thread, since the program needs the other processors.
constexpr unsigned progress_threads(unsigned wanted, unsigned processors) {
  constexpr unsigned kMost = 8;
  if (wanted > 0) return wanted;
  return processors < 4 ? 1 : processors / 2 < kMost ? processors / 2 : kMost;
}

}  // namespace uiw::provider
