// SPDX-License-Identifier: MIT
#include "provider/verbs/cq/cq.h"

#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "base/mutex.h"
#include "provider/process/cm_loop.h"
#include "provider/process/faults/faults.h"
#include "provider/process/limits.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/completion_channel.h"
#include "provider/verbs/cq/cq_timer.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

namespace {
// At least two: a program with one request outstanding may post the next one before it polls the completion of the
// first (ib_send_lat -e does), and both may be complete then.
unsigned capacity_for(int entries) { return std::bit_ceil(static_cast<unsigned>(std::max(entries, 2))); }
}  // namespace

Cq::Rings Cq::make_rings(const Options& options, std::uint64_t capacity) {
  Rings rings;
  rings.completions = make_ring<ibv_wc>(options.memory, capacity);
  if (!rings.completions) return rings;
  if (options.raw_time || options.wall_time) rings.stamps = make_ring<Stamp>(options.memory, capacity);
  rings.complete = rings.stamps || !(options.raw_time || options.wall_time);
  return rings;
}

Cq::Cq(Context& context, unsigned capacity, Rings rings, std::shared_ptr<EventPipe> channel, ibv_cq* handle,
       Options options)
    : context_(context.shared_from_this()),
      generation_(fork_generation()),
      options_(options),
      capacity_(capacity),
      ring_(std::move(rings.completions)),
      stamps_(std::move(rings.stamps)),
      channel_(std::move(channel)),
      handle_(handle),
      failing_(std::make_shared<std::atomic<bool>>(false)) {}

bool Cq::inherited() const { return generation_ != fork_generation(); }

Cq::~Cq() {
  listed_.leave();
  if (timer_) timer_->forget_queue();
  if (channel_) channel_->leave(slot_);
}

std::unique_ptr<Cq> Cq::create(Context& context, int entries, int channel_fd, ibv_cq* handle, Options options) {
  if (entries < 1 || entries > kMaxCqe) {
    errno = EINVAL;
    return nullptr;
  }
  std::shared_ptr<EventPipe> channel;
  int channel_number = ChannelSets::kNone;
  if (channel_fd >= 0) {
    channel = completion_channel(channel_fd, context.shared_from_this(), channel_number);
    // Starts the thread "uiw-cm", which writes the events for which the channel had no room.
    const int error = channel ? CmLoop::instance().start() : EINVAL;
    if (error != 0) {
      errno = error;
      return nullptr;
    }
  }
  Rings rings = make_rings(options, capacity_for(entries));
  if (!rings.complete) {
    errno = ENOMEM;
    return nullptr;
  }
  std::unique_ptr<Cq> made(
      new Cq(context, capacity_for(entries), std::move(rings), std::move(channel), handle, options));
  made->channel_number_ = channel_number;
  if (const Faults* const faults = Faults::active(); faults != nullptr && faults->has(FaultKind::delay)) {
    made->timer_ = CqTimer::create(*made);
    if (!made->timer_) return nullptr;
  }
  return made;
}

// ---- Taking completions ----------------------------------------------------------------------------------------

int Cq::take(int count, ibv_wc* completions, Stamp* stamps) {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t ready = tail_.load(std::memory_order_acquire) - head;
  const int taken = static_cast<int>(std::min<std::uint64_t>(ready, static_cast<std::uint64_t>(count)));
  const std::uint64_t mask = capacity_.load(std::memory_order_relaxed) - 1;
  for (int i = 0; i < taken; ++i) {
    const std::uint64_t slot = (head + static_cast<unsigned>(i)) & mask;
    completions[i] = ring_[slot];
    if (stamps != nullptr && stamps_) stamps[i] = stamps_[slot];
  }
  head_.store(head + static_cast<unsigned>(taken), std::memory_order_release);
  return taken;
}

// Called when a poll has found nothing: sends and receives for the context's queue pairs (Engine::drive), unless the
// thread is about to wait for an event and will do so then.
void Cq::look() {
  Engine& engine = context_->engine();
  const unsigned left = polls_of_wait_.load(std::memory_order_relaxed);
  if (left == 0 || !engine.wait_will_drive(channel_number_)) return engine.drive();
  polls_of_wait_.store(left - 1, std::memory_order_relaxed);
}

int Cq::poll(int count, ibv_wc* completions) {
  if (count <= 0) return 0;
  for (bool driven = false;; driven = true) {
    if (!empty()) {
      const ConsumerLock lock(*this, !options_.single_threaded);
      if (const int taken = take(count, completions, nullptr); taken > 0) return taken;
    }
    if (driven) return 0;
    look();
  }
}

// If it returns true, this function has taken the consumer's lock (unless Options::single_threaded), which end_poll()
// releases in a later call of the program. The thread safety analysis cannot follow that.
bool Cq::begin_poll(ibv_wc& completion, Stamp& stamp) UIW_NO_THREAD_SAFETY_ANALYSIS {
  for (bool driven = false;; driven = true) {
    if (!empty()) {
      if (!options_.single_threaded) consumer_.lock();
      if (take(1, &completion, &stamp) == 1) {
        begun_by_.store(pthread_self(), std::memory_order_relaxed);
        return true;
      }
      if (!options_.single_threaded) consumer_.unlock();
    }
    if (driven) return false;
    look();
  }
}

