// SPDX-License-Identifier: MIT
#include "provider/verbs/srq.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "base/random.h"
#include "provider/process/cm_loop.h"
#include "provider/process/limits.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/qp/receive_posting.h"
#include "provider/verbs/xrc_domain.h"

namespace uiw::provider {

namespace {

bool size_allowed(std::uint32_t depth) { return depth > 0 && depth <= kMaxSrqWr; }

const auto kStart = static_cast<std::uint32_t>(secret_number());
std::atomic<std::uint32_t> last_number{0};

std::uint32_t next_number() {
  // Numbers of 24 bits, from a random one on that differs in the child of a fork: a peer of XRC that takes the number
  // of another process's queue for one of this process should find none.
  for (;;) {
    const std::uint32_t from = kStart + static_cast<std::uint32_t>(::getpid()) * 0x9E37U;
    const std::uint32_t number = (from + last_number.fetch_add(1, std::memory_order_relaxed)) & 0xFFFFFF;
    if (number != 0) return number;
  }
}

// Lets a queue pair go on receiving, since a receive has been promised to it.
void go_on(std::uint32_t qp_number) {
  const ReadSection section;
  if (Qp* qp = find_qp(qp_number)) qp->progress(Qp::Driver::event);
}

}  // namespace

// Wakes queue pairs from a thread that holds no locks, since the locks of one queue pair must not be taken while those
// of another are held. The Waker is allocated when the queue is made: if an allocation failed later, a queue pair that
// has been promised a receive would never go on.
class Srq::Waker final : public CmLoop::Task {
 public:
  explicit Waker(Srq& srq) : srq_(&srq) {}
  void forget() {
    const LockGuard lock(mutex_);
    srq_ = nullptr;
  }
  void run() override {
    for (std::uint32_t number;;) {
      {
        const LockGuard lock(mutex_);
        if (srq_ == nullptr || !srq_->next_to_wake(number)) return;
      }
      go_on(number);
    }
  }

