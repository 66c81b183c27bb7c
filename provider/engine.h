// SPDX-License-Identifier: MIT
// What moves bytes: a program's empty poll drives the sockets of its context itself (no thread hop, no wake-up); where
// the program does not poll, a thread does, on epoll.
//
// The thread, "uiw-progress", starts with the first queue pair that connects. While the program polls, the thread
// sleeps on a timer and not on the sockets, so that arrivals do not wake it; it looks after each tick whether the
// polling has stopped, and takes over then. program_may_sleep() hands over at once. A program that spins on memory
// does not poll, so the thread is awake for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace uiw::provider {

class Qp;

class Engine {
 public:
  Engine() = default;
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From here on the socket of this queue pair is driven. Returns 0 or an errno.
  int add(Qp& qp, int fd);
  // The queue pair goes away: it is driven no more; what is under way ends with the next grace period. (A stream
  // that merely ends closes its socket, and progress() then finds nothing to do.)
  void remove(Qp& qp);
  // The socket is somebody else's from here on.
  void release(int fd);
  // The socket may have more to read although the kernel has said so before.
  void rearm(Qp& qp, int fd);

  // The program has polled and found nothing.
  void drive();
  // The program is about to wait for a completion event.
  void program_may_sleep();

  // A fork has happened and this is the child: the thread is not there.
  void after_fork_in_child();

 private:
  int prepare();
  void run();
  void park();
  void sweep();

  int epoll_ = -1, wake_ = -1;
  std::mutex drive_mutex_;  // one program thread drives at a time; held before any lock of a queue pair
  std::mutex mutex_;        // entries_; taken inside those
  std::vector<Qp*> entries_;
  unsigned round_ = 0;
  unsigned empty_rounds_ = 0;  // in a row

  std::thread thread_;
  std::atomic<bool> started_{false}, stop_{false};

  alignas(64) std::atomic<std::uint64_t> last_empty_poll_{0};  // monotonic, ns
  alignas(64) std::atomic<bool> parked_{false};
  std::mutex park_mutex_;
  std::condition_variable park_condition_;
  bool unpark_ = false;
};

}  // namespace uiw::provider
