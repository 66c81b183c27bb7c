// SPDX-License-Identifier: MIT
#include "provider/process/cm_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/event_counter.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/system_calls.h"
#include "base/thread.h"
#include "provider/process/netlink/link_watch.h"

namespace uiw::provider {

namespace {

constexpr int kMostEvents = 64;
constexpr auto kNoDescriptorsPause = std::chrono::milliseconds(10);

// An exception on the thread "uiw-cm" must not end the program. If memory runs out, the function is given up: a
// connection that is being set up fails at its deadline, and epoll reports a ready descriptor again, unless it is
// watched with EPOLLET.
template <typename Function>
void carry_out(const Function& function) {
  try {
    function();
  } catch (const std::exception&) {
  }
}

class FunctionTask final : public CmLoop::Task {
 public:
  explicit FunctionTask(std::function<void()> function) : function_(std::move(function)) {}
  void run() override { function_(); }

 private:
  const std::function<void()> function_;
};

}  // namespace

CmLoop::TimedTask::TimedTask() {
  Timers made;
  made.try_emplace(Timer());
  node_ = made.extract(made.begin());
}

CmLoop::TimedTask::~TimedTask() { CmLoop::instance().cancel(*this); }

CmLoop& CmLoop::instance() {
  static Immortal<CmLoop> instance;
  return *instance;
}

// The child of a fork inherits the descriptors of the parent's loop, but must not take the parent's events, so it
// closes its copies of the descriptors and starts with an empty loop. Listeners and calls of the parent stay the
// parent's.
void CmLoop::after_fork_in_child() {
  new (&thread_) std::thread;  // the parent's thread does not exist here, so it can be neither joined nor detached
  for (int* fd : {&epoll_, &wake_, &link_watch_}) {
    if (*fd >= 0) close_descriptor(std::exchange(*fd, -1));
  }
  for (const auto& [fd, watched] : watched_)
    if (const auto handler = watched.handler.lock()) handler->abandon();
  // The child neither runs nor frees the parent's tasks.
  new (&posted_) Queue;
  new (&behind_) Queue;
  asleep_ = false;
  new (&timers_) decltype(timers_);
  new (&watched_) decltype(watched_);
  started_ = false;
  mutex_.unlock();
}

int CmLoop::start() {
  const LockGuard lock(mutex_);
  return ensure_thread();
}

// Creates the descriptors if they do not exist yet; after a failure the next call tries again. Returns 0 or an errno.
int CmLoop::prepare() {
  if (epoll_ >= 0) return 0;
  epoll_ = DescriptorChange().take(sys::epoll_create1(EPOLL_CLOEXEC), "the making of connections");
  if (epoll_ < 0) return errno;
  wake_ = DescriptorChange().take(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "the making of connections");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (wake_ >= 0 && sys::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) == 0) return 0;
  const int error = errno;
  if (wake_ >= 0) close_descriptor(std::exchange(wake_, -1));
  close_descriptor(std::exchange(epoll_, -1));
  return error;
}

int CmLoop::ensure_thread() {
  if (const int error = prepare(); error != 0) return error;
  if (started_) return 0;
  started_ = start_service_thread(thread_, "uiw-cm", [this] { run(); });
  return started_ ? 0 : EAGAIN;
}

// Wakes the thread, at most once for each sleep. A thread that is awake looks at the queues before it sleeps again.
void CmLoop::wake() {
  if (!asleep_.exchange(false)) return;
  add_event(wake_);
}

void CmLoop::append(Queue& queue, std::shared_ptr<Task> task) {
  if (std::exchange(task->in_line_, true)) return;
  Task* const last = task.get();
  (queue.last != nullptr ? queue.last->next_ : queue.first) = std::move(task);
  queue.last = last;
  ++queue.size;
  wake();
}

// Removes the first task and returns it. The queue must not be empty.
std::shared_ptr<CmLoop::Task> CmLoop::Queue::take() {
  std::shared_ptr<Task> task = std::move(first);
  first = std::move(task->next_);
  if (first == nullptr) last = nullptr;
  task->in_line_ = false;
  --size;
  return task;
}

int CmLoop::post(std::function<void()> function) {
  auto task = std::make_shared<FunctionTask>(std::move(function));
  const LockGuard lock(mutex_);
  if (const int error = ensure_thread(); error != 0) return error;
  append(posted_, std::move(task));
  return 0;
}