 private:
  Mutex mutex_;
  Srq* srq_ UIW_GUARDED_BY(mutex_);
};

std::unique_ptr<Srq> Srq::create(Pd& pd, ibv_srq_attr& attributes, bool arm, ibv_srq* handle,
                                 std::shared_ptr<XrcDomain> domain, Cq* cq) {
  const std::uint32_t limit = arm ? attributes.srq_limit : 0;
  if (!size_allowed(attributes.max_wr) || attributes.max_sge > kMaxSge || limit > attributes.max_wr) {
    errno = EINVAL;
    return nullptr;
  }
  attributes.max_sge = std::max<std::uint32_t>(attributes.max_sge, 1);
  return std::unique_ptr<Srq>(new Srq(pd, attributes, limit, handle, std::move(domain), cq));
}

Srq::Srq(Pd& pd, const ibv_srq_attr& attributes, std::uint32_t limit, ibv_srq* handle,
         std::shared_ptr<XrcDomain> domain, Cq* cq)
    : pd_(pd),
      generation_(fork_generation()),
      handle_(handle),
      number_(next_number()),
      max_sges_(attributes.max_sge),
      domain_(std::move(domain)),
      cq_(cq),
      queue_(std::make_unique<rdmap::ReceiveQueue>(attributes.max_wr, attributes.max_sge)),
      limit_(limit),
      waker_(std::make_shared<Waker>(*this)) {
  if (domain_) domain_->add(*this);
  if (cq_ != nullptr) cq_->add_user();
  pd_.add_user();
}

Srq::~Srq() {
  listed_.leave();
  stop();
  waker_->forget();
  leave_to_parent();
}

void Srq::stop() {
  if (domain_) domain_->remove(*this);
}

bool Srq::inherited() const { return generation_ != fork_generation(); }

void Srq::leave_to_parent() {
  if (cq_ != nullptr) cq_->remove_user();
  pd_.remove_user();
}

int Srq::post(ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const ReadSection section;
  int error;
  std::size_t promises;
  {
    const LockGuard lock(mutex_);
    error = post_receives(*queue_, {stag_table(), &pd_}, known_, requests, bad);
    promises = promise();
  }
  if (promises > 0) wake(promises);
  return error;
}

// Promises free receives to the queue pairs that wait for one, in order. Returns the number of queue pairs to wake.
std::size_t Srq::promise() {
  std::size_t count = 0;
  for (; !waiting_.empty() && available() > 0; ++count) {
    SrqUser& user = *waiting_.front();
    assume_held(user.srq_.mutex_);
    ++promised_;
    user.promised_.store(true, std::memory_order_release);
    user.move_to(SrqUser::Position::to_wake);
  }
  return count;
}

// Wakes the first `count` queue pairs of `to_wake_`, in order. Each takes the receive that was promised to it, and goes
// on receiving as long as it finds more receives.
void Srq::wake(std::size_t count) {
  std::array<std::uint32_t, 16> numbers;
  while (count > 0) {
    std::size_t found = 0;
    {
      const LockGuard lock(mutex_);
      for (; found < std::min(count, numbers.size()) && !to_wake_.empty(); ++found) {
        numbers[found] = take_first_to_wake();
      }
    }
    if (found == 0) return;  // the queue pairs have found the promise by themselves
    for (std::size_t i = 0; i < found; ++i) go_on(numbers[i]);
    count -= found;
  }
}

std::uint32_t Srq::take_first_to_wake() {
  SrqUser& user = *to_wake_.front();
  assume_held(user.srq_.mutex_);
  user.move_to(SrqUser::Position::none);
  return user.qp_number_;
}

bool Srq::next_to_wake(std::uint32_t& qp_number) {
  const LockGuard lock(mutex_);
  if (to_wake_.empty()) return false;
  qp_number = take_first_to_wake();
  return true;
}

// Returns true if the limit event is to be reported now. By the Verbs draft, section 6.3.8, the event comes once for
// each time that the program sets a limit, when fewer receives than the limit are free. A queue pair that finds the
// queue empty triggers the event, too.
bool Srq::limit_passed() {
  if (limit_ == 0 || available() >= limit_) return false;
  limit_ = 0;
  return true;
}

void Srq::report_limit() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = handle_;
  if (pd_.context().report(event)) events_reported_.fetch_add(1);
}

unsigned Srq::withdraw_events() { return pd_.context().withdraw_events(handle_, events_reported_.load()); }

int Srq::modify(const ibv_srq_attr& attributes, int mask) {
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  std::unique_ptr<rdmap::ReceiveQueue> resized;
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    if (!size_allowed(attributes.max_wr)) return EINVAL;
    try {
      resized = std::make_unique<rdmap::ReceiveQueue>(attributes.max_wr, max_sges_);
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }
  bool passed = false;
  {
    const LockGuard lock(mutex_);
    const std::uint32_t limit = (mask & IBV_SRQ_LIMIT) != 0 ? attributes.srq_limit : limit_;
    if (limit > (resized ? resized : queue_)->depth()) return EINVAL;
    if (resized) {
      if (queue_->size() > resized->depth()) return EINVAL;
      if (!resized->reserve(queue_->size())) return ENOMEM;
      for (; !queue_->empty(); queue_->pop()) {
        const std::span<const rdmap::Sge> sges = queue_->front_sges();
        std::copy(sges.begin(), sges.end(), resized->slot_sges());
        resized->slot() = queue_->front();
        resized->push();
      }
      queue_.swap(resized);
    }
    limit_ = limit;
    // A queue pair that waits for a receive has found the queue empty before the limit was armed. A program that posts
    // only after the event must get the event now.
    passed = !waiting_.empty() && limit_passed();
  }
  if (passed) report_limit();
  return 0;
}

std::size_t Srq::waiting() {
  const LockGuard lock(mutex_);
  return waiting_.size();
}

void Srq::query(ibv_srq_attr& attributes) {
  const LockGuard lock(mutex_);
  attributes.max_wr = queue_->depth();
  attributes.max_sge = max_sges_;
  attributes.srq_limit = limit_;
}

