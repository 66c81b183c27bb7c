// SPDX-License-Identifier: MIT
// The event loop of the thread "uiw-cm". It serves descriptors and timers and runs posted functions, for connection
// set-up, sockets that linger, and other work outside the data path. The thread starts with the first call of start(),
// watch(), post(), post_behind() or after(). All functions except after_fork_in_child() are thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

struct epoll_event;

namespace uiw {
template <typename Object>
class Immortal;
}

namespace uiw::provider {

class CmLoop {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void ready(std::uint32_t epoll_events) = 0;  // called on the thread "uiw-cm"
    // True if the process must not end yet, for example because the peer has not acknowledged all octets that a
    // lingering socket has sent. Called by any thread, with the lock of the loop held.
    virtual bool keeps_process() const { return false; }
    // Called in the child of a fork. A socket stays open as long as any process has a descriptor of it, so a handler
    // whose socket has to close when the parent ends closes the child's copy of the descriptor here.
    virtual void abandon() {}
  };

  using Clock = std::chrono::steady_clock;
  using Timer = std::pair<Clock::time_point, std::uint64_t>;  // the number distinguishes timers of the same time
  class TimedTask;

 private:
  struct Due {
    std::function<void()> function;
    std::weak_ptr<TimedTask> task;  // if set, it runs instead of `function`
  };
  using Timers = std::map<Timer, Due>;

 public:
  // Work that can be posted without allocating memory: the object itself is linked into the queue. The loop keeps the
  // object alive until run() has returned. If the object is posted again while it is queued, run() is called once.
  class Task {
   public:
    Task() = default;
    virtual ~Task() = default;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    virtual void run() = 0;  // called on the thread "uiw-cm"

   private:
    friend class CmLoop;
    std::shared_ptr<Task> next_;  // the next task in the queue
    bool in_line_ = false;
  };
  // A task with a timer. The memory of the timer is allocated with the object, so that setting the timer cannot fail.
  // The timer keeps a weak reference to the task.
  class TimedTask : public Task {
   public:
    TimedTask();
    ~TimedTask() override;

   private:
    friend class CmLoop;
    Timers::node_type node_;  // valid while the timer is not set
    Timer timer_;             // valid while the timer is set
  };

  static CmLoop& instance();

  // Starts the thread if it does not run. Returns 0 or an errno, EAGAIN if the system allows no more threads. To be
  // called before something that only this thread completes: without the thread the caller would wait for ever.
  int start();

  // Runs `function` on the thread; functions and tasks run in the order of posting. Returns 0, or an errno of start();
  // after an error `function` does not run.
  int post(std::function<void()> function);
  // Posts a task. If the thread cannot be started now, the task waits until a later call has started the thread.
  void post(std::shared_ptr<Task> task) noexcept;
  // As post(), but the task runs after every descriptor that is ready now has been served, and after the functions and
  // tasks that post() has queued until then. So events that the task reports come after all events that these
  // descriptors, functions and tasks report.
  void post_behind(std::shared_ptr<Task> task) noexcept;

  Timer after(std::chrono::milliseconds delay, std::function<void()> function);
  // Sets the task's timer; replaces an earlier time.
  void after(std::chrono::milliseconds delay, const std::shared_ptr<TimedTask>& task) noexcept;
  void cancel(TimedTask& task) noexcept;
  // Cancels a timer and destroys its function. If the thread has begun to run the function, the function goes on.
  void cancel(const Timer& timer);

  // Watches a descriptor until it is closed or unwatch() is called; keeps a weak reference to the handler. Starts the
  // thread. Returns 0 or an errno.
  int watch(int fd, std::uint32_t epoll_events, std::weak_ptr<Handler> handler);
  void change(int fd, std::uint32_t epoll_events);
  void unwatch(int fd);
  // Whether a handler delays the end of the process. Also returns true if the lock of the loop is taken: the calling
  // thread itself may hold it, if it has called exit() in a signal handler.
  bool keeps_process();

  // Take and release the lock before and after a fork. The child starts with an empty loop.
  void lock_for_fork() UIW_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock_after_fork() UIW_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_in_child() UIW_RELEASE(mutex_);

 private:
  friend class Immortal<CmLoop>;
  CmLoop() = default;
  int prepare() UIW_REQUIRES(mutex_);
  int ensure_thread() UIW_REQUIRES(mutex_);
  bool begin_anew();
  // Tasks in the order of posting.
  struct Queue {
    std::shared_ptr<Task> first;
    Task* last = nullptr;
    std::size_t size = 0;

    std::shared_ptr<Task> take();
  };
  void append(Queue& queue, std::shared_ptr<Task> task) UIW_REQUIRES(mutex_);
  void wake() UIW_REQUIRES(mutex_);
  void run();
  void serve(const epoll_event* events, int count);
  void run_due();
  void run_behind(std::size_t count);
  int next_timeout_ms();

  struct Watched {
    std::uint64_t tag;
    std::weak_ptr<Handler> handler;
  };
  std::shared_ptr<Handler> handler_of(std::uint64_t tag);
  std::size_t watched_count();

  int epoll_ = -1, wake_ = -1, link_watch_ = -1;
  TableMutex mutex_;
  bool started_ UIW_GUARDED_BY(mutex_) = false;
  // True while the thread sleeps, or is about to sleep, and nobody has woken it. Set to true only with the lock held.
  std::atomic<bool> asleep_{false};
  Queue posted_ UIW_GUARDED_BY(mutex_), behind_ UIW_GUARDED_BY(mutex_);
  std::size_t turn_behind_ = 0;  // how many tasks of behind_ this pass of run()'s loop runs; only the thread uses it
  Timers timers_ UIW_GUARDED_BY(mutex_);
  std::uint64_t next_timer_ UIW_GUARDED_BY(mutex_) = 0;
  std::unordered_map<int, Watched> watched_ UIW_GUARDED_BY(mutex_);
  std::uint64_t next_tag_ UIW_GUARDED_BY(mutex_) = 1;
  std::thread thread_ UIW_GUARDED_BY(mutex_);
};

}  // namespace uiw::provider