bool Cq::next_poll(ibv_wc& completion, Stamp& stamp) UIW_NO_THREAD_SAFETY_ANALYSIS {
  return !empty() && take(1, &completion, &stamp) == 1;
}

void Cq::end_poll() UIW_NO_THREAD_SAFETY_ANALYSIS {
  begun_by_.store(pthread_t{}, std::memory_order_relaxed);
  if (!options_.single_threaded) consumer_.unlock();
}

Cq::View Cq::view() {
  const LockGuard lock(producer_);
  const Armed armed = armed_.load(std::memory_order_relaxed);
  // Completions that an injected fault delays are not there yet.
  const std::uint64_t pushed = empty() ? taken() : tail_.load(std::memory_order_relaxed);
  return {pushed, taken(), armed != Armed::no, armed == Armed::solicited, events_written_ != 0};
}

bool Cq::begun_here() const { return pthread_equal(begun_by_.load(std::memory_order_relaxed), pthread_self()) != 0; }

int Cq::resize(int entries) {
  if (entries < 1 || entries > kMaxCqe) return EINVAL;
  const std::uint64_t capacity = capacity_for(entries);
  // Allocated before the locks are taken, so that producers wait only for the copy.
  Rings rings = make_rings(options_, capacity);
  if (!rings.complete) return ENOMEM;
  const ConsumerLock consumer(*this, !begun_here());
  const LockGuard producer(producer_);
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  const std::uint64_t before = capacity_.load(std::memory_order_relaxed);
  if (tail - head > static_cast<std::uint64_t>(entries)) return EINVAL;
  for (std::uint64_t at = head; at != tail; ++at) {
    rings.completions[at & (capacity - 1)] = ring_[at & (before - 1)];
    if (rings.stamps) rings.stamps[at & (capacity - 1)] = stamps_[at & (before - 1)];
  }
  ring_.swap(rings.completions);  // the former rings are freed after the locks are released
  stamps_.swap(rings.stamps);
  capacity_.store(capacity, std::memory_order_relaxed);
  return 0;
}

void Cq::forget(std::uint32_t qp_number) {
  const ConsumerLock consumer(*this, !begun_here());
  const LockGuard producer(producer_);
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t mask = capacity_.load(std::memory_order_relaxed) - 1;
  // The completions that stay move towards the tail, the newest first.
  std::uint64_t kept = tail_.load(std::memory_order_relaxed);
  for (std::uint64_t at = kept; at-- != head;) {
    const std::uint64_t from = at & mask;
    if (ring_[from].qp_num == qp_number) continue;
    const std::uint64_t to = --kept & mask;
    ring_[to] = ring_[from];
    if (stamps_) stamps_[to] = stamps_[from];
  }
  head_.store(kept, std::memory_order_release);
}

// ---- Adding completions ----------------------------------------------------------------------------------------

void Cq::push(const ibv_wc& completion, bool solicited) {
  bool lost = false, first = false;
  {
    const LockGuard lock(producer_);
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint64_t capacity = capacity_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == capacity) {
      lost = !options_.ignore_overrun;
      first = lost && !overrun_;
      overrun_ = overrun_ || lost;
    } else {
      const std::uint64_t slot = tail & (capacity - 1);
      ring_[slot] = completion;
      if (stamps_) {
        stamps_[slot] = {options_.raw_time ? raw_clock() : 0, options_.wall_time ? wall_clock_ns() : 0};
      }
      tail_.store(tail + 1, std::memory_order_release);
      if (Faults* const faults = Faults::active(); faults != nullptr) [[unlikely]] {
        if (const FaultRule* const rule = faults->due(FaultKind::delay)) delay(static_cast<unsigned>(rule->value));
      }
      const Armed armed = armed_.load(std::memory_order_relaxed);
      // Failures count as solicited.
      const bool failed = completion.status != IBV_WC_SUCCESS;
      if (armed == Armed::any || (armed == Armed::solicited && (solicited || failed))) notify_soon(failed);
    }
  }
  if (lost) overrun(first);
}

// The queue pairs that complete to this queue enter ERR, and no others (Verbs draft sections 8.3.3, figure 24, and
// 5.3.1). The thread that pushes holds locks of a queue pair, so another thread moves the queue pairs to ERR.
void Cq::overrun(bool first) {
  if (first) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = handle_;
    if (context_->report(event)) async_events_.fetch_add(1);
  }
  if (failing_->exchange(true)) return;
  try {
    const int error = CmLoop::instance().post([cq = static_cast<const Cq*>(this), failing = failing_] {
      failing->store(false);
      for_each_queue_pair([cq](std::uint32_t, QueuePair& qp) {
        if (qp.completes_to(cq)) qp.completion_lost();
      });
    });
    if (error != 0) failing_->store(false);  // there is no thread; the next lost completion tries again
  } catch (const std::exception&) {
    failing_->store(false);  // there is no memory; the next lost completion tries again
  }
}

// ---- Events ----------------------------------------------------------------------------------------------------

