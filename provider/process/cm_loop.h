// SPDX-License-Identifier: MIT
// The thread "uiw-cm": descriptors, timers and posted functions of connection set-up and of closing sockets. It starts
// with the first of them. All functions are thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace uiw::provider {

class CmLoop {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void ready(std::uint32_t epoll_events) = 0;  // on the thread
  };

  using Clock = std::chrono::steady_clock;
  using Timer = std::pair<Clock::time_point, std::uint64_t>;  // the number tells two of the same time apart
  class TimedTask;

 private:
  struct Due {
    std::function<void()> function;
    std::weak_ptr<TimedTask> task;  // in place of it
  };
  using Timers = std::map<Timer, Due>;

 public:
  // Work that can be asked for without memory: the object itself stands in line, and lives until it has had its turn.
  // Asked for again before that, it has one turn.
  class Task {
   public:
    Task() = default;
    virtual ~Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual void run() = 0;  // on the thread

   private:
    friend class CmLoop;
    std::shared_ptr<Task> next_;  // in line
    bool in_line_ = false;
  };
  // One that has a timer, too, whose memory is there beforehand. The timer holds it weakly.
  class TimedTask : public Task {
   public:
    TimedTask();
    ~TimedTask() override;

   private:
    friend class CmLoop;
    Timers::node_type node_;  // while the timer is not set
    Timer timer_;             // while it is
  };

  static CmLoop& instance();

  // The thread is there, or comes: 0 or an errno, EAGAIN where the system allows no more threads. For a call that shall
  // fail then, rather than begin what would wait for ever.
  int start();

  // Runs on the thread, in the order of posting. 0 or the errno of start(): then it does not run.
  int post(std::function<void()> function);
  // In the same line. Where there is no thread it runs as soon as one can be had.
  void post(std::shared_ptr<Task> task) noexcept;

  Timer after(std::chrono::milliseconds delay, std::function<void()> function);
  // In place of the time that was set for it before, if any.
  void after(std::chrono::milliseconds delay, const std::shared_ptr<TimedTask>& task) noexcept;
  void cancel(TimedTask& task) noexcept;
  // Its function goes, unless it is due already: then it may still run.
  void cancel(const Timer& timer);

  // The handler is held weakly. A descriptor is watched until it is closed or unwatched. 0 or an errno, that of start()
  // too.
  int watch(int fd, std::uint32_t epoll_events, std::weak_ptr<Handler> handler);
  void change(int fd, std::uint32_t epoll_events);
  void unwatch(int fd);

  // Around a fork: nothing is posted or watched meanwhile. In the child it begins anew.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  void after_fork_in_child();

 private:
  CmLoop() = default;
  int prepare();
  int ensure_thread();
  bool begin_anew();
  void append(std::shared_ptr<Task> task);
  void wake();
  void run();
  void run_due();
  int next_timeout_ms();

  struct Watched {
    std::uint64_t tag;
    std::weak_ptr<Handler> handler;
  };
  std::shared_ptr<Handler> handler_of(std::uint64_t tag);

  int epoll_ = -1, wake_ = -1, link_watch_ = -1;
  std::mutex mutex_;
  bool started_ = false;
  std::atomic<bool> asleep_{false};  // or about to be, and nobody has woken it; set with the lock
  std::shared_ptr<Task> first_posted_;
  Task* last_posted_ = nullptr;
  std::size_t posted_ = 0;  // in that line
  Timers timers_;
  std::uint64_t next_timer_ = 0;
  std::unordered_map<int, Watched> watched_;
  std::uint64_t next_tag_ = 1;
  std::thread thread_;
};

}  // namespace uiw::provider
