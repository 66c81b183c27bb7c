// SPDX-License-Identifier: MIT
#include "provider/cm_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "provider/linger.h"
#include "provider/link_watch.h"
#include "provider/thread.h"

namespace uiw::provider {

namespace {
std::atomic<CmLoop*> the_loop{nullptr};
constexpr auto kLingerTime = std::chrono::seconds(5);
constexpr int kTurns = 16;
}  // namespace

// Never destroyed: the thread runs until the process ends.
CmLoop& CmLoop::instance() {
  static CmLoop* const instance = [] {
    auto* loop = new CmLoop;
    the_loop.store(loop);
    return loop;
  }();
  return *instance;
}

CmLoop::CmLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
}

// The child has the descriptors of the parent's loop, but must not take its events: it begins anew. Listeners and calls
// of the parent stay the parent's.
void CmLoop::after_fork_in_child() {
  CmLoop* loop = the_loop.load();
  if (loop == nullptr) return;
  new (&loop->mutex_) std::mutex;  // its owner, if it had one, does not exist here
  new (&loop->thread_) std::thread;  // likewise: neither to be joined nor detached
  ::close(loop->epoll_);
  ::close(loop->wake_);
  if (loop->link_watch_ >= 0) ::close(std::exchange(loop->link_watch_, -1));
  loop->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  loop->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(loop->epoll_, EPOLL_CTL_ADD, loop->wake_, &event);
  // What the parent had under way is the parent's: not to be run, closed or freed here.
  new (&loop->posted_) decltype(loop->posted_);
  new (&loop->timers_) decltype(loop->timers_);
  new (&loop->watched_) decltype(loop->watched_);
  loop->started_ = false;
}

void CmLoop::ensure_thread() {
  if (!started_) started_ = start_service_thread(thread_, "uiw-cm", [this] { run(); });  // else at the next need
}

void CmLoop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(wake_, &one, sizeof one);
}

void CmLoop::post(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  ensure_thread();
  posted_.push_back(std::move(function));
  wake();
}

CmLoop::Timer CmLoop::after(std::chrono::milliseconds delay, std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  ensure_thread();
  const Timer timer(Clock::now() + delay, next_timer_++);
  const auto made = timers_.emplace(timer, std::move(function)).first;
  // Before one that comes later the thread wakes anyway.
  if (made == timers_.begin()) wake();
  return timer;
}

void CmLoop::cancel(const Timer& timer) {
  decltype(timers_)::node_type cancelled;  // what its function holds goes without the lock
  const std::lock_guard lock(mutex_);
  cancelled = timers_.extract(timer);
}

int CmLoop::watch(int fd, std::uint32_t epoll_events, std::weak_ptr<Handler> handler) {
  const std::lock_guard lock(mutex_);
  ensure_thread();
  const std::uint64_t tag = next_tag_++ << 32 | static_cast<std::uint32_t>(fd);
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return errno;
  watched_[fd] = {tag, std::move(handler)};
  return 0;
}

void CmLoop::change(int fd, std::uint32_t epoll_events) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = found->second.tag;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void CmLoop::unwatch(int fd) {
  const std::lock_guard lock(mutex_);
  watched_.erase(fd);
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

int CmLoop::next_timeout_ms() {
  const std::lock_guard lock(mutex_);
  if (timers_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 60'000));
}

void CmLoop::run() {
  const std::shared_ptr<Handler> links = make_link_watch(link_watch_);
  if (links) watch(link_watch_, EPOLLIN, links);
  for (;;) {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), next_timeout_ms());
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
      if (tag == 0) {
        std::uint64_t value;
        [[maybe_unused]] const auto n = ::read(wake_, &value, sizeof value);
        continue;
      }
      std::shared_ptr<Handler> handler;
      {
        const std::lock_guard lock(mutex_);
        const auto found = watched_.find(static_cast<int>(tag & 0xFFFFFFFF));
        if (found != watched_.end() && found->second.tag == tag) handler = found->second.handler.lock();
      }
      if (handler) handler->ready(events[static_cast<std::size_t>(i)].events);
    }
    std::vector<std::function<void()>> due;
    {
      const std::lock_guard lock(mutex_);
      due.swap(posted_);
      const auto now = Clock::now();
      while (!timers_.empty() && timers_.begin()->first.first <= now) {
        due.push_back(std::move(timers_.begin()->second));
        timers_.erase(timers_.begin());
      }
    }
    for (const auto& function : due) function();
  }
}

// ---- Lingering sockets -----------------------------------------------------------------------------------------

namespace {

class Lingering final : public CmLoop::Handler, public std::enable_shared_from_this<Lingering> {
 public:
  explicit Lingering(int fd) : fd_(fd) {}
  // The timer keeps it alive, until then at most. Before it is watched.
  void start_timer() {
    timer_ = CmLoop::instance().after(kLingerTime, [self = shared_from_this()] { self->end(); });
  }
  ~Lingering() override { end(); }

  void ready(std::uint32_t) override {
    std::array<char, 65536> dropped;
    for (int turns = 0;; ++turns) {
      if (turns == kTurns) return;  // others wait for this thread; the loop comes back
      const ssize_t n = ::recv(fd_, dropped.data(), dropped.size(), MSG_DONTWAIT);
      if (n > 0 || (n < 0 && errno == EINTR)) continue;
      if (n < 0 && errno == EAGAIN) return;
      end();
      return;
    }
  }
  void end() {
    if (fd_ < 0) return;
    CmLoop::instance().unwatch(fd_);
    ::close(fd_);
    fd_ = -1;
    CmLoop::instance().cancel(timer_);
  }

 private:
  int fd_;  // used on the thread alone once it is watched
  CmLoop::Timer timer_;
};

}  // namespace

void linger_and_close(int fd) {
  ::shutdown(fd, SHUT_WR);
  // Closed by the peer already, and nothing left to read: the usual case needs no waiting.
  char octet;
  if (::recv(fd, &octet, 1, MSG_DONTWAIT | MSG_PEEK) == 0) {
    ::close(fd);
    return;
  }
  auto lingering = std::make_shared<Lingering>(fd);
  lingering->start_timer();
  if (CmLoop::instance().watch(fd, EPOLLIN | EPOLLRDHUP, lingering) != 0) lingering->end();
}

}  // namespace uiw::provider
