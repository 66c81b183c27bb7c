// SPDX-License-Identifier: MIT
#include "provider/progress/engine.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/event_counter.h"
#include "base/grace_period.h"
#include "base/mutex.h"
#include "base/stream/doorbell.h"
#include "base/system_calls.h"
#include "base/thread.h"
#include "provider/progress/clock.h"
#include "provider/progress/event_turns.h"
#include "provider/progress/help_needed.h"
#include "provider/progress/io_scratch.h"

namespace uiw::provider {

namespace {

// After kYieldAfter polls in a row that found nothing, every kYieldStride-th poll yields, since the peer may be waiting
// for this processor.
constexpr unsigned kYieldAfter = 64;
constexpr unsigned kYieldStride = 8;
constexpr unsigned kClockStride = 4;  // of polls in a row that find nothing, one in this many reads the clock
// After kQuietAsks polls in a row whose epoll_wait() found nothing, only one poll in kAskStride calls epoll_wait().
constexpr unsigned kQuietAsks = 64;
constexpr unsigned kAskStride = 8;
// After this many wake-ups in a row that find the program polling, the thread "uiw-progress" parks: it sleeps on its
// timer.
constexpr unsigned kParkAfter = 3;
constexpr std::chrono::microseconds kFirstTick(25);
// The time between two wake-ups of the thread "uiw-progress" while posts wait for the next posts. Each wake-up costs
// the peer some microseconds if both processes share processors.
constexpr std::chrono::microseconds kDeferredTick(200);
constexpr std::chrono::microseconds kLongestTick(1000);
constexpr std::chrono::milliseconds kNoMemoryPause(10);
// How often the thread "uiw-progress" checks whether a waiting thread of the program still sends and receives.
constexpr std::chrono::microseconds kWaitersTick(500);

constexpr int kMostEvents = EventTurns::kMost;

constexpr unsigned kSocketEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
epoll_event event_of(std::uint32_t qp_number, unsigned events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = qp_number;
  return event;
}

// Creates an eventfd and adds it to this epoll set, with these events and this tag as data. Returns the eventfd, or -1
// with errno.
int counter_in(int epoll, unsigned events, std::uint64_t tag) {
  const int fd = DescriptorChange().take(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "the progress of a device");
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (fd < 0 || sys::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return fd;
  const int error = errno;
  close_descriptor(fd);
  errno = error;
  return -1;
}

}  // namespace

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    const LockGuard lock(mutex_);
    started_.store(false);
    stop_.store(true);
  }
  if (thread_.joinable()) {
    unpark();
    if (wake()) {
      thread_.join();
    } else {
      join_or_leave();
    }
  }
  helpers_.stop();
  const LockGuard drive_lock(drive_mutex_);  // a thread in wait() may be using the sets
  sets_.close();
  if (const int epoll = epoll_.exchange(-1); epoll >= 0) close_descriptor(epoll);
  for (int* const wake : {&wake_, &turn_wake_})
    if (*wake >= 0) close_descriptor(std::exchange(*wake, -1));
}

bool Engine::wake() { return add_event(wake_); }

// Called when the program has closed the library's descriptors, sockets included, in a way that the guard
// (base/descriptor.h) does not see. Each queue pair finds out that its socket is gone. Queue pairs that connect later
// get a new thread and new descriptors.
void Engine::begin_anew() {
  sweep();
  const LockGuard lock(mutex_);
  if (stop_.load()) return;
  epoll_ = wake_ = turn_wake_ = -1;
  driven_.forget_doorbell();
  sets_.forget();
  started_.store(false);
  thread_.detach();
}

// Joins the thread if it ends within a second, and else detaches it: nothing wakes a thread that sleeps on an epoll
// descriptor that the program has closed.
void Engine::join_or_leave() {
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &end);
  ++end.tv_sec;
  if (pthread_clockjoin_np(thread_.native_handle(), nullptr, CLOCK_MONOTONIC, &end) == 0) {
    new (&thread_) std::thread;  // pthread_clockjoin_np() has joined it, and std::thread does not know
  } else {
    thread_.detach();
  }
}