int Cq::request_notify(bool solicited_only) {
  Armed before;
  {
    const LockGuard lock(producer_);
    before = armed_.load(std::memory_order_relaxed);
    // Completions that an injected fault delays now can be polled only after this request, so the requested event is
    // due for them, too.
    if (delayed_until_.load(std::memory_order_relaxed) != 0 && is_delayed()) moderated_ = std::max(moderated_, 1U);
    // A request for any completion stays in force until its event is given, whatever is requested meanwhile.
    if (before != Armed::any) {
      armed_.store(solicited_only ? Armed::solicited : Armed::any, std::memory_order_relaxed);
    }
  }
  if (channel_) polls_of_wait_.store(kPollsOfWait, std::memory_order_relaxed);
  if (before == Armed::no) context_->engine().event_asked_for();
  if (channel_) channel_->flush();
  return 0;
}

SuppressedNotifications::~SuppressedNotifications() {
  innermost = outer_;
  if (completions_ > 0) cq_->count_suppressed(*this);
}

void Cq::count_suppressed(const SuppressedNotifications& suppressed) {
  const LockGuard lock(producer_);
  if (suppressed.request_ == requests_answered_) count_completions(suppressed.completions_, suppressed.failed_);
}

// A completion has been pushed for which an event was requested. `at_once`: the completion is a failure, which
// moderation does not delay.
void Cq::notify_soon(bool at_once) {
  if (delayed_until_.load(std::memory_order_relaxed) != 0 && is_delayed()) {
    ++moderated_;  // moderation_over() writes the event
    return;
  }
  SuppressedNotifications* const own = SuppressedNotifications::innermost;
  if (own == nullptr || own->cq_ != this) return count_completions(1, at_once);
  if (std::exchange(own->request_, requests_answered_) != requests_answered_)
    own->completions_ = 0, own->failed_ = false;
  ++own->completions_;
  own->failed_ = own->failed_ || at_once;
}

void Cq::count_completions(unsigned completions, bool at_once) {
  const bool first = moderated_ == 0;
  moderated_ += completions;
  if (at_once || moderated_ >= moderation_count_) {
    notify();
  } else if (first) {
    timer_->start(moderation_period_);
  }
}

void Cq::disarm() {
  if (armed_.exchange(Armed::no, std::memory_order_relaxed) != Armed::no) context_->engine().event_given();
  ++requests_answered_;
  moderated_ = 0;
}

void Cq::notify() {
  Faults* const faults = Faults::active();
  const bool lost = faults != nullptr && faults->due(FaultKind::lost_event) != nullptr;
  if (channel_ && !lost) {
    ib_uverbs_comp_event_desc event{};
    event.cq_handle = reinterpret_cast<std::uintptr_t>(handle_);
    channel_->write(&event, sizeof event, slot_);
    ++events_written_;
  }
  disarm();
}

void Cq::moderation_over() {
  const LockGuard lock(producer_);
  if (const std::uint64_t until = delayed_until_.load(std::memory_order_relaxed); until != 0) {
    if (const std::uint64_t now = raw_clock(); now < until) {
      return timer_->start(static_cast<unsigned>((until - now) / 1000 + 1));
    }
    delayed_until_.store(0, std::memory_order_relaxed);
  }
  if (moderated_ > 0) notify();
}

bool Cq::is_delayed() const { return raw_clock() < delayed_until_.load(std::memory_order_relaxed); }

void Cq::delay(unsigned milliseconds) {
  const std::uint64_t until = raw_clock() + std::uint64_t{milliseconds} * 1'000'000;
  if (until <= delayed_until_.load(std::memory_order_relaxed)) return;
  delayed_until_.store(until, std::memory_order_relaxed);
  timer_->start(milliseconds * 1000);
}

int Cq::moderate(unsigned count, unsigned period_us) {
  const bool on = count > 1 && period_us > 0;
  const ConsumerLock consumer(*this, !begun_here());  // only one thread at a time may create the timer
  if (on && !timer_) {
    auto timer = CqTimer::create(*this);
    if (!timer) return errno;
    const LockGuard producer(producer_);
    timer_ = std::move(timer);
  }
  const LockGuard producer(producer_);
  moderation_count_ = on ? count : 0;
  moderation_period_ = on ? period_us : 0;
  if (moderated_ > 0) {
    if (moderated_ >= moderation_count_) {
      notify();
    } else {
      timer_->start(moderation_period_);
    }
  }
  return 0;
}

int Cq::prepare_destroy(unsigned& events_to_acknowledge) {
  if (users_.load(std::memory_order_relaxed) != 0) return EBUSY;
  events_to_acknowledge = 0;
  const LockGuard lock(producer_);
  disarm();
  if (!channel_) return 0;
  events_written_ = channel_->take_back(
      events_written_, sizeof(ib_uverbs_comp_event_desc),
      [](const void* event, void* handle) {
        return static_cast<const ib_uverbs_comp_event_desc*>(event)->cq_handle ==
               reinterpret_cast<std::uintptr_t>(handle);
      },
      handle_);
  events_to_acknowledge = events_written_;
  return 0;
}

}  // namespace uiw::provider