void CmLoop::post(std::shared_ptr<Task> task) noexcept {
  const LockGuard lock(mutex_);
  ensure_thread();
  append(posted_, std::move(task));
}

void CmLoop::post_behind(std::shared_ptr<Task> task) noexcept {
  const LockGuard lock(mutex_);
  ensure_thread();
  append(behind_, std::move(task));
}

CmLoop::Timer CmLoop::after(std::chrono::milliseconds delay, std::function<void()> function) {
  const LockGuard lock(mutex_);
  ensure_thread();  // a failure is ignored: callers that need the thread also call start() or watch(), which report it
  const Timer timer(Clock::now() + delay, next_timer_++);
  const auto made = timers_.try_emplace(timer, Due{std::move(function), {}}).first;
  // If an earlier timer exists, the thread wakes for that one, and then takes this timer into account.
  if (made == timers_.begin()) wake();
  return timer;
}

void CmLoop::after(std::chrono::milliseconds delay, const std::shared_ptr<TimedTask>& task) noexcept {
  const LockGuard lock(mutex_);
  ensure_thread();
  Timers::node_type node = task->node_.empty() ? timers_.extract(task->timer_) : std::move(task->node_);
  if (node.empty()) return;  // in the child of a fork: the task is the parent's, and its timer does not exist here
  task->timer_ = Timer(Clock::now() + delay, next_timer_++);
  node.key() = task->timer_;
  node.mapped().task = task;
  const auto made = timers_.insert(std::move(node)).position;
  if (made == timers_.begin()) wake();
}

void CmLoop::cancel(const Timer& timer) {
  Timers::node_type cancelled;  // its function is destroyed after the lock is released
  const LockGuard lock(mutex_);
  cancelled = timers_.extract(timer);
}

void CmLoop::cancel(TimedTask& task) noexcept {
  const LockGuard lock(mutex_);
  if (!task.node_.empty()) return;
  task.node_ = timers_.extract(task.timer_);
  if (!task.node_.empty()) task.node_.mapped().task.reset();
}

int CmLoop::watch(int fd, std::uint32_t epoll_events, std::weak_ptr<Handler> handler) {
  const LockGuard lock(mutex_);
  if (const int error = ensure_thread(); error != 0) return error;
  const std::uint64_t tag = next_tag_++ << 32 | static_cast<std::uint32_t>(fd);
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = tag;
  const auto [entry, added] = watched_.try_emplace(fd);
  if (sys::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    if (added) watched_.erase(entry);
    return error;
  }
  entry->second = {tag, std::move(handler)};
  return 0;
}