void Engine::after_fork_in_child() {
  new (&thread_) std::thread;     // the thread is the parent's: it can be neither joined nor detached here
  new (&park_mutex_) std::mutex;  // not a Mutex, since the condition variable needs a std::mutex
  new (&park_condition_) std::condition_variable;
  // The connections belong to the parent, and so does the epoll set.
  helpers_.after_fork_in_child();
  sets_.close();
  sets_.forget();
  new_sets_ = 0;
  for (const int fd : {epoll_.load(), wake_, turn_wake_})
    if (fd >= 0) close_descriptor(fd);
  epoll_ = wake_ = turn_wake_ = -1;
  driven_.after_fork_in_child();
  activity_.after_fork_in_child();
  deferring_ = 0;
  started_.store(false);
  parked_.store(false);
  parked_for_waiters_.store(false);
  hand_over_.store(false);
  waiter_asleep_.store(false);
  waits_long_.store(false);
  watching_.store(false);
}

// Makes the descriptors and the thread if they do not exist yet. Returns 0 or an errno.
int Engine::prepare() {
  if (started_.load()) return 0;
  if (stop_.load()) return ENODEV;
  if (epoll_ < 0) {
    const int epoll = DescriptorChange().take(sys::epoll_create1(EPOLL_CLOEXEC), "the progress of a device");
    if (epoll < 0) return errno;
    // A thread that `turn_wake` wakes does not read the counter: the counter is edge-triggered, so each write wakes one
    // thread.
    const int wake = counter_in(epoll, EPOLLIN, ProgressHelpers::kWakeTag);
    const int turn_wake = wake >= 0 ? counter_in(epoll, EPOLLIN | EPOLLET, ProgressHelpers::kTurnTag) : -1;
    if (turn_wake < 0) {
      const int error = errno;
      if (wake >= 0) close_descriptor(wake);
      close_descriptor(epoll);
      return error;
    }
    epoll_ = epoll;
    wake_ = wake;
    turn_wake_ = turn_wake;
  }
  // The thread "uiw-progress" also sends and receives for threads that have no memory for buffers, so it must have its
  // own.
  std::unique_ptr<IoScratch> scratch = make_io_scratch();
  if (!scratch) return ENOMEM;
  const bool made = start_service_thread(thread_, "uiw-progress", [this, own = scratch.get()] {
    use_io_scratch(std::unique_ptr<IoScratch>(own));
    run();
  });
  if (!made) return EAGAIN;
  static_cast<void>(scratch.release());
  started_.store(true);
  return 0;
}

int Engine::start() {
  const LockGuard lock(mutex_);
  return prepare();
}

int Engine::add(Driven& qp, int fd) {
  const LockGuard lock(mutex_);
  if (const int error = prepare(); error != 0) return error;
  const std::size_t count = driven_.add(qp);
  if (count == 0) return ENOMEM;
  // With more than kFew queue pairs, a poll of the program asks epoll instead of looking at each queue pair. While the
  // thread "uiw-progress" is parked (sleeps on its timer), epoll may not watch the sockets. unpark() wakes this thread,
  // which makes epoll watch them again.
  if (count == DrivenList::kFew + 1) unpark();
  qp.end_reported.store(false);
  sets_.join(qp);
  const int error = sets_.watch(qp.channel_set, fd, event_of(qp.number(), kSocketEvents));
  if (error != 0) remove(qp);
  return error;
}

void Engine::remove(Driven& qp) {
  driven_.remove(qp);
  sets_.part(qp);
}

int Engine::doorbell() {
  const LockGuard lock(mutex_);
  if (prepare() != 0) return -1;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = ProgressHelpers::kDoorbellTag;
  return driven_.doorbell(epoll_, event);
}

DoorbellPage::Bell Engine::begin_sharing(std::uint32_t qp_number) {
  Driven* const qp = find_(qp_number);
  if (qp == nullptr) return DoorbellPage::kNoBell;
  shares_ = true;
  sets_.part(*qp);
  return driven_.doorbell_of(*qp);
}

void Engine::release(int fd) { sets_.release(fd); }

bool Engine::watch_again(std::uint32_t qp_number, int fd) {
  const ReadSection section;
  const Driven* const qp = find_(qp_number);
  const int set = qp != nullptr ? qp->channel_set.load() : ChannelSets::kNone;
  const int error = sets_.watch(set, fd, event_of(qp_number, kSocketEvents));
  return error != ENOMEM && error != ENOSPC;
}