SrqUser::SrqUser(Srq& srq, std::unique_ptr<SrqUser> others)
    : srq_(srq),
      others_(std::move(others)),
      sges_(std::make_unique_for_overwrite<rdmap::Sge[]>(srq.max_sges_)),
      none_(1, this),
      node_(none_.begin()) {
  srq_.users_.fetch_add(1, std::memory_order_relaxed);
}

SrqUser::~SrqUser() {
  for (auto other = std::move(others_); other;) other = std::move(other->others_);  // not one inside the other
  leave();
  srq_.users_.fetch_sub(1, std::memory_order_relaxed);
}

bool SrqUser::completes_to(const Cq* cq) const {
  for (const SrqUser* one = this; one != nullptr; one = one->others_.get())
    if (one->srq_.cq_ == cq) return true;
  return false;
}

bool SrqUser::bring_forward(std::uint64_t number, std::unique_ptr<SrqUser>& users) {
  for (auto* at = &users; *at != nullptr; at = &(*at)->others_) {
    if (!(*at)->is_of(number)) continue;
    if (at == &users) return true;
    auto found = std::move(*at);
    *at = std::move(found->others_);
    found->others_ = std::move(users);
    users = std::move(found);
    return true;
  }
  return false;
}

std::unique_ptr<SrqUser> SrqUser::without(const Srq& queue, std::unique_ptr<SrqUser> users) {
  for (auto* at = &users; *at != nullptr; at = &(*at)->others_) {
    if (!(*at)->is_of(queue.number())) continue;
    *at = std::exchange((*at)->others_, nullptr);
    break;
  }
  return users;
}

void SrqUser::move_to(Position position) {
  const auto line = [this](Position which) -> Srq::Line& {
    if (which == Position::none) return none_;
    return which == Position::waiting ? srq_.waiting_ : srq_.to_wake_;
  };
  line(position).splice(line(position).end(), line(position_), node_);
  position_ = position;
}

bool SrqUser::take(rdmap::ReceiveBuffer& buffer) {
  bool passed;
  bool taken = false;
  {
    const LockGuard lock(srq_.mutex_);
    const bool own = promised_.load(std::memory_order_relaxed);
    if (own || srq_.available() > 0) {
      if (own) {
        promised_.store(false, std::memory_order_relaxed);
        --srq_.promised_;
        if (position_ != Position::none) move_to(Position::none);
      }
      // The elements are copied, since the poster may use the slot again at once: the receive is this queue pair's now
      // (Verbs draft section 6.3.5).
      rdmap::ReceiveQueue& queue = *srq_.queue_;
      const std::span<const rdmap::Sge> sges = queue.front_sges();
      std::copy(sges.begin(), sges.end(), sges_.get());
      buffer = {queue.front().id, queue.front().length, {sges_.get(), sges.size()}, &srq_.pd_};
      queue.pop();
      taken = true;
    } else if (position_ == Position::none) {
      move_to(Position::waiting);
    }
    passed = srq_.limit_passed();
  }
  if (passed) srq_.report_limit();
  return taken;
}

void SrqUser::leave() {
  {
    const LockGuard lock(srq_.mutex_);
    if (position_ != Position::none) move_to(Position::none);
    if (!promised_.load(std::memory_order_relaxed)) return;
    promised_.store(false, std::memory_order_relaxed);
    --srq_.promised_;
    if (srq_.promise() == 0) return;
  }
  CmLoop::instance().post(srq_.waker_);
}

bool SrqUser::give_back(const rdmap::ReceiveBuffer& buffer) {
  {
    const LockGuard lock(srq_.mutex_);
    rdmap::ReceiveQueue& queue = *srq_.queue_;
    if (!queue.has_room()) return false;
    std::copy(buffer.sges.begin(), buffer.sges.end(), queue.slot_sges());
    queue.slot() = {buffer.id, buffer.length, static_cast<std::uint16_t>(buffer.sges.size())};
    queue.push();
    if (srq_.promise() == 0) return true;
  }
  CmLoop::instance().post(srq_.waker_);
  return true;
}

}  // namespace uiw::provider