void CmLoop::change(int fd, std::uint32_t epoll_events) {
  const LockGuard lock(mutex_);
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = found->second.tag;
  sys::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void CmLoop::unwatch(int fd) {
  const LockGuard lock(mutex_);
  if (watched_.erase(fd) != 0) sys::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

bool CmLoop::keeps_process() {
  std::vector<std::shared_ptr<Handler>> handlers;  // released after the lock, since destructors of handlers take it
  UniqueLock lock(mutex_, std::defer_lock);
  if (!lock.try_lock()) return true;
  try {
    for (const auto& [fd, watched] : watched_) handlers.push_back(watched.handler.lock());
  } catch (const std::bad_alloc&) {
    return false;
  }
  return std::any_of(handlers.begin(), handlers.end(),
                     [](const auto& handler) { return handler != nullptr && handler->keeps_process(); });
}

// Returns the timeout of the next epoll_wait(), in milliseconds: 0 if tasks are queued, otherwise the time until the
// next timer, at most a minute, or -1 if there is no timer. Also records how many tasks of `behind_` the next pass
// runs, and sets `asleep_` if the thread may sleep.
int CmLoop::next_timeout_ms() {
  const LockGuard lock(mutex_);
  turn_behind_ = behind_.size;
  if (posted_.size + behind_.size > 0) return 0;
  asleep_ = true;
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
}

std::size_t CmLoop::watched_count() {
  const LockGuard lock(mutex_);
  return watched_.size();
}

std::shared_ptr<CmLoop::Handler> CmLoop::handler_of(std::uint64_t tag) {
  const LockGuard lock(mutex_);
  const auto found = watched_.find(static_cast<int>(tag & 0xFFFFFFFF));
  return found != watched_.end() && found->second.tag == tag ? found->second.handler.lock() : nullptr;
}

// Runs the posted tasks and the timers that are due, one after the other. Each is removed before it runs, so a task
// that runs out of memory is not run again.
void CmLoop::run_due() {
  for (std::size_t count = ~std::size_t{0}; count > 0; --count) {
    std::function<void()> function;
    std::shared_ptr<Task> task;
    {
      const LockGuard lock(mutex_);
      // Limits the number of functions that this call runs: if functions posted new ones again and again, the thread
      // would otherwise never return to its descriptors.
      if (count == ~std::size_t{0}) count = posted_.size + timers_.size();
      if (posted_.size > 0) {
        task = posted_.take();
      } else if (!timers_.empty() && timers_.begin()->first.first <= Clock::now()) {
        Timers::node_type node = timers_.extract(timers_.begin());
        function = std::move(node.mapped().function);
        if (auto timed = std::exchange(node.mapped().task, {}).lock()) {
          timed->node_ = std::move(node);
          task = std::move(timed);
        }
      } else {
        return;
      }
    }
    if (task != nullptr) carry_out([&] { task->run(); });
    if (function) carry_out(function);
  }
}

void CmLoop::run_behind(std::size_t count) {
  for (; count > 0; --count) {
    std::shared_ptr<Task> task;
    {
      const LockGuard lock(mutex_);
      if (behind_.size == 0) return;
      task = behind_.take();
    }
    carry_out([&] { task->run(); });
  }
}

void CmLoop::serve(const epoll_event* events, int count) {
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == 0) {
      std::uint64_t value;
      [[maybe_unused]] const auto n = ::read(wake_, &value, sizeof value);
      continue;
    }
    if (const auto handler = handler_of(events[i].data.u64)) carry_out([&] { handler->ready(events[i].events); });
  }
}

// Each pass of the loop serves all descriptors that are ready when it begins, then runs posted tasks and due timers,
// and last the tasks that post_behind() had queued before the pass. Descriptors come first: even if the thread has to
// wait long for a processor, octets that arrived before a deadline are read before the timer of the deadline runs.
void CmLoop::run() {
  std::shared_ptr<Handler> links;
  carry_out([&] {
    links = make_link_watch(link_watch_);
    if (links) watch(link_watch_, EPOLLIN, links);
    look_at_interfaces();
  });
  for (;;) {
    std::array<epoll_event, kMostEvents> events;
    int count = sys::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), next_timeout_ms());
    asleep_.store(false);
    if (count < 0 && errno != EINTR) {
      // The handler `links` is kept for ever: its destructor would close a descriptor number that is no longer ours.
      alignas(std::shared_ptr<Handler>) static std::array<std::byte, sizeof links> kept;
      new (kept.data()) std::shared_ptr<Handler>(std::move(links));
      if (!begin_anew()) return;
      continue;
    }
    serve(events.data(), count);
    // More descriptors may be ready. The kernel reports them in the order in which they became ready.
    for (std::size_t rounds = watched_count() / kMostEvents; count == kMostEvents && rounds > 0; --rounds) {
      count = sys::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
      serve(events.data(), count);
    }
    run_due();
    run_behind(turn_behind_);
  }
}

// Recovers after the program has closed our descriptors although the descriptor guard protects them
// (base/descriptor.h): no descriptor is watched any more. Timers and posted tasks need no descriptor and go on, even if
// no new descriptors can be created. Returns true once new descriptors exist, and false if no timers and tasks are
// left: then the thread ends, and the next call that needs it starts another one.
bool CmLoop::begin_anew() {
  UniqueLock lock(mutex_);
  epoll_ = wake_ = link_watch_ = -1;
  watched_.clear();
  while (posted_.size + behind_.size > 0 || !timers_.empty()) {
    if (prepare() == 0) return true;
    lock.unlock();
    std::this_thread::sleep_for(kNoDescriptorsPause);
    run_due();
    run_behind(~std::size_t{0});
    lock.lock();
  }
  thread_.detach();
  started_ = false;
  return false;
}

}  // namespace uiw::provider