void Engine::request_turn(std::uint32_t qp_number) {
  const ReadSection section;
  const Driven* const qp = find_(qp_number);
  if (qp != nullptr && driven_.request_turn(*qp)) add_event(turn_wake_);
}

void Engine::take_over(std::uint32_t qp_number) {
  request_turn(qp_number);
  unpark();  // if the thread "uiw-progress" is parked, it then looks at all queue pairs
}

// Sends and receives for queue pairs that epoll or doorbells report. Returns the number of events and doorbells, or -1
// with errno. An event that is to wake the thread "uiw-progress" stays in the epoll set; `for_thread` says that there
// is one. After answer_doorbell() the doorbell wakes no other thread. So this function then visits up to kMostReady
// queue pairs for which a peer has rung or request_turn() was called, and wakes another thread if some are left.
int Engine::drive_ready(bool& for_thread) {
  int driven = 0;
  if (asks_kernel()) {
    epoll_event events[kMostReady];
    const int ready = sets_.wait(events, kMostReady, 0);
    if (ready < 0) return -1;
    driven = drive_events(events, ready);
    for_thread = driven < ready;
    quiet_asks_ = driven > 0 ? 0 : quiet_asks_ + 1;
  }
  const std::size_t rung = driven_.visit_rung(kMostReady, [](Driven& qp) { qp.progress(qp.event_driver()); });
  if (rung == kMostReady) driven_.pass_doorbell_on();
  return driven + static_cast<int>(rung);
}

// Handles these events, except for one that is to wake the thread "uiw-progress". Returns how many it has handled.
int Engine::drive_events(const epoll_event* events, int count) {
  int driven = 0;
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == ProgressHelpers::kWakeTag) continue;
    ++driven;
    if (events[i].data.u64 == ProgressHelpers::kDoorbellTag) {
      driven_.answer_doorbell();
    } else if (!ProgressHelpers::is_queue_pair(events[i].data.u64)) {
      continue;  // request_turn() was called: the caller looks for such queue pairs anyway
    } else if (Driven* const qp = find_(static_cast<std::uint32_t>(events[i].data.u64))) {
      qp->note_event(events[i].events);
      qp->progress(qp->event_driver());
    }
  }
  return driven;
}

// Whether this poll calls epoll_wait(). If kQuietAsks calls in a row have found nothing, all news comes by doorbells,
// or there is no news. So from then on only one poll in kAskStride makes the call.
bool Engine::asks_kernel() { return quiet_asks_ < kQuietAsks || ++looks_ % kAskStride == 0; }

// As epoll_wait(), after a busy wait if that is worthwhile. Also returns if a peer has rung a doorbell or
// request_turn() was called.
int Engine::await(epoll_event* events, int most, int patience) {
  const auto polling = [this](std::uint64_t now) { return activity_.is_active(now, Activity::kPollingNs); };
  std::uint64_t now = raw_clock();
  int count = 0;
  bool rung = false;
  for (bool looks = busy_wait_.begin(now) && !polling(now); looks;) {
    count = sets_.wait(events, most, 0);
    rung = driven_.rung();
    if (count != 0 || rung) break;
    sched_yield();
    now = raw_clock();
    looks = busy_wait_.again(now) && !polling(now);
  }
  if (count == 0 && !rung) {
    const DrivenList::Asleep asleep(driven_);
    count = sets_.wait(events, most, driven_.rung() ? 0 : patience);
  }
  busy_wait_.end(raw_clock());
  return count;
}

void Engine::look(bool polls) {
  if (!started_.load(std::memory_order_relaxed)) return;
  UniqueLock drive_lock(drive_mutex_, std::defer_lock);
  if (!drive_lock.try_lock()) return activity_.note_look(raw_clock(), polls);
  activity_.begin_driving();
  bool yield = false, timed = true, for_thread = false;
  {
    const ReadSection section;
    const bool many = drives_many();
    const bool deferred = deferring_.load(std::memory_order_relaxed) > 0;
    if (deferred) send_waiting_posts(polls);
    const bool work = many ? drive_ready(for_thread) > 0 : driven_.poll_each();
    const bool in_vain = polls && !work;
    if (!deferred) {
      busy_looks_ = 0;
    } else if (polls && work) {
      ++busy_looks_;
    }
    if (polls && deferred && SendScheduler::ends_deferral(work, busy_looks_)) {
      busy_looks_ = 0;
      send_all_deferred(DrivenList::kFew);
    }
    const bool after_work = empty_rounds_ == 0;
    empty_rounds_ = in_vain ? empty_rounds_ + 1 : 0;
    yield = empty_rounds_ >= kYieldAfter && empty_rounds_ % kYieldStride == 0 && yields(raw_clock());
    // The clock is not read at each poll: reading it takes as long as a poll of a few queue pairs that finds nothing.
    // If a poll finds work after polls that found nothing, the clock was read at most kClockStride polls ago, or after
    // long work (note_long_look()), and the program gets its message sooner without another reading.
    timed = many || !polls || (in_vain ? empty_rounds_ % kClockStride == 1 : after_work);
  }
  if (timed) {
    activity_.note_look(raw_clock(), polls);
  } else {
    activity_.note_poll();
  }
  activity_.end_driving();
  drive_lock.unlock();
  if (!yield) return;
  // While this thread yields, the program counts as polling, however long the thread waits for its processor.
  activity_.enter();
  const std::uint64_t before = raw_clock();
  sched_yield();
  const std::uint64_t after = raw_clock();
  activity_.leave();
  if (drive_lock.try_lock()) yield_pauses_.yielded(before, after);
}

// Whether a poll that found nothing may yield. A thread that has polled in vain for kDisplacedNs may be keeping the
// processor from the thread for which it waits, so a pause in yielding ends after this time.
bool Engine::yields(std::uint64_t now) {
  if (empty_rounds_ == kYieldAfter) in_vain_since_ = now;
  if (now - in_vain_since_ > YieldPauses::kDisplacedNs) yield_pauses_.end();
  return yield_pauses_.over(now);
}

// Called before arrivals are read. A poll (`polls`) sends all posts that wait; a post sends only those that have waited
// for too long. At most kFew queue pairs are visited in one call, since polls and posts must be quick.
void Engine::send_waiting_posts(bool polls) {
  driven_.visit_deferring(DrivenList::kFew, [polls](Driven& qp) {
    if (!qp.posts_wait()) return;
    carry_out(qp, [polls](Driven& one) {
      if (polls) {
        one.send_waiting_posts();
      } else {
        one.send_overdue_posts();
      }
    });
  });
}

// Sends the deferred posts and probes of at most `most` queue pairs; later calls visit the other queue pairs.
void Engine::send_all_deferred(std::size_t most) {
  driven_.visit_deferring(most, [](Driven& qp) { carry_out(qp, [](Driven& one) { one.send_all_deferred(); }); });
}

// This thread counts in `deferring_` and then checks whether an event is awaited; event_asked_for() counts the event
// and then loads `deferring_`. So at least one of the two threads sees the other's write. The same holds for `parked_`:
// the thread "uiw-progress" clears it at the end of park() and then looks at all queue pairs. So if this thread finds
// `parked_` set, "uiw-progress" will find the deferred sends.
void Engine::note_deferred(std::uint32_t qp_number, bool deferred) {
  if (const Driven* const qp = find_(qp_number)) driven_.note_deferred(*qp, deferred);
  deferring_.fetch_add(deferred ? 1U : ~0U);
  if (!deferred || activity_.waiters().driven_here()) return;  // this thread is in wait(): it sends before it sleeps
  if (activity_.event_awaited_in_order() || !parked_.load() || waits_long_.load()) wake();
}

// Usually the thread "uiw-progress" is already checking for overdue posts by its timer (`watching_`). If not, this call
// wakes that thread, which then checks for them as long as the program polls.
void Engine::watch_posts() {
  watched_.fetch_add(1);
  if (watching_.load()) return;
  if (!parked_.load()) {
    wake();
    return;
  }
  const std::lock_guard lock(park_mutex_);
  hurry_ = true;
  park_condition_.notify_one();
}

bool Engine::note_post(std::uint64_t now) {
  if (!activity_.note_post(now)) return false;
  look(false);
  return true;
}

bool Engine::end_posting(std::uint64_t now) {
  const bool looked = note_post(now);
  activity_.leave();
  return looked;
}

void Engine::event_asked_for() {
  activity_.event_asked_for();
  // If "uiw-progress" has parked for a thread of the program in wait(), it stays parked: that thread will probably wait
  // again, and if it does not, "uiw-progress" finds out by its timer.
  if (!parked_for_waiters_.load()) unpark();
  if (deferring_.load() > 0) wake();
}

void Engine::unpark() {
  if (!parked_.load()) return;
  const std::lock_guard lock(park_mutex_);
  unpark_ = true;
  activity_.forget();
  park_condition_.notify_one();
}

// Watches all sockets again and looks at all queue pairs: the thread "uiw-progress" may have missed events in park().
void Engine::sweep() {
  visit([](const Driven&) { return true; },
        [](Driven& qp) {
          if (!qp.watch_socket(true)) qp.no_memory();
          qp.progress(Driver::event);
        });
}

template <typename Wanted, typename Visitor>
void Engine::visit(Wanted wanted, Visitor visitor) {
  for (;; std::this_thread::sleep_for(kNoMemoryPause)) {
    if (stop_.load()) return;
    visited_.clear();
    try {
      driven_.for_each([&](const Driven& qp) {
        if (wanted(qp)) visited_.push_back(qp.number());
      });
      break;
    } catch (const std::bad_alloc&) {  // tries again: perhaps no other thread serves these queue pairs
    }
  }
  for (const std::uint32_t number : visited_) {
    const ReadSection section;
    if (Driven* qp = find_(number)) visitor(*qp);
  }
}

// Moves sockets to the sets of their channels. `sets` has a bit for each set that was made since the last call.
void Engine::fill_sets(std::uint64_t sets) {
  const auto wanted = [sets](const Driven& qp) {
    const int channel = qp.channel_set.load();
    return channel != ChannelSets::kNone && (sets & ChannelSets::bit(channel)) != 0;
  };
  visit(wanted, [](Driven& qp) {
    qp.watch_socket(false);
    if (!qp.watch_socket(true)) qp.no_memory();
  });
}

// True if some posts still wait: they are not overdue yet, or another thread has the sender's lock.
bool Engine::send_overdue_posts() {
  bool left = false;
  driven_.visit_deferring(~std::size_t{0}, [&left](Driven& qp) {
    if (qp.posts_wait()) carry_out(qp, [](Driven& one) { one.send_overdue_posts(); });
    left = left || qp.posts_wait();
  });
  return left;
}

// Called on the thread "uiw-progress" when its timer expires; sets `next`, the time until it expires again, which is
// long if the program polls and no posts wait. False if the program neither polls nor posts any more. This thread
// stores `watching_` and then loads `watched_`; watch_posts() counts in `watched_` and then loads `watching_`. So
// either this thread sees that posts wait, or watch_posts() sees that it has to wake this thread.
bool Engine::tick(std::chrono::microseconds& next) {
  if (!activity_.is_active(raw_clock(), 2 * Activity::kPollingNs)) return false;
  const bool new_to_it = !watching_.load();
  const bool left = deferring_.load() > 0 && send_overdue_posts();
  next = std::min(2 * next, activity_.posts() ? kDeferredTick : kLongestTick);
  watching_.store(left || next <= kDeferredTick);
  const unsigned watched = watched_.load();
  if (left || watched != watched_seen_) {
    watching_.store(true);
    next = new_to_it ? kFirstTick : kDeferredTick;
  }
  watched_seen_ = watched;
  return true;
}

void Engine::give_back_idle_memory(std::uint64_t now) {
  // Only queue pairs with shared memory have something to give back.
  if (!shares_.load(std::memory_order_relaxed) || !idle_memory_.due(now)) return;
  bool more = false;
  visit([](const Driven&) { return true; }, [&more](Driven& qp) { more = qp.give_back_idle_memory() || more; });
  idle_memory_.looked(now, more);
}

void Engine::park() {
  const bool for_waiters = activity_.waiters().drive(raw_clock());
  parked_.store(true);
  // hand_over() asks this thread to park: it sets `hand_over_` and then loads `parked_`. This thread has set `parked_`
  // and now clears `hand_over_`. So either this call of park() does what hand_over() asks for, or hand_over() finds
  // `parked_` set and unparks this thread.
  hand_over_.exchange(false);
  parked_for_waiters_.store(for_waiters);
  watching_.store(!for_waiters);
  // If polls look at each queue pair, epoll stops watching the sockets: each report of epoll lengthens the system call
  // by which a peer on this host sends. Engine::add() counts its queue pair with driven_ locked and then loads
  // `parked_`; this thread has set `parked_`, and the lambda reads the count with driven_ locked. So at least one of
  // the two threads sees the other's write. While a thread of the program is in wait(), the sockets stay watched, since
  // that thread asks epoll.
  if (!for_waiters) visit([this](const Driven&) { return !drives_many(); }, [](Driven& qp) { qp.watch_socket(false); });
  std::chrono::microseconds next = for_waiters ? kWaitersTick : kFirstTick;
  {
    std::unique_lock lock(park_mutex_);
    const auto woken = [this] { return unpark_ || hurry_; };
    while (!unpark_ && !stop_.load() && activity_.waiters().drive(raw_clock()) == for_waiters &&
           (for_waiters || !activity_.event_awaited_in_order())) {
      const bool ticks = !for_waiters || !waits_long_.load() || deferring_.load() > 0;
      if (!ticks) watching_.store(false);
      if (ticks) {
        park_condition_.wait_for(lock, next, woken);
      } else if (const int patience = idle_memory_.patience(); patience >= 0) {
        park_condition_.wait_for(lock, std::chrono::milliseconds(patience), woken);
      } else {
        park_condition_.wait(lock, woken);
      }
      hurry_ = false;
      lock.unlock();
      const bool stays = tick(next);
      give_back_idle_memory(raw_clock());
      lock.lock();
      if (!stays) break;
    }
    unpark_ = hurry_ = false;
  }
  parked_for_waiters_.store(false);
  parked_.store(false);
  watching_.store(false);
  sweep();
}

void Engine::run() {
  epoll_event events[kMostEvents];
  EventTurns turns(find_);
  HelpNeeded help_needed;
  unsigned found_polling = 0;
  // The number of queue pairs that the last pass of the loop found by doorbells or request_turn(), not by epoll events.
  std::size_t rung = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool handed_over = hand_over_.load(std::memory_order_relaxed) && hand_over_.exchange(false);
    const std::uint64_t asked = helpers_.allowed() ? raw_clock() : 0;
    // While helping threads run, this thread takes one event at a time and leaves the rest to them.
    const int most = helpers_.helping() > 0 ? 1 : kMostEvents;
    const int count = turns.repeated() > 0 || handed_over ? sets_.wait(events, most, 0)
                                                          : await(events, most, idle_memory_.patience());
    if (count < 0) {
      if (errno == EINTR) continue;
      while (turns.repeated() > 0) turns.repeat();
      return begin_anew();
    }
    const std::uint64_t answered = raw_clock();
    const bool polling = activity_.is_active(answered, Activity::kPollingNs);
    give_back_idle_memory(answered);
    if (polling) help_needed = HelpNeeded();
    if (helpers_.allowed() && !polling &&
        help_needed.asked(asked, answered, static_cast<std::size_t>(count) + turns.repeated() + rung,
                          helpers_.helping(), helpers_.turns())) {
      helpers_.call();
    }
    turns.repeat();
    if (new_sets_.load(std::memory_order_relaxed) != 0) fill_sets(new_sets_.exchange(0));
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == ProgressHelpers::kWakeTag) {
        std::uint64_t value;
        [[maybe_unused]] const auto n = ::read(wake_, &value, sizeof value);
        if (polling && deferring_.load() > 0 && !activity_.waiters().drive(answered)) {
          found_polling = kParkAfter;
        } else {
          driven_.visit_deferring(~std::size_t{0}, [](Driven& qp) { qp.progress(Driver::event); });
        }
      } else if (events[i].data.u64 == ProgressHelpers::kDoorbellTag) {
        driven_.answer_doorbell();
      } else if (ProgressHelpers::is_queue_pair(events[i].data.u64)) {
        turns.event(static_cast<std::uint32_t>(events[i].data.u64), events[i].events);
      }
    }
    rung = 0;
    driven_.visit_rung(static_cast<std::size_t>(most), [&](Driven& qp) {
      const auto is_it = [&](const epoll_event& event) { return event.data.u64 == qp.number(); };
      if (std::none_of(events, events + count, is_it)) ++rung;
      turns.event(qp.number(), 0);
    });
    found_polling = !polling ? 0 : handed_over ? kParkAfter : found_polling + 1;
    if (found_polling >= kParkAfter && turns.repeated() == 0) {
      found_polling = 0;
      park();
    }
  }
}

}  // namespace uiw::provider
